"""Settings of other products at work: what the detector's options do, and how long a sync relies on a detection."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from instep.errors import Blocked
from instep.project.load import load
from instep.schema.changes.version import Count
from instep.sync.context import SyncContext
from instep.sync.detection.detect import current_discovery
from instep.sync.detection.pause import reconsider
from sync_world import MakeWorld, World

FIRST = ("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "CREATE TABLE u (id int PRIMARY KEY)")
KINDS = ["postgres", "sqlite", "mysql"]
PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
connections:
  shop:
    app_options: APP
    table_options: {'*.t': TABLE}
"""


def options(world: World, app: str = "{}", table: str = "{}") -> None:
    """The world's policy and selection are those of a project file with these options."""
    world.folder.joinpath("instep.yml").write_text(PROJECT.replace("APP", app).replace("TABLE", table))
    project = load(Path(world.folder), {})
    world.policy, world.selection = project.policy("shop"), project.selection("shop")


def started(world: World) -> World:
    world.run(*FIRST)
    world.evolve()
    return world


def test_creations_are_listed_off_until_they_are_switched_on(world: World) -> None:
    options(world)
    started(world).run("CREATE TABLE v (id int PRIMARY KEY)", "ALTER TABLE t ADD COLUMN c int")
    world.evolve()
    assert world.tables().keys() == {"t", "u"}
    assert world.schema("t") == "id int32!, a int32, b int32"
    options(world, "{propagate_table_creations: true}", "{propagate_column_creations: true}")
    world.run("CREATE TABLE w (id int PRIMARY KEY)")
    world.evolve()
    assert world.tables().keys() == {"t", "u", "w"}, "what was listed off stays off, what comes now is let in"
    assert world.schema("t") == "id int32!, a int32, b int32"
    schema = world.case.schema
    world.selection = replace(world.selection, on=frozenset({f"{schema}.v", f"{schema}.t.c"}))
    world.evolve()
    assert world.tables().keys() == {"t", "u", "v", "w"}
    assert world.schema("t") == "id int32!, a int32, b int32, c int32"


def test_deletions_that_are_unsynced(world: World) -> None:
    options(world, "{auto_unsync_deleted_tables: true}", "{auto_unsync_deleted_columns: true}")
    started(world).run("DROP TABLE u", "ALTER TABLE t DROP COLUMN b")
    world.evolve()
    assert world.schema("t") == "id int32!, a int32"
    assert world.tables() == {"t": "t", "u": "u~"}, "the data of a table stays"
    assert world.rows_at(("shop", "u")) == []
    assert world.pauses() == {}


@pytest.mark.parametrize("statement", ["DROP TABLE u", "ALTER TABLE t DROP COLUMN b"])
def test_a_deletion_that_is_not_unsynced_pauses_until_a_person_resumes(make_world: MakeWorld, statement: str) -> None:
    world = make_world("sqlite")
    options(world)
    started(world).run(statement)
    world.detect()
    [reason] = world.pauses().values()
    [review] = world.store.reviews.find("shop", ("open",))
    assert review.id in reason
    assert review.rule.startswith("option ")
    back = {"u": "CREATE TABLE u (id int PRIMARY KEY)", "t": "ALTER TABLE t ADD COLUMN b int"}
    world.run(back[review.table[1]])
    reconsider(world.context)
    world.detect()
    assert list(world.pauses()) == [""], "it does not end by itself, although the source has taken it back"
    world.store.pauses.resume("shop", who="me")
    world.detect()
    assert world.pauses() == {}


def test_an_approval_does_not_resume_either(world: World) -> None:
    options(world)
    started(world).run("ALTER TABLE t DROP COLUMN b")
    world.detect()
    world.answer("approved")
    with pytest.raises(Blocked):
        world.evolve()
    world.store.pauses.resume("shop", who="me")
    world.evolve()
    assert world.schema("t") == "id int32!, a int32, b int32~"
    assert world.pauses() == {}


def test_a_detection_counts(make_world: MakeWorld) -> None:
    world = started(make_world("sqlite"))
    world.run("ALTER TABLE t ADD COLUMN c int", "CREATE TABLE v (id int PRIMARY KEY, x int)")
    found = world.detect().detection.counts
    assert found.tables == Count(new=1, updated=1, unchanged=1)
    assert found.columns == Count(new=3, unchanged=4)
    assert found.schemas == Count(updated=1)


def relying(world: World, seconds: float) -> SyncContext:
    return replace(world.context, detect_every=seconds)


