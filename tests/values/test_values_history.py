# ruff: noqa: S608 - the names stand in this file
"""Every type through a history: equal values make no version, and one that has ended keeps them."""

from __future__ import annotations

import pytest
from mariadb_cases import CASES as MARIADB
from postgres_cases import CASES as POSTGRES
from postgres_cases import OWN
from test_values import Connect, _statements

from instep.project.sections.tables import TableSettings

pytestmark = [pytest.mark.slow, pytest.mark.drawn(5)]

WAYS = [("postgres", kind) for kind in ("delta", "duckdb", "iceberg", "postgres")] + [("mysql", "duckdb")]


@pytest.mark.parametrize(("source", "destination"), WAYS)
def test_versions_of_every_type(connect: Connect, source: str, destination: str) -> None:
    world = connect(source, destination)
    world.settings = {"t": TableSettings(history=True)}
    create, *rows = _statements(POSTGRES if source == "postgres" else MARIADB)
    options = (
        "" if source == "postgres" else "SET STATEMENT sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00' FOR "
    )
    world.run(*(OWN if source == "postgres" else ()), create, *(options + row for row in rows))
    for statements in ((), (), ("ALTER TABLE t ADD COLUMN v int",), (f"{options}UPDATE t SET v = id",)):
        world.run(*statements)
        assert [(t.status, t.error) for t in world.sync().tables] == [("done", "")]
    names = [c.alias for c in world.accepted("t").columns if c.name != "v"]
    found = world.destination.write.read(("shop", "t")).read_all().to_pylist()
    by_key: dict[int, list[list[str]]] = {}
    for row in found:
        by_key.setdefault(row["id"], []).append([repr(row[n]) for n in names])
    assert {len(two) for two in by_key.values()} == {2}, "one version before the update and one after"
    assert [(a, b) for a, b in by_key.values() if a != b] == []
    assert sum(row["_instep_current"] for row in found) == len(rows)
    assert world.differing() == {}
