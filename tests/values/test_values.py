"""Every type and edge value of both servers through every destination: equal to what the source prints, or held with
its original. One table has all types as columns; its rows are their values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import psycopg
import pytest
from mariadb_cases import CASES as MARIADB
from postgres_cases import BY_EXTENSION, OWN
from postgres_cases import CASES as POSTGRES
from value_cases import DESTINATIONS, Case
from value_text import found, printed, same_original

from instep.schema.catalog.types import Array, DataType
from instep.schema.planning.naming import destination_ref
from instep.sources.postgres.connect import conninfo
from postgres_server import Database
from quarantined import entries_in
from sync_world import World, counts

Connect = Callable[[str, str], World]
Shown = dict[tuple[int, int], Any]
Ask = Callable[[str], list[tuple[Any, ...]]]
_EACH = "CASE WHEN {} IS NOT NULL THEN ARRAY(SELECT e::text FROM unnest({}) e) END"
_SESSION = "SET intervalstyle = iso_8601; SET timezone = 'UTC'; SET bytea_output = hex; SET datestyle = 'ISO, YMD'"


def _statements(cases: Sequence[Case]) -> list[str]:
    """The table of these cases and its rows; values that a case has no more of are NULL."""
    columns = ", ".join(f"c{at} {case.native}" for at, case in enumerate(cases))
    rows = zip_longest(*(case.values for case in cases), fillvalue="NULL")
    made = [f"INSERT INTO t VALUES ({at}, {', '.join(row)})" for at, row in enumerate(rows)]  # noqa: S608 - from the table
    return [f"CREATE TABLE t (id int PRIMARY KEY, {columns})", *made]


def _shown(ask: Ask, world: World, cases: Sequence[Case], cast: str, place: str = "t") -> Shown:
    """(row, column) to what the server prints, NULLs left out."""
    parts, table = [], world.accepted("t")
    for at, case in enumerate(cases):
        kind, name = table.by_name[f"c{at}"].type, f"c{at}"
        if isinstance(kind, Array):
            parts.append(_EACH.replace("{}", name))
        else:
            parts.append((case.shown or cast).replace("{}", name))
    rows = ask(f"SELECT id, {', '.join(parts)} FROM {place} ORDER BY id")  # noqa: S608 - from the table
    return {(row, at): v for row, *vs in rows for at, v in enumerate(vs) if v is not None}


def _differences(world: World, cases: Sequence[Case], shown: Shown, at: str) -> list[str]:
    """Each cell that is neither equal, nor held as its case says."""
    table = world.accepted("t")
    ref = destination_ref(table, world.context.naming)
    rows = {row["id"]: row for row in world.destination.write.read(ref).read_all().to_pylist()}
    target = world.destination.write.target(ref)
    held = {(json.loads(e.key)["id"], e.column): e for e in entries_in(target.quarantine, target.io)}
    wrong = []
    for (row, number), text in shown.items():
        case, name = cases[number], f"c{number}"
        kind = table.by_name[name].type
        reason = case.reasons(at).get(row)
        value, entry = rows[row][name], held.pop((str(row), name), None)
        what = f"{case.native} {case.values[row][:60] if row < len(case.values) else '?'} ({kind})"
        if reason is None and (entry or found(kind, value) != printed(kind, text)):
            got = f"held: {entry.reason}: {entry.original}" if entry else repr(found(kind, value))
            wrong.append(f"{what}: {str(printed(kind, text))[:80]} came as {got[:120]}")
        elif reason is not None:
            wrong += _held(what, kind, reason, text, value, entry, rows[row]["_instep_meta"], name)
    return [*wrong, *(f"held, though it is NULL: {key}" for key in held)]


def _held(
    what: str, kind: DataType, reason: str, text: Any, value: Any, entry: Any, meta: str | None, name: str
) -> list[str]:  # fmt: skip
    if value is not None or entry is None:
        return [f"{what}: not held: {value!r}"]
    if reason not in entry.reason or not same_original(kind, text, entry.original):
        return [f"{what}: held as {entry.original} ({entry.reason}), not {text}"]
    noted = {c["field"] for c in json.loads(meta or '{"changes":[]}')["changes"]}
    return [] if name in noted else [f"{what}: {meta} does not say that it was nulled"]


def _missing(world: World, cases: Sequence[Case], shown: Shown) -> list[str]:
    """Values that the server does not show at all: the table of cases would not test them."""
    return [
        f"{c.native} {v}" for n, c in enumerate(cases) for at, v in enumerate(c.values) if (at, n) not in shown
    ]  # fmt: skip


def _check(world: World, cases: Sequence[Case], shown: Shown, destination: str, landing: Database) -> None:
    assert _missing(world, cases, shown) == []
    assert _differences(world, cases, shown, destination) == []
    assert world.differing() == {}
    if destination == "postgres":
        there = _shown(landing.execute, world, [replace(c, shown="") for c in cases], "{}::text", "shop.t")
        kinds = [world.accepted("t").by_name[f"c{at}"].type for at in range(len(cases))]
        texts, wanted = ({k: printed(kinds[k[1]], v) for k, v in s.items() if k in there} for s in (there, shown))
        assert texts == wanted, "as the server itself prints them"


@pytest.mark.sampled
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_postgres(connect: Connect, landing: Database, destination: str) -> None:
    world = connect("postgres", destination)
    source: Any = world.case.source()
    with psycopg.connect(conninfo(source.config), autocommit=True) as server:
        server.execute(_SESSION)
        cases = (*POSTGRES, *_extensions(server))
        world.run(*OWN, *_statements(cases))
        assert [(t.status, t.error) for t in world.sync().tables] == [("done", "")]
        shown = _shown(lambda sql: server.execute(sql.encode()).fetchall(), world, cases, "{}::text")
    _check(world, cases, shown, destination, landing)


def _extensions(server: psycopg.Connection) -> list[Case]:
    """The cases of the extensions that the server has."""
    cases = []
    for name, case in BY_EXTENSION.items():
        try:
            if name == "xml":
                server.execute("SELECT '<a/>'::xml")
            else:
                server.execute(f"CREATE EXTENSION {name}".encode())
        except psycopg.errors.FeatureNotSupported:
            continue
        cases.append(case)
    return cases


@pytest.mark.sampled
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_mariadb(connect: Connect, landing: Database, destination: str) -> None:
    world = connect("mysql", destination)
    create, *rows = _statements(MARIADB)
    options = "SET STATEMENT sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00' FOR"
    world.run(create, *(f"{options} {row}" for row in rows))
    assert [(t.status, t.error) for t in world.sync().tables] == [("done", "")]

    def ask(sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = world.case.execute(f"SET STATEMENT time_zone = '+00:00' FOR {sql}")
        return [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in found]

    shown = _shown(ask, world, MARIADB, "CAST({} AS CHAR)")
    _check(world, MARIADB, shown, destination, landing)


def test_the_page_says_what_is_held() -> None:
    """In docs/reference/types.md, with the reason that quarantine gives."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "types.md").read_text(encoding="utf-8")
    section = page.partition("## Values that are quarantined")[2].partition("\n## ")[0]
    for case in (*POSTGRES, *MARIADB):
        assert all(why in section for why in case.held.values()), case.native
        for name, held in case.held_at.items():
            shown = {"postgres": "PostgreSQL", "duckdb": "DuckDB"}[name]
            lines = [line for line in section.splitlines() if line.count(" | ") == 2 and shown in line.split(" | ")[1]]
            assert all(any(why in line for line in lines) for why in held.values()), case.native


@pytest.mark.drawn(5)
@pytest.mark.slow
@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("source", ["postgres", "mysql"])
def test_what_did_not_change_is_not_written_again(connect: Connect, source: str, destination: str) -> None:
    world = connect(source, destination)
    create, *rows = _statements(POSTGRES if source == "postgres" else MARIADB)
    before = "" if source == "postgres" else "SET STATEMENT sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00' FOR "
    world.run(*(OWN if source == "postgres" else ()), create, *(before + row for row in rows))
    first = counts(world.sync(), "t")
    assert counts(world.sync(), "t") == (len(rows), 0, 0, 0, first[4])
    world.run("UPDATE t SET c0 = NULL WHERE id = 0", "DELETE FROM t WHERE id = 1")
    assert counts(world.sync(), "t")[1:4] == (0, 1, 1)
    assert world.differing() == {}
