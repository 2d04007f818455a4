"""PostgreSQL's types and edge values by way of a JDBC driver: each arrives as the server prints it, or is held with its
original. What has a form of its own in the source for PostgreSQL is the server's text here."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from postgres_cases import CASES, OWN
from test_values import _statements
from value_text import found, printed

from contract.sources import SOURCES
from instep.schema.catalog.types import DataType
from instep.schema.planning.naming import destination_ref
from instep.sources.postgres.connect import conninfo
from jdbc_world import session
from postgres_server import Database
from quarantined import entries_in
from sync_world import World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
OTHERWISE = {
    "money": "{}::text",
    "bpchar": "CASE WHEN {} = '' THEN '' ELSE rpad({}::text, 3) END",
    "character(4)": "rpad({}::text, 4)",
    "inet": "abbrev({})",
}
"""How the driver prints what `::text` writes in another way."""
_SESSION = "SET timezone = 'UTC'; SET bytea_output = hex; SET datestyle = 'ISO, YMD'"


def test_every_value_is_equal_or_held(request: pytest.FixtureRequest, postgres: Database, tmp_path: Path) -> None:
    with (
        SOURCES["jdbc-postgres"](request) as case,
        psycopg.connect(conninfo(postgres.config), autocommit=True) as server,
    ):
        world = World(case, tmp_path, session, engine="spark")
        server.execute(_SESSION)
        world.run(*OWN, *_statements(CASES))
        assert [(t.status, t.error) for t in world.sync().tables] == [("done", "")]
        wrong = _wrong(world, server)
        assert wrong == []
        assert world.differing() == {}
        world.close()


def _wrong(world: World, server: psycopg.Connection) -> list[str]:
    shown = [_shown(case.native).replace("{}", f"c{n}") for n, case in enumerate(CASES)]
    query = f"SELECT id, {', '.join(shown)} FROM t ORDER BY id"  # noqa: S608 - from the table
    rows = server.execute(query.encode()).fetchall()
    table = world.accepted("t")
    ref = destination_ref(table, world.context.naming)
    there = {row["id"]: row for row in world.destination.write.read(ref).read_all().to_pylist()}
    target = world.destination.write.target(ref)
    held = {(json.loads(e.key)["id"], e.column): e for e in entries_in(target.quarantine, target.io)}
    kinds = [table.by_name[f"c{n}"].type for n in range(len(CASES))]
    cells = [(row, n, text) for row, *texts in rows for n, text in enumerate(texts)]
    wrong = []
    for row, n, text in cells:
        entry, value = held.pop((str(row), f"c{n}"), None), there[row][f"c{n}"]
        fine = entry.original == text and value is None if entry else _equal(kinds[n], value, text)
        if not fine:
            wrong.append(f"{CASES[n].native}: {text!r} came as {entry or value!r}")
    return [*wrong, *map(str, held)]


def _shown(native: str) -> str:
    return OTHERWISE.get(native, "{}::text")


def _equal(kind: DataType, value: object, text: str | None) -> bool:
    return bool(found(kind, value) == printed(kind, text))
