"""New columns that look personal, over real sources: held by name and by data, in clear nowhere, let in hashed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from instep.schema.selection.overrides import Switch
from instep.schema.selection.pii import Protect
from instep.schema.selection.selection import Selection, patterns
from instep.sync.context import SyncContext
from instep.sync.schema_changes.evolve import PlanPreview, evolve, preview
from instep.sync.schema_changes.selected import selected_reads
from sync_world import MakeWorld, World

SOURCES = ["postgres", "mysql", "sqlite"]
SECRET = "ann@example.org"


def context(world: World, protect: Protect | None = None) -> SyncContext:
    made: SyncContext = world.context
    return replace(made, protect=protect or Protect("on"))


def detect(world: World, protect: Protect | None = None) -> PlanPreview:
    return preview(context(world, protect), count=True, pauses=True)


def apply(world: World, protect: Protect | None = None) -> None:
    evolve(context(world, protect), detect(world, protect).plan)


def reads(world: World) -> dict[str, str]:
    made = context(world)
    found, _ = selected_reads(made, preview(made).detection)
    columns = {r.table.name: [f"{'#' * c.hashed}{c.column.name}" for c in r.columns if c.source] for r in found}
    return {name: " ".join(listed) for name, listed in columns.items()}


def held(world: World) -> dict[str, str]:
    """Column (or table) to why it is held by a `protect` rule."""
    found = world.store.reviews.find("shop", ("open",))
    return {r.column or r.table[1]: r.why.partition(": `")[0] for r in found if r.rule == "protect"}


T = "CREATE TABLE t (id int PRIMARY KEY, note varchar(200))"
FILL = "INSERT INTO t VALUES (1, 'ann@example.org')"


@pytest.mark.sampled
@pytest.mark.parametrize("kind", SOURCES)
def test_a_new_column_is_held_for_its_name_or_its_data(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run(T, *(FILL.replace("1, 'ann@example.org'", f"{n}, 'plain'") for n in range(30)))
    apply(world)
    assert reads(world) == {"t": "id note"}
    world.run(
        "ALTER TABLE t ADD COLUMN phone varchar(40)", "ALTER TABLE t ADD COLUMN x varchar(200)",
        "ALTER TABLE t ADD COLUMN y varchar(200)", "ALTER TABLE t ADD COLUMN n bigint",
        "UPDATE t SET x = 'ann@example.org', y = 'fine', n = 17 WHERE id > 20",
    )  # fmt: skip
    apply(world)
    assert held(world) == {
        "phone": "its name looks like personal data (phone)", "x": "its data looks personal (email: 9 of 9 values)",
    }  # fmt: skip
    assert reads(world) == {"t": "id note y n"}
    apply(world)
    assert set(held(world)) == {"phone", "x"}, "held until it is answered"


def test_values_are_told_nowhere(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run(T, FILL)
    detect(world)
    assert held(world) == {"note": "its data looks personal (email: 1 of 1 values)"}
    kept = (world.folder / "control.db").read_bytes()
    assert SECRET.encode() not in kept
    assert all(SECRET not in str(e.data) for e in world.store.events.after(connection="shop"))


def test_a_new_table_comes_in_without_what_looks_personal(world: World) -> None:
    world.run("CREATE TABLE people (id int PRIMARY KEY, city text, email text, at timestamp)")
    apply(world)
    assert reads(world) == {"people": "id city at"}
    assert set(held(world)) == {"email"}
    world.answer("approved", "column.added")
    apply(world)
    assert reads(world) == {"people": "id city email at"}


def test_what_was_rejected_stays_out(world: World) -> None:
    world.run("CREATE TABLE people (id int PRIMARY KEY, email text)")
    detect(world)
    world.answer("rejected", "column.added")
    apply(world)
    apply(world)
    assert reads(world) == {"people": "id"}


def test_an_approval_before_the_first_load_counts(world: World) -> None:
    world.run("CREATE TABLE people (id int PRIMARY KEY, email text)")
    detect(world)
    world.answer("approved", "column.added")
    apply(world)
    assert reads(world) == {"people": "id email"}


def test_a_table_whose_key_looks_personal_is_held_as_a_whole(world: World) -> None:
    world.run("CREATE TABLE people (email text PRIMARY KEY, city text)", T)
    apply(world)
    assert held(world) == {"people": "column email: its name looks like personal data (email)"}
    assert set(reads(world)) == {"t"}
    world.answer("approved", "table.added")
    apply(world)
    assert reads(world) == {"people": "email city", "t": "id note"}


def test_a_table_that_is_replaced_brings_nothing_personal_in(world: World) -> None:
    world.run(T)
    apply(world)
    world.run("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, note varchar(200), ssn text)")
    apply(world)
    assert held(world) == {"t": "column ssn: its name looks like personal data (national id)"}


def test_modes_exceptions_and_choices(world: World) -> None:
    world.run(T, FILL, "CREATE TABLE u (id int PRIMARY KEY, email text)")
    detect(world, Protect("off"))
    assert held(world) == {}
    detect(world, Protect("names"))
    assert set(held(world)) == {"email"}
    detect(world, Protect("on", allow=patterns(["public.u.*", "*.note"])))
    assert held(world) == {}
    world.selection = Selection(hashed=patterns(["*.email", "*.note"]))
    detect(world)
    assert held(world) == {}, "what is hashed is not in clear"
    world.selection = Selection()
    world.store.switches.set("shop", [Switch("public", "u", "email", enabled=True)], "ann")
    detect(world)
    assert set(held(world)) == {"note"}, "a person has switched it on"


def test_a_source_that_cannot_be_sampled_lets_nothing_in(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    from instep.errors import ReadError
    from instep.sources.sqlite.read import SqliteSession

    def broken(self: SqliteSession, chunk: object) -> None:
        raise ReadError("disk I/O error")

    world = make_world("sqlite")
    world.run(T, "INSERT INTO t VALUES (1, 'x')")
    monkeypatch.setattr(SqliteSession, "read", broken)
    detect(world)
    assert held(world) == {"t": "column id: its data could not be read (disk I/O error)"}


def test_approved_with_hash_it_comes_in_hashed(world: World) -> None:
    world.run("CREATE TABLE people (id int PRIMARY KEY, ssn bigint)")
    apply(world)
    assert reads(world) == {"people": "id"}
    world.store.switches.set("shop", [Switch("public", "people", "ssn", enabled=True, hashed=True)], "ann")
    world.answer("approved", "column.added")
    apply(world)
    assert reads(world) == {"people": "id #ssn"}
    assert str(world.accepted("people").by_name["ssn"].type) == "string"


RENAMES: list[tuple[str, Callable[[World], None]]] = [
    ("hashed", lambda w: setattr(w, "selection", Selection(hashed=patterns(["*.email"])))),
    ("switched off", lambda w: setattr(w, "selection", Selection(exclude_columns=patterns(["*.email"])))),
    ("hashed by command", lambda w: w.store.switches.set("shop", [Switch("main", "t", "email", hashed=True)], "ann")),
    ("switched off by command",
     lambda w: w.store.switches.set("shop", [Switch("main", "t", "email", enabled=False)], "ann")),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "choose"), RENAMES, ids=[r[0] for r in RENAMES])
def test_without_ids_a_covered_column_is_not_shown_under_another_name(
    make_world: MakeWorld, name: str, choose: Callable[[World], None]
) -> None:
    world = make_world("sqlite")
    world.run("CREATE TABLE t (id int PRIMARY KEY, email text, city text)")
    choose(world)
    world.evolve()
    world.run("ALTER TABLE t RENAME COLUMN email TO contact")
    for _ in range(3):
        world.evolve(world.detect())
    assert "contact" not in reads(world)["t"]
    [review] = [
        r for r in world.store.reviews.find("shop", ("open",)) if r.column == "contact" and r.kind == "column.added"
    ]
    assert (review.action, review.rule) == ("review", "privacy")
    assert "email is hashed or switched off" in review.why
