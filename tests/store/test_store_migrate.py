"""Migrations: what they make is what the code declares, and a store of another version is upgraded or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from instep.errors import Conflict
from instep.store import migrations
from instep.store.admin import backup
from instep.store.engine import migrate
from instep.store.engine.database import Database
from instep.store.store import Store, utc_now
from instep.store.tables.all import metadata

OF_SQLITE = {
    "columns": "SELECT t.name, c.name, c.type, c.[notnull], c.dflt_value, c.pk, c.hidden"
    " FROM sqlite_master t, pragma_table_xinfo(t.name) c WHERE t.type = 'table'",
    "foreign keys": "SELECT t.name, f.[from], f.[table], f.[to], f.on_update, f.on_delete"
    " FROM sqlite_master t, pragma_foreign_key_list(t.name) f WHERE t.type = 'table'",
    "indexes": "SELECT t.name, i.name, i.[unique], i.origin, i.partial, c.seqno, c.name, c.[desc], c.coll"
    " FROM sqlite_master t, pragma_index_list(t.name) i, pragma_index_xinfo(i.name) c WHERE t.type = 'table'",
    "conditions": "SELECT name, sql FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL",
    "names of constraints": "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql LIKE '%CONSTRAINT%'",
    "counted": "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'",
}
OF_POSTGRESQL = {
    "columns": "SELECT a.attrelid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,"
    " pg_get_expr(d.adbin, d.adrelid), c.collname, a.attidentity, a.attgenerated FROM pg_attribute a"
    " LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
    " LEFT JOIN pg_collation c ON c.oid = a.attcollation"
    " WHERE a.attrelid IN (SELECT tablename::regclass FROM pg_tables WHERE schemaname = 'public')"
    " AND a.attnum > 0 AND NOT a.attisdropped",
    "constraints": "SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "sequences": "SELECT c.relname, d.refobjid::regclass, s.data_type, s.start_value, s.increment_by, s.cycle"
    " FROM pg_depend d JOIN pg_class c ON c.oid = d.objid JOIN pg_sequences s ON s.sequencename = c.relname"
    " WHERE d.deptype IN ('a', 'i') AND c.relkind = 'S'",
    "other objects": "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace",
}


def schema_of(connection: Connection) -> dict[str, list[tuple[str, ...]]]:
    """Return all facts of the catalog of the database, without the order of columns."""
    queries = OF_SQLITE if connection.dialect.name == "sqlite" else OF_POSTGRESQL
    found = {name: sorted(tuple(map(str, row)) for row in connection.execute(text(q))) for name, q in queries.items()}
    if connection.dialect.name == "sqlite":
        found["names of constraints"] = [
            (table, *sorted(re.findall(r"CONSTRAINT \w+ (?:PRIMARY KEY|FOREIGN KEY|UNIQUE|CHECK)[^,]*", sql)))
            for table, sql in found["names of constraints"]
        ]
    return found


@pytest.fixture
def database(any_url: str) -> Iterator[Database]:
    """A database without tables."""
    with closing(Database(any_url, utc_now)) as opened:
        yield opened


def at_version(database: Database, revision: str) -> None:
    """Bring the store to that revision, with a connection in it."""
    with database.write() as connection:
        migrate.run(connection, revision)
        row = {"name": "shop", "at": "2026-01-01 00:00:00+00:00"}
        connection.execute(text("INSERT INTO connections (name, created, updated) VALUES (:name, :at, :at)"), row)


def stamp(database: Database, revision: str) -> None:
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def test_all_migrations_in_a_row_make_what_a_new_store_has(database: Database) -> None:
    with database.write() as connection:
        migrate.create(connection)
        declared = schema_of(connection)
        tables = inspect(connection).get_table_names()
        migrate.run(connection, "base")
        migrate.run(connection, migrate.HEAD)
        assert schema_of(connection) == declared
    assert set(tables) == {*metadata.tables, "alembic_version"}
    assert all(declared.values())


def test_alembic_sees_no_difference_from_the_declared_tables(database: Database) -> None:
    with database.write() as connection:
        migrate.run(connection, migrate.HEAD)
        context = MigrationContext.configure(connection, opts={"compare_server_default": False})
        assert compare_metadata(context, metadata) == []


def test_migrations_leave_no_rows(database: Database) -> None:
    with database.write() as connection:
        migrate.run(connection, migrate.HEAD)
        for table in metadata.sorted_tables:
            assert connection.execute(table.select()).all() == []


def test_indexes_keep_their_conditions(store: Store) -> None:
    indexes = [index for table in metadata.tables.values() for index in table.indexes]
    wanted = {i.name: i.info["while"] for i in indexes if "while" in i.info}
    with store._db.read() as connection:
        query = text("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '%WHERE%'")
        made = {name: sql.partition(" WHERE ")[2] for name, sql in connection.execute(query)}
    assert made == wanted
    assert len(made) == 9


@pytest.mark.parametrize("driver", ["sqlite", "postgresql"])
def test_indexes_are_made_in_one_order(driver: str) -> None:
    """SQLAlchemy keeps them as a set; of two that look alike SQLite takes the newest, so that chance chose."""
    statements = [statement.split() for statement in migrate.create_statements(driver)]
    indexes = [" ".join(words) for words in statements if "INDEX" in words[:3]]
    assert len(indexes) > 20
    assert indexes == sorted(indexes)
    assert [" ".join(words) for words in statements[-len(indexes) :]] == indexes


def test_down_and_up_again(any_url: str, database: Database) -> None:
    Store(any_url).close()
    with database.write() as connection:
        migrate.run(connection, "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]
        migrate.run(connection, migrate.HEAD)
    with Store(any_url) as store:
        assert store.pauses.pause("c", "why")


@pytest.mark.usefixtures("later")
def test_each_goes_back_to_what_was_before_it(database: Database) -> None:
    steps = sorted(path.name[1:5] for path in Path(migrate.PLACE, "versions").glob("m*.py"))
    with database.write() as connection:
        before = {}
        for step in steps:
            migrate.run(connection, step)
            before[step] = schema_of(connection)
        for step in reversed(steps[:-1]):
            migrate.run(connection, step)
            assert schema_of(connection) == before[step]
    assert len({str(schema) for schema in before.values()}) == len(steps) >= 2


def test_a_store_of_a_former_version_is_upgraded_with_its_rows(
    any_url: str, database: Database, later: tuple[str, str]
) -> None:
    at_version(database, later[0])
    with Store(any_url) as store:
        assert store.connections.get("shop")
    with database.read() as connection:
        assert migrate.version(connection) == later[1]
        assert connection.execute(text("SELECT name, shouted FROM connections")).all() == [("shop", "SHOP")]


def test_processes_that_open_a_former_version_at_once_upgrade_it_once(
    any_url: str, database: Database, later: tuple[str, str]
) -> None:
    at_version(database, later[0])
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(lambda: Store(any_url).close()) for _ in range(4)]:
            done.result(timeout=600)
    with database.read() as connection:
        assert migrate.version(connection) == later[1]
        assert connection.execute(text("SELECT shouted FROM connections")).scalars().all() == ["SHOP"]


@pytest.mark.parametrize("step", ["create", "run"])
def test_an_upgrade_that_fails_leaves_what_was_there(
    any_url: str, database: Database, later: tuple[str, str], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    if step == "run":
        at_version(database, later[0])
    with database.read() as connection:
        before = schema_of(connection)
    real = getattr(migrate, step)

    def fail(connection: object, *target: str) -> None:
        real(connection, *target)
        raise RuntimeError("power cut")

    monkeypatch.setattr(migrate, step, fail)
    with pytest.raises(RuntimeError):
        Store(any_url)
    with database.read() as connection:
        assert schema_of(connection) == before
    monkeypatch.setattr(migrate, step, real)
    with Store(any_url) as store:
        assert store.events.last_number() == 0


def test_the_newest_is_the_head() -> None:
    folder = Path(migrations.__file__).parent / "versions"
    assert max(p.name for p in folder.glob("m*.py")).startswith(f"m{migrate.HEAD}_")


# version of the store -> who made it, the next step
REFUSED = [
    ("0999", "made by a newer instep (its version is 0999, this one knows", "update instep"),
    ("0031", "a development version of instep that cannot be upgraded (its version is 0031", "name another one"),
]


@pytest.mark.parametrize(("found", "why", "next_step"), REFUSED)
def test_a_store_of_an_unknown_version_is_refused_and_stays_as_it_is(
    any_url: str, database: Database, tmp_path: Path, found: str, why: str, next_step: str
) -> None:
    Store(any_url).close()
    stamp(database, found)
    files = sorted(tmp_path.iterdir())
    for use in (Store, lambda url: backup.upgrade(database)):
        with pytest.raises(Conflict, match=re.escape(why)) as error:
            use(any_url)
        assert next_step in error.value.hint
        assert database.place in error.value.message
    with database.read() as connection:
        assert migrate.version(connection) == found
    assert [file for file in sorted(tmp_path.iterdir()) if file.suffix == ".db"] == [
        file for file in files if file.suffix == ".db"
    ]
