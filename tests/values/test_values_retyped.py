"""Columns whose type becomes another one, from every type to every other, with values at the edges of all: what arrives
is equal, documented text, or held with its original, whether the new type waits or was approved.

Every run takes a part of the pairs, in which each type is the old one once and the new one once; `INSTEP_FULL=1` takes
all of them. One table has the columns that begin with one type, one row a value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from retyped_cases import OWN, POOL, TYPES, Pairs, all_pairs, some_pairs
from retyped_oracle import arrives, is_text_of
from value_cases import DESTINATIONS

import samples
from instep.schema.catalog.types import DataType
from instep.schema.planning.naming import destination_ref
from instep.sources.postgres.connect import conninfo
from quarantined import entries_in
from sync_world import World, preset

Connect = Callable[[str, str], World]
NEW_ROWS = 1000
_SESSION = "SET intervalstyle = iso_8601; SET timezone = 'UTC'; SET bytea_output = hex; SET datestyle = 'ISO, YMD'"
_EACH = "CASE WHEN {} IS NOT NULL THEN ARRAY(SELECT e::text FROM unnest({}) e) END"
_SHOWN = {"money": "{}::numeric::text", "character(4)": "rpad({}::text, 4)"}
_LOOKUP = (
    "CREATE SCHEMA lookup",
    "CREATE TABLE lookup.pool (id int, kind text, literal text)",
    """CREATE FUNCTION is_valid(literal text, kind text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN EXECUTE format('SELECT %L::%s', literal, kind); RETURN true; EXCEPTION WHEN OTHERS THEN RETURN false; END $$""",
    """CREATE FUNCTION literal_of(row_id int, wanted text) RETURNS text LANGUAGE sql STABLE AS $$
SELECT literal FROM lookup.pool WHERE id = row_id % 1000 AND kind = wanted $$""",
)


class Matrix:
    """The tables of some pairs at the source: `t3.c5` begins with the type number 3 and becomes the one number 5."""

    def __init__(self, world: World, server: psycopg.Connection, pairs: Pairs) -> None:
        self.world, self.server, self.pairs = world, server, pairs
        self.retyped = False

    def create(self) -> None:
        for statement in (*OWN, *_LOOKUP):
            self.ask(statement)
        with self.server.cursor() as cursor:
            values = [(at, kind, literal) for at, literal in enumerate(POOL) for kind in TYPES]
            cursor.executemany("INSERT INTO lookup.pool VALUES (%s, %s, %s)", values)
        self.ask("DELETE FROM lookup.pool WHERE NOT is_valid(literal, kind)")
        self.ask("CREATE INDEX ON lookup.pool (kind, id)")
        for old, news in self.pairs.items():
            columns = ", ".join(f"{_column(new)} {old}" for new in news)
            self.ask(f"CREATE TABLE {_table(old)} (id int PRIMARY KEY, {columns})")
        self.add(0)

    def add(self, first: int) -> None:
        """A row for each literal of the pool, with it in each column whose type takes it."""
        for old, news in self.pairs.items():
            values = ", ".join(
                f"literal_of(n, '{new if self.retyped else old}')::{new if self.retyped else old}" for new in news
            )
            rows = f"generate_series({first}, {first + len(POOL) - 1}) n"
            self.ask(f"INSERT INTO {_table(old)} SELECT n, {values} FROM {rows}")  # noqa: S608 - from the table

    def retype(self) -> None:
        for old, news in self.pairs.items():
            parts = (f"ALTER {_column(new)} TYPE {new} USING literal_of(id, '{new}')::{new}" for new in news)
            self.ask(f"ALTER TABLE {_table(old)} {', '.join(parts)}")
        self.retyped = True

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        found = self.server.execute(sql.encode())
        return found.fetchall() if found.description else []

    def sync(self) -> None:
        report = self.world.sync()
        assert {t.table[1]: t.error for t in report.tables if t.status != "done"} == {}

    def wrong(self) -> Iterator[str]:
        """Each cell that is neither the source's value, nor its documented text, nor held with its original."""
        for old, news in self.pairs.items():
            yield from self._wrong(_table(old), old, news)

    def _wrong(self, name: str, old: str, news: tuple[str, ...]) -> Iterator[str]:
        table = self.world.accepted(name)
        ref = destination_ref(table, self.world.context.naming)
        [stored] = self.world.destination.schema.inspect([ref]).tables
        rows = {r["id"]: r for r in self.world.destination.write.read(ref).read_all().to_pylist()}
        target = self.world.destination.write.target(ref)
        held: dict[tuple[int, str], list[str]] = {}
        for entry in entries_in(target.quarantine, target.io):
            held.setdefault((int(json.loads(entry.key)["id"]), entry.column), []).append(entry.original or "")
        shown = [_shown(new if self.retyped else old, _column(new)) for new in news]
        for id, *texts in self.ask(f"SELECT id, {', '.join(shown)} FROM {name}"):  # noqa: S608 - from the table
            for new, text in zip(news, texts, strict=True):
                native, column = new if self.retyped else old, _column(new)
                kind, value, originals = stored.by_name[column].type, rows[id][column], held.get((id, column), [])
                if not _is_right(native, text, kind, value, originals):
                    got = repr(value) if value is not None else f"NULL, held: {originals}"
                    yield f"{old} to {native} ({kind}): {str(text)[:60]!r} came as {got[:100]}"


def _is_right(native: str, text: Any, kind: DataType, value: Any, originals: list[str]) -> bool:
    if text is None or value is None:
        return value is None and (text is None or any(is_text_of(native, text, o) for o in originals))
    return arrives(native, text, kind, value)


def _table(kind: str) -> str:
    return f"t{TYPES.index(kind)}"


def _column(kind: str) -> str:
    return f"c{TYPES.index(kind)}"


def _shown(kind: str, name: str) -> str:
    return (_EACH if kind.endswith("[]") else _SHOWN.get(kind, "{}::text")).replace("{}", name)


@pytest.mark.sampled
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_every_value_is_equal_or_text_or_held(connect: Connect, destination: str) -> None:
    world = connect("postgres", destination)
    at = DESTINATIONS.index(destination)
    pairs = all_pairs() if samples.FULL else some_pairs(15, at, len(DESTINATIONS))
    source: Any = world.case.source()
    world.include = (f"{world.case.schema}.*",)
    with psycopg.connect(conninfo(source.config), autocommit=True) as server:
        server.execute(_SESSION)
        matrix = Matrix(world, server, pairs)
        matrix.create()
        matrix.sync()
        found = {"first": [*matrix.wrong()]}
        world.policy = preset("approve")
        matrix.retype()
        matrix.sync()
        found["held"] = [*matrix.wrong()]
        world.answer("approved")
        matrix.sync()
        found["approved"] = [*matrix.wrong()]
        matrix.add(NEW_ROWS)
        matrix.sync()
        found["new rows"] = [*matrix.wrong()]
        matrix.sync()
        found["again"] = [*matrix.wrong()]
    wrong = [f"{look}: {line}" for look, lines in found.items() for line in lines]
    assert not wrong, "\n".join([f"{len(wrong):,} values", *wrong[:2000]])
    still_asked = world.store.reviews.find("shop", ["open"])
    assert {r.rule for r in still_asked} <= {"destination"}, "old rows are in the way"
