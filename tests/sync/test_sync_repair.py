"""`repair` makes a damaged table equal to its source, and writes no row that was not damaged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from into_world import world_into

from instep.errors import Blocked
from instep.project.sections.tables import TableSettings
from instep.schema.planning.naming import destination_ref
from instep.sync.operations.repair import prepare, repair
from repair_world import Content, content, double, put, remove
from sync_world import MakeWorld, World

DESTINATIONS = ("iceberg", "delta", "duckdb", "postgres")
INTO = pytest.mark.parametrize("into", DESTINATIONS)


@dataclass(frozen=True)
class Keyed:
    """A table with a key of some type, and values that make 40 keys of numbers."""

    columns: str
    key: str
    values: str


TYPES = (
    "n int, amount numeric(12,3), at timestamptz, day date, ok boolean, doc jsonb, tags text[], raw bytea, note text"
)
VALUES = (
    "i, i * 1.125, timestamptz '2026-01-01Z' + i * interval '1 hour', date '2026-01-01' + i, i % 2 = 0, "
    "jsonb_build_object('i', i), array['a', i::text], decode(lpad(to_hex(i), 4, '0'), 'hex'), "
    "nullif('note ' || i, 'note 7')"
)
WIDE = ", ".join(f"w{at} text" for at in range(60))
KEYS = {
    "number": Keyed("id int", "id", "i"),
    "large numbers far apart": Keyed("id bigint", "id", "i::bigint * 1000000007"),
    "two columns": Keyed("a int, b text", "a, b", "i % 3, 'b' || i"),
    "text": Keyed("id text", "id", "'ä ' || i"),
    "uuid": Keyed("id uuid", "id", "md5(i::text)::uuid"),
    "time and number": Keyed(
        "a timestamptz, b numeric(10,2)", "a, b", "timestamptz '2026-01-01Z' + i * interval '1 us', i + 0.25"
    ),
    "bytes, date and boolean": Keyed(
        "a bytea, b date, c boolean", "c, b, a", "decode(lpad(to_hex(i), 4, '0'), 'hex'), date '2026-01-01', true"
    ),
}


def create(world: World, keyed: Keyed = KEYS["number"], more: str = "") -> None:
    """A table of 40 rows, loaded."""
    wide = f", {more}" if more else ""
    world.run(
        f"CREATE TABLE t ({keyed.columns}, {TYPES}{wide}, PRIMARY KEY ({keyed.key}))",
        f"INSERT INTO t SELECT {keyed.values}, {VALUES} FROM generate_series(1, 40) i",  # noqa: S608 - ours
    )
    world.sync()


def fixed(world: World, *allow: str) -> Any:
    return repair(world.context, world.accepted("t").path, allow, engine=world.rows_by)


def extra(row: dict[str, Any], keyed: Keyed) -> dict[str, Any]:
    """A row with a key that the source does not have."""
    name = keyed.key.partition(", ")[0] if keyed.key != "c, b, a" else "c"
    value = row[name]
    if isinstance(value, bool):
        return {**row, name: not value}
    if isinstance(value, int):
        return {**row, name: value + 1_000_000}
    if hasattr(value, "tzinfo"):
        return {**row, name: value + timedelta(days=700)}
    if hasattr(value, "hex") and hasattr(value, "int"):
        return {**row, name: type(value)(int=value.int ^ 1)}
    return {**row, name: f"{value[:-12]}{row['n']:012}" if len(str(value)) == 36 else f"{value} x"}


def damaged(world: World, keyed: Keyed) -> None:
    """Two rows go, one changes, one loses a value, one is marked as deleted, two come."""
    remove(world, lambda row: row["n"] in (3, 38))
    put(world, lambda row: {**row, "note": "wrong"}, lambda row: row["n"] == 20)
    put(world, lambda row: {**row, "amount": None}, lambda row: row["n"] == 21)
    remove(world, lambda row: row["n"] == 22, deletes="soft")
    put(world, lambda row: extra(row, keyed), lambda row: row["n"] in (5, 6))


def check_law(world: World, before: Content, damaged: set[Any]) -> None:
    """The table is as it was loaded, and rows that were not damaged were not written."""
    after = content(world)
    assert after.rows == before.rows
    assert after.doubled == 0
    written = {dict(after.rows[k])["n"] for k in after.rows if after.written[k] != before.written[k]}
    assert written == damaged


@pytest.mark.sampled
@INTO
@pytest.mark.parametrize("key", KEYS)
def test_damaged_rows_are_corrected_and_no_others(
    make_world: MakeWorld, request: pytest.FixtureRequest, into: str, key: str
) -> None:
    world = world_into(make_world, request, "postgres", into)
    create(world, KEYS[key])
    before = content(world)
    assert len(before.rows) == 40
    damaged(world, KEYS[key])
    made = prepare(world.context, world.accepted("t").path)
    found = made.document()
    assert (found["missing"], found["differing"], found["extra"]) == (3, 2, 2)
    done = fixed(world, "*.t")
    assert done.verdict.equal, done.verdict
    check_law(world, before, {3, 38, 20, 21, 22})


@pytest.mark.sampled
@pytest.mark.parametrize("into", ["iceberg", "delta", "duckdb"])
def test_rows_that_share_a_key_are_left_to_a_whole_read(
    make_world: MakeWorld, request: pytest.FixtureRequest, into: str
) -> None:
    world = world_into(make_world, request, "postgres", into)
    create(world)
    double(world, lambda row: row["n"] in (4, 9))
    before = content(world)
    for call in (lambda: prepare(world.context, "public.t"), lambda: fixed(world, "*")):
        with pytest.raises(Blocked, match=r"public\.t cannot be repaired: 4 rows share their key") as told:
            call()
        assert "instep backfill public.t" in told.value.hint
    assert content(world) == before


@INTO
def test_only_rows_that_came_are_removed(make_world: MakeWorld, request: pytest.FixtureRequest, into: str) -> None:
    world = world_into(make_world, request, "postgres", into)
    create(world)
    before = content(world)
    put(world, lambda row: {**row, "id": row["id"] + 100}, lambda row: row["n"] < 4)
    done = fixed(world, "*.t")
    assert (done.inserted, done.updated, done.deleted, done.verdict.equal) == (0, 0, 3, True)
    check_law(world, before, set())


@INTO
def test_a_wide_table_with_rows_far_apart(make_world: MakeWorld, request: pytest.FixtureRequest, into: str) -> None:
    world = world_into(make_world, request, "postgres", into)
    create(world, KEYS["large numbers far apart"], WIDE)
    before = content(world)
    put(world, lambda row: {**row, "w59": "x"}, lambda row: row["n"] in (1, 40))
    made = prepare(world.context, world.accepted("t").path)
    assert made.reads == 2
    assert fixed(world).verdict.equal
    check_law(world, before, {1, 40})


def state(world: World) -> Any:
    """What a sync goes on from."""
    ref = destination_ref(world.accepted("t"), world.context.naming)
    found = world.destination.schema.state(ref)
    assert found is not None
    return found.cursor, found.accepted, world.store.cursors.of("shop"), world.store.accepted.latest("shop")


FULL = TableSettings(mode="full_refresh")
BY_CURSOR = TableSettings(cursor="n")
MODES = {
    "whole compare": TableSettings(),
    "hard deletes": TableSettings(deletes="hard"),
    "cursor": BY_CURSOR,
    "cursor, hard deletes": TableSettings(cursor="n", deletes="hard"),
    "full refresh": FULL,
}


@pytest.mark.sampled
@INTO
@pytest.mark.parametrize("mode", MODES)
def test_nothing_but_rows_changes(make_world: MakeWorld, request: pytest.FixtureRequest, into: str, mode: str) -> None:
    """Whatever the mode, and the next sync goes on from where the last one came to."""
    world = world_into(make_world, request, "postgres", into)
    world.settings["t"] = MODES[mode]
    create(world)
    before, then = content(world), state(world)
    damaged(world, KEYS["number"])
    world.run("UPDATE t SET note = 'new' WHERE id = 30", "DELETE FROM t WHERE id = 31")
    done = fixed(world, "public.*")
    assert done.verdict.equal, done.verdict
    assert state(world) == then
    after = content(world)
    assert {dict(r)["n"]: dict(r)["note"] for r in after.rows.values()} == dict(source(world))
    unwritten = {k for k in after.rows if after.written[k] == before.written.get(k)}
    assert {dict(after.rows[k])["n"] for k in after.rows if k not in unwritten} == {3, 38, 20, 21, 22, 30}
    world.run("UPDATE t SET note = 'last', n = 100 WHERE id = 12", "DELETE FROM t WHERE id = 13")
    world.sync()
    assert {dict(r)["n"]: dict(r)["note"] for r in content(world).rows.values()} == dict(source(world))


def source(world: World) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = world.case.execute("SELECT n, note FROM t")
    return found
