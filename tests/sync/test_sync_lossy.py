"""Type changes tried on a sample of the lake, by rows read in this process."""

from __future__ import annotations

from instep.schema.selection.selection import Selection, patterns
from instep.sync.schema_changes.lossy_casts import lossy_casts
from sync_world import MakeWorld, World


def filled(make_world: MakeWorld, **options: object) -> World:
    world = make_world("sqlite", **options)
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a text, n bigint)",
        "INSERT INTO t VALUES (1, '5', 1), (2, 'six', 2), (3, NULL, 5000000000), (4, '7', 4)",
    )
    world.sync()
    world.run(
        "CREATE TABLE t2 (id int PRIMARY KEY, a int, n bigint)", "INSERT INTO t2 VALUES (1, 5, 1), (4, 7, 4)",
        "DROP TABLE t", "ALTER TABLE t2 RENAME TO t",
    )  # fmt: skip
    return world


def test_what_does_not_fit_is_counted(make_world: MakeWorld) -> None:
    world = filled(make_world)
    (found,) = lossy_casts(world.context, world.preview().detection)
    assert (found.column, found.sampled, found.invalid_values, found.changed) == ("a", 3, 1, 0)
    assert str(found).endswith(f"t.a: 1 of 3 sampled values do not fit {found.type}, e.g. in the row with key id 2")
    assert "six" not in str(found)


def test_a_sample_is_a_sample(make_world: MakeWorld) -> None:
    world = filled(make_world)
    detection = world.preview().detection
    assert lossy_casts(world.context, detection, 0) == ()
    (found,) = lossy_casts(world.context, detection, 1)
    assert (found.sampled, found.invalid_values, str(found).endswith(f"all of 1 sampled values fit {found.type}")) == (
        1, 0, True,
    )  # fmt: skip


def test_a_hashed_key_names_no_row(make_world: MakeWorld) -> None:
    world = filled(make_world, selection=Selection(hashed=patterns(["*.t.id"])))
    found = [f for f in lossy_casts(world.context, world.preview().detection) if f.column == "a"]
    assert [(f.invalid_values, f.key) for f in found] == [(1, "")]