def relied(context: SyncContext) -> bool:
    with context.source.snapshot() as snapshot:
        return current_discovery(context, snapshot, rely=True)[1]


# what happens at the source | whether the last look is relied on after it
MOVES: list[tuple[str, list[str], bool]] = [
    ("nothing", [], True),
    ("rows", ["INSERT INTO t (id) VALUES (1)"], True),
    ("another table comes", ["CREATE TABLE v (id int PRIMARY KEY)"], True),
    ("a column comes", ["ALTER TABLE t ADD COLUMN c int"], False),
    ("a column goes", ["ALTER TABLE t DROP COLUMN b"], False),
    ("a column is renamed", ["ALTER TABLE t RENAME COLUMN b TO bb"], False),
    ("a table goes", ["DROP TABLE u"], False),
    ("names are swapped", [f"ALTER TABLE {a} RENAME TO {b}" for a, b in (("t", "x"), ("u", "t"), ("x", "u"))], False),
]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "statements", "expected"), MOVES, ids=[m[0] for m in MOVES])
def test_a_fresh_detection_is_relied_on_while_accepted_tables_stay(
    make_world: MakeWorld, kind: str, name: str, statements: list[str], expected: bool
) -> None:
    world = started(make_world(kind))
    world.run(*statements)
    assert relied(relying(world, 3600)) == expected
    assert not relied(world.context), "without an interval every sync looks"


def test_an_old_detection_is_not_relied_on(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = started(make_world("sqlite"))
    context, now = relying(world, 60), world.store._db.now
    for seconds, expected in ((0, True), (50, True), (70, False), (-10, False)):
        monkeypatch.setattr(world.store._db, "now", lambda seconds=seconds: now() + timedelta(seconds=seconds))
        assert relied(context) == expected, seconds
    monkeypatch.setattr(world.store._db, "now", lambda: now() + timedelta(seconds=50))
    world.detect()
    monkeypatch.setattr(world.store._db, "now", lambda: now() + timedelta(seconds=70))
    assert relied(context), "counted from the last look, also if it found nothing"


def test_before_anything_is_accepted_a_sync_looks(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run(*FIRST)
    assert not relied(relying(world, 3600))
    world.detect()
    assert not relied(relying(world, 3600))


def test_access_that_was_lost_is_looked_at(make_world: MakeWorld) -> None:
    world = make_world("postgres", restricted=True)
    world.run(*FIRST)
    world.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {_reader(world)}")
    world.evolve()
    assert relied(relying(world, 3600))
    world.run(f"REVOKE SELECT ON t FROM {_reader(world)}")  # noqa: S608 - a name of the tests
    assert not relied(relying(world, 3600))


def _reader(world: World) -> str:
    source: Any = world.context.source
    return str(source.config.user)


@pytest.fixture
def by_sync(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Every sync of this world relies on the last detection for an hour."""
    made = World.context.fget
    monkeypatch.setattr(World, "context", property(lambda self: replace(made(self), detect_every=3600.0)))
    world.run(*FIRST)
    world.sync()
    return world


def test_a_sync_within_the_interval(by_sync: World) -> None:
    """New tables wait for the next look, moved ones do not, and rows are right in any case."""
    by_sync.run("CREATE TABLE v (id int PRIMARY KEY)", "INSERT INTO t VALUES (1, 2, 3)")
    by_sync.sync()
    assert (by_sync.tables().keys(), by_sync.rows("t")) == ({"t", "u"}, [(1, 2, 3)])
    by_sync.detect()
    by_sync.sync()
    assert by_sync.tables().keys() == {"t", "u", "v"}, "a detection manually always looks"
    by_sync.run("ALTER TABLE t RENAME COLUMN a TO aa", "ALTER TABLE t ADD COLUMN c int DEFAULT 7")
    by_sync.run("INSERT INTO t VALUES (2, 5, 6, 8)")
    by_sync.sync()
    assert by_sync.schema("t") == "id int32!, aa int32, b int32, c int32"
    assert by_sync.rows("t") == [(1, 2, 3, 7), (2, 5, 6, 8)]
    assert by_sync.differing() == {}


def test_a_paused_connection_stays_so_within_the_interval(by_sync: World) -> None:
    options(by_sync)
    by_sync.run("ALTER TABLE t DROP COLUMN b")
    for _ in range(2):
        with pytest.raises(Blocked):
            by_sync.sync()
    assert list(by_sync.pauses()) == [""]
