"""What goes over every table of the store: a new one is in backups, and somebody has said what becomes of its rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, Boolean, Column, Connection, Float, String, Table, func, insert, inspect, select
from store_world import START, Clock

from instep.errors import Blocked
from instep.store.admin.backup import dump, restore
from instep.store.catalogs.connections import OUTLIVING
from instep.store.engine import migrate
from instep.store.engine.database import Database
from instep.store.store import Store, utc_now
from instep.store.tables import all
from instep.store.tables.all import metadata
from instep.store.tables.columns import Redacted

GOES = {
    "accepted", "backfills", "comments", "connector_held", "connector_states", "connector_versions", "copies",
    "cursors", "destination_names", "detectors", "discoveries", "fresh_tables", "loaded_columns", "looks", "mappings",
    "old_names",
    "pauses", "plans", "quarantine_counts",
    "reviews", "runs", "schedules", "schemas", "setups", "switches", "table_choices", "undos", "watermarks",
}  # fmt: skip
"""Tables whose rows go with their connection."""


def value(column: Column[Any]) -> Any:
    """One of its type; all texts are the same, so that each row refers to the others."""
    if isinstance(column.type, JSON):
        return {"é\u2028": [None, 1.5, True]}
    if isinstance(column.type, Boolean | Float):
        return True if isinstance(column.type, Boolean) else 0.25
    if isinstance(column.type, String | Redacted):
        return "c"
    return START if "DATETIME" in str(column.type) or "TIMESTAMP" in str(column.type) else 2**31 - 1


def numbered(table: Table) -> bool:
    return bool(table.dialect_options["sqlite"]["autoincrement"])


def fill(connection: Connection, tables: Sequence[Table] = metadata.sorted_tables) -> None:
    for table in tables:
        columns = [c for c in table.columns if not (numbered(table) and c.name == "number")]
        connection.execute(insert(table).values({c.name: value(c) for c in columns}))


def rows(transaction: Connection, **where: str) -> dict[str, int]:
    """The number of rows of each table that has some."""
    counts = {}
    for table in metadata.sorted_tables:
        if set(where) <= set(table.c.keys()):
            query = select(func.count()).select_from(table).where(*(table.c[k] == v for k, v in where.items()))
            counts[table.name] = transaction.execute(query).scalar() or 0
    return {name: count for name, count in counts.items() if count}


def test_every_module_of_tables_is_known() -> None:
    folder = Path(all.__file__).parent
    named = {module.__name__.rpartition(".")[2] for module in all.MODULES}
    assert named | {"__init__", "all", "columns"} == {path.stem for path in folder.glob("*.py")}


@pytest.mark.sampled
@pytest.mark.parametrize("module", ["admin.prune", "admin.backup", "catalogs.connections"])
def test_all_tables_are_known_whatever_is_loaded_first(module: str) -> None:
    tables = "from instep.store.tables.columns import metadata; print(*sorted(metadata.tables))"
    code = f"import instep.store.{module}; {tables}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(metadata.tables)


def test_a_backup_holds_all_tables_and_goes_both_ways(any_url: str, tmp_path: Path) -> None:
    places = [f"sqlite:///{tmp_path}/first.db", any_url, f"sqlite:///{tmp_path}/last.db"]
    first, middle, last = (Database(place, utc_now) for place in places)
    with closing(first), closing(middle), closing(last):
        migrate.upgrade(first)
        with first.write() as connection:
            fill(connection)
        assert restore(middle, dump(first)) == {table.name: 1 for table in metadata.sorted_tables}
        with middle.write() as connection:
            assert set(inspect(connection).get_table_names()) == {*metadata.tables, "alembic_version"}
        restore(last, dump(middle))
        assert rest(last) == rest(first)


def rest(database: Database) -> list[str]:
    """The lines but for the first, which has the time, and the digest."""
    _, *lines, end = dump(database)
    return [*lines, json.dumps(json.loads(end)["end"])]


def test_numbers_are_not_given_out_again_after_the_way_to_a_server(any_url: str, tmp_path: Path) -> None:
    first, second = Database(f"sqlite:///{tmp_path}/first.db", utc_now), Database(any_url, utc_now)
    with closing(first), closing(second):
        migrate.upgrade(first)
        counted = [table for table in metadata.sorted_tables if numbered(table)]
        with first.write() as connection:
            fill(connection)
            for table in counted:
                connection.execute(table.delete())
        restore(second, dump(first))
        with second.write() as connection:
            fill(connection, counted)
            assert {connection.execute(select(table.c.number)).scalar() for table in counted} == {2}
        assert len(counted) >= 3


@pytest.fixture
def filled(any_store: Store) -> Store:
    with any_store._db.write() as connection:
        fill(connection)
    return any_store


def test_what_goes_with_a_connection_and_what_outlives_it(filled: Store) -> None:
    mentions = {table.name for table in metadata.sorted_tables if "connection" in table.c}
    assert mentions - OUTLIVING == GOES
    gone = filled.connections.forget("c")
    assert set(gone) == GOES | {"steps", "table_runs"}
    with filled._db.read() as transaction:
        assert set(rows(transaction, connection="c")) == OUTLIVING
        assert set(rows(transaction)) == set(metadata.tables) - set(gone)


def test_what_waits_for_a_connection_that_is_gone_is_cancelled(any_store: Store) -> None:
    waits, _ = any_store.jobs.enqueue("c", "sync")
    other, _ = any_store.jobs.enqueue("d", "sync")
    runs, _ = any_store.jobs.enqueue("c", "test_connection", priority=100)
    assert any_store.jobs.claim("w") is not None
    any_store.connections.forget("c")
    assert any_store.jobs.get(waits.id).status == "cancelled"
    assert any_store.jobs.get(waits.id).error == "connection c was deleted"
    assert any_store.jobs.get(waits.id).ended is not None
    assert [any_store.jobs.get(job.id).status for job in (other, runs)] == ["queued", "running"]


def test_a_job_under_way_is_not_replaced(store: Store, clock: Clock) -> None:
    lines = list(dump(store._db))
    store.jobs.enqueue("c", "sync")
    assert store.jobs.claim("w") is not None
    with pytest.raises(Blocked, match="has jobs under way"):
        restore(store._db, lines, replace=True)
    clock.forward(3600)
    restore(store._db, lines, replace=True)
    assert store.jobs.find() == []
