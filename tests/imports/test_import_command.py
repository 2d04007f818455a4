"""The commands: a configuration is imported, and its connection replicates a real database."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from import_world import DUCK, ORDERS, PG, airbyte, connection, destination, source

from command_runs import Said, run
from instep.bootstrap import open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import RunScope, sync
from postgres_server import Database

TABLES = """
    create table orders (id int primary key, email text, region text, note text, updated_at timestamptz not null);
    insert into orders values
        (1, 'ann@example.com', 'EU', 'x', '2026-01-01'), (2, 'bo@example.com', 'US', 'y', '2026-01-02'),
        (3, 'cy@example.com', 'EU', 'z', '2026-01-03');
    create table scratch (id int primary key);
"""
MAPPERS = [
    {"type": "hashing", "mapperConfiguration": {"targetField": "email"}},
    {"type": "field-filtering", "mapperConfiguration": {"targetField": "note"}},
    {"type": "field-renaming", "mapperConfiguration": {"originalFieldName": "region", "newFieldName": "market"}},
    {
        "type": "row-filtering",
        "mapperConfiguration": {"conditions": {"type": "EQUAL", "fieldName": "region", "comparisonValue": "EU"}},
    },
]


def ok(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> Said:
    said = run(capsys, "--project", str(folder), *words)
    assert said.code == 0, said
    return said


def rows(capsys: pytest.CaptureFixture[str], folder: Path, sql: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = ok(capsys, folder, "query", sql, "--output", "json").json["rows"]
    return found


def synced(folder: Path) -> None:
    with open_project(folder) as app:
        assert sync(app.sync_context("shop_to_lake"), RunScope(), engine=LocalEngine(threads=1)).status == "done"


@pytest.mark.parametrize("changes", ["ignore", "disable_connection", "propagate_columns", "propagate_fully"])
def test_an_imported_connection_replicates(
    changes: str, tmp_path: Path, postgres: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres.execute(TABLES)
    c = postgres.config
    where = {"host": c.host, "port": c.port, "database": c.database, "username": c.user}
    export = tmp_path / "export.json"
    stream = {**ORDERS, "mappers": MAPPERS}
    export.write_text(
        json.dumps(
            airbyte(
                source({**PG, **where, "ssl_mode": {"mode": "disable"}}),
                destination({**DUCK, "schema": "raw"}),
                connection(stream, prefix="pg_", nonBreakingSchemaUpdatesBehavior=changes),
            )
        )
    )
    folder = tmp_path / "project"
    shown = ok(capsys, folder, "import", "airbyte", str(export))
    assert "imported from Airbyte: 1 source, 1 destination, 1 connection" in shown.out
    assert "set AIRBYTE_SOURCE_SHOP_PASSWORD: password of source shop (masked in the export)" in shown.out
    folder.joinpath(".env").write_text(f"AIRBYTE_SOURCE_SHOP_PASSWORD={c.password}\nINSTEP_SALT=a long random text\n")
    ok(capsys, folder, "validate")
    synced(folder)
    found = rows(capsys, folder, "select * from raw.pg_orders order by id")
    assert [(row["id"], row["market"]) for row in found] == [(1, "EU"), (3, "EU")]
    assert all(len(str(row["email"])) == 64 for row in found)
    assert not {"note", "region"} & set(found[0])
    postgres.execute("update orders set updated_at = now() where id = 3; insert into orders values "
                     "(4, 'di@example.com', 'EU', null, now())")  # fmt: skip
    synced(folder)
    assert [row["id"] for row in rows(capsys, folder, "select id from raw.pg_orders order by id")] == [1, 3, 4]
    with duckdb.connect(folder / "lake.duckdb", read_only=True) as lake:
        tables = lake.execute("select table_name from duckdb_tables() where schema_name = 'raw'").fetchall()
    assert tables == [("pg_orders",)], "what was not selected is not read"


def test_a_dry_run_shows_the_project_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = tmp_path / "export.json"
    export.write_text(json.dumps(airbyte(source({**PG, "password": "canary-4711"}))))
    shown = run(capsys, "--project", str(tmp_path), "import", "airbyte", str(export), "--dry-run", "--output", "json")
    assert shown.json["written"] == []
    assert shown.json["connections"] == ["shop_to_lake"]
    assert "type: postgres" in shown.json["project"]
    assert "nothing was written" in shown.err
    plain = run(capsys, "--project", str(tmp_path), "import", "airbyte", str(export), "--dry-run")
    assert shown.json["project"] in plain.out, "line by line, as it would be in the file"
    assert "would write" in plain.out
    assert "in clear in" in plain.out
    assert "canary" not in shown.out + shown.err + plain.out + plain.err
    assert list(tmp_path.iterdir()) == [export]
