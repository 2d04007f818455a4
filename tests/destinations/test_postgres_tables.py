# ruff: noqa: F401, F811 - the tests of another file, run over the fixture of this one
"""What the steps of a plan leave on the server, as over a DuckDB file; and what others have made of our tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres_world import Warehouse, database, shared
from test_duckdb_tables import (
    AMOUNT,
    CASTS,
    LATER,
    NAME,
    REFUSED,
    WITHOUT,
    test_a_copy_stays_as_it_was_and_is_nobody_elses,
    test_a_dropped_column_keeps_its_values,
    test_a_dropped_table_returns_unless_its_name_is_taken,
    test_a_table_does_not_move_onto_another,
    test_a_table_is_added_once,
    test_a_table_moves_into_another_schema_with_what_it_keeps,
    test_of_two_dropped_columns_of_one_name_the_later_one_returns,
    test_staged_files_go_once_their_rows_are_in,
    test_what_dead_runs_left_is_removed,
    undrop_table,
)

from instep.destinations.base import Commit
from instep.destinations.postgres.dependants import INDEX, proves_unique
from instep.destinations.postgres.destination import PostgresDestination
from instep.destinations.postgres.staging import PostgresStaging
from instep.errors import Conflict, DestinationError, Fenced, IllegalChange, SchemaError, StageError
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import parse
from instep.schema.changes.kinds import (
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    ColumnWidened,
    KeyChanged,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)
from instep.schema.planning.step import RewriteColumn, step
from lake import ID, ORDERS, REF, column, create, rows_of, table
from postgres_server import Database


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Warehouse:
    made = Warehouse(database, tmp_path)
    made.append({"id": 1, "name": "a", "amount": 1}, {"id": 2, "name": "b", "amount": 2})
    return made


def oid(shop: Warehouse) -> int:
    [(found,)] = shop.sql("SELECT to_regclass('shop.orders')::oid::bigint")
    return int(found)


def indexes(shop: Warehouse) -> list[str]:
    sql = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'shop' AND indexname LIKE '%s%%'"
    return [d.partition(" INDEX ")[0] + " " + d.partition("btree ")[2] for (d,) in shop.sql(sql % INDEX)]


RIGHTS = """
SELECT grantee::regrole::text, privilege_type, is_grantable FROM pg_class, aclexplode(relacl)
WHERE oid = 'shop.orders'::regclass ORDER BY 1, 2
"""
OTHERS: list[tuple[str, str, bool]] = [
    ("nothing", "SELECT 1", True),
    ("rights", "GRANT SELECT, UPDATE ON shop.orders TO reader WITH GRANT OPTION", True),
    ("fewer rights", "REVOKE ALL ON shop.orders FROM reader", True),
    ("a view", "CREATE VIEW shop.v AS SELECT id FROM shop.orders", False),
    ("an index", "CREATE INDEX mine ON shop.orders (name)", False),
    ("a check", "ALTER TABLE shop.orders ADD CHECK (id > 0)", False),
    ("a foreign key", "CREATE UNIQUE INDEX u ON shop.orders (id); "
     "CREATE TABLE shop.x (o bigint REFERENCES shop.orders (id) DEFERRABLE INITIALLY DEFERRED)", False),
    ("row security", "ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY", False),
    ("a publication", "ALTER TABLE shop.orders REPLICA IDENTITY FULL; "
     "CREATE PUBLICATION p FOR TABLE shop.orders", False),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("statement", "swaps"), [c[1:] for c in OTHERS], ids=[c[0] for c in OTHERS])
def test_a_whole_load_keeps_what_others_made(shop: Warehouse, statement: str, swaps: bool) -> None:
    before, _ = oid(shop), shop.sql(statement)
    allowed = shop.sql(RIGHTS)
    assert shop.overwrite({"id": 2, "name": "c"}, {"id": 3, "name": "d"}).inserted == 2
    assert shop.rows("id", "name") == [(2, "c"), (3, "d")]
    assert (oid(shop) != before) == swaps
    assert shop.sql(RIGHTS) == allowed
    assert indexes(shop) == ["CREATE UNIQUE (id)"]
    assert shop.to.schema.inspect([REF]).get(REF) == ORDERS
    shop.sql("DROP PUBLICATION IF EXISTS p")


NEEDED: list[tuple[str, str, str]] = [
    ("a view", "CREATE VIEW shop.v AS SELECT name FROM shop.orders", "view shop.v"),
    ("two", "CREATE VIEW shop.v AS SELECT name FROM shop.orders; CREATE VIEW shop.w AS SELECT 1 AS a FROM shop.v, "
     "shop.orders AS o WHERE o.name = ''", "view shop.v, view shop.w"),
    ("a foreign key", "CREATE UNIQUE INDEX u ON shop.orders (name); "
     "CREATE TABLE shop.x (n text REFERENCES shop.orders (name))", "constraint x_n_fkey on table shop.x"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "told"), [c[1:] for c in NEEDED], ids=[c[0] for c in NEEDED])
def test_what_others_need_is_not_broken(shop: Warehouse, statement: str, told: str) -> None:
    shop.sql(statement)
    other = replace(ORDERS, columns=(ID, column("name", "json"), *ORDERS.columns[2:]))
    new = replace(ORDERS, id="oid-2", generation=1)
    attempts: list[Any] = [
        lambda: shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1)),
        lambda: shop.change(other, RewriteColumn(REF, NAME, other.columns[1])),
        lambda: shop.to.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, shop.commit()),
    ]
    for attempt in attempts:
        with pytest.raises(IllegalChange, match=told) as caught:
            attempt()
        assert "drop that first" in caught.value.hint
    assert shop.to.schema.inspect([REF]).get(REF) == ORDERS
    assert shop.rows("id", "name") == [(1, "a"), (2, "b")]
    renamed = replace(ORDERS, columns=(ID, column("title", "string(20)", id="#name"), *ORDERS.columns[2:]))
    shop.change(renamed, ColumnRenamed(REF, NAME, renamed.columns[1]))
    assert shop.rows("id", "title") == [(1, "a"), (2, "b")], "a view goes along with a rename"
    shop.change(new, TableReplaced(renamed, new))
    with pytest.raises(IllegalChange, match=told):
        shop.overwrite({"id": 9})
    assert shop.to.schema.state(REF) is None
    assert rows_of(shop.to, REF, ["id"]) == [(1,), (2,)]


def test_a_widened_column_of_a_view_is_refused(database: Database, tmp_path: Path) -> None:
    small, wide = column("n", "int32"), column("n", "int64")
    shop = Warehouse(database, tmp_path, table(ID, small))
    shop.sql("CREATE VIEW shop.v AS SELECT n FROM shop.orders")
    with pytest.raises(IllegalChange, match=r"type of column 'n'.*view shop\.v"):
        shop.change(table(ID, wide), ColumnWidened(REF, small, wide))
    shop.sql("DROP VIEW shop.v")
    shop.change(table(ID, wide), ColumnWidened(REF, small, wide))
    assert shop.to.schema.inspect([REF]).get(REF) == table(ID, wide)


def test_what_is_kept_goes_when_its_time_is_over(shop: Warehouse) -> None:
    shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
    other = replace(ORDERS, name="other", id="oid-other")
    create(shop.to, other, shop.commit())
    shop.to.schema.execute(other.ref, [step(other.ref, TableRemoved(other))], None, shop.commit())
    assert shop.to.lifecycle.purge_expired([REF, other.ref], shop.fence) == []
    [(place,)] = shop.sql("SELECT place FROM _instep.dropped")
    shop.sql(f'CREATE VIEW shop.late AS SELECT FROM shop."{place}"')
    time.sleep(0.01)
    late = PostgresDestination(shop.to.config.model_copy(update={"undo_days": 0}))
    with pytest.raises(Fenced):
        late.lifecycle.purge_expired([REF], shop.fence - 1)
    assert late.lifecycle.purge_expired([REF], shop.fence) == ["shop.orders.name"]
    shop.sql("DROP VIEW shop.late")
    assert late.lifecycle.purge_expired([REF], shop.fence) == ["shop.other"]
    assert shop.to.lifecycle.undrop_report(REF, "name").why_not == "column 'name' is no longer retained"
    for attempt in (lambda: undrop_table(shop), lambda: shop.to.schema.undrop_table(other.ref, other, shop.commit())):
        with pytest.raises(DestinationError, match="no longer retained"):
            attempt()


BY_HAND = [
    ("type", "ALTER TABLE shop.orders ALTER amount TYPE float8", "amount", "float64"),
    ("numeric", "ALTER TABLE shop.orders ALTER amount TYPE numeric", "amount", "string"),
    ("array", "ALTER TABLE shop.orders ADD COLUMN s numeric(5,2)[]", "s", "array(decimal(5,2))"),
    ("sized", "ALTER TABLE shop.orders ADD COLUMN s timestamp(3)", "s", "timestamp"),
    ("varchar", "ALTER TABLE shop.orders ADD COLUMN s varchar(7)", "s", "string(7)"),
    ("unknown", "ALTER TABLE shop.orders ADD COLUMN m int4range", "m", "json"),
]


@pytest.mark.parametrize(("statement", "name", "kind"), [c[1:] for c in BY_HAND], ids=[c[0] for c in BY_HAND])
def test_an_edit_by_hand_is_seen(shop: Warehouse, statement: str, name: str, kind: str) -> None:
    shop.sql(statement)
    found = shop.to.schema.inspect([REF]).get(REF)
    assert found is not None
    assert found.by_name[name].type == parse(kind)


def test_what_is_dropped_by_hand_is_seen(shop: Warehouse) -> None:
    shop.sql("ALTER TABLE shop.orders DROP name")
    assert shop.to.schema.inspect([REF]).get(REF) == WITHOUT
    shop.sql("DROP TABLE shop.orders")
    assert shop.to.schema.inspect([REF]).tables == ()


@pytest.mark.parametrize(
    "kind", ["TABLE shop.orders (a int)", "VIEW shop.orders AS SELECT 1 AS a", "SEQUENCE shop.orders"]
)
def test_what_others_made_is_left_alone(database: Database, tmp_path: Path, kind: str) -> None:
    shop = Warehouse(database, tmp_path, replace(ORDERS, name="mine", id="x"))
    shop.sql(f"CREATE {kind}")
    assert list(shop.to.schema.foreign([REF, ("shop", "mine")])) == [REF]
    for attempt in (
        lambda: shop.to.schema.inspect([REF]),
        lambda: shop.to.write.target(REF),
        lambda: shop.to.write.read(REF),
    ):
        with pytest.raises(DestinationError, match="is not ours"):
            attempt()
    with pytest.raises(Conflict, match="exists"):
        create(shop.to)
    moved = replace(ORDERS, id="x")
    renamed = step(("shop", "mine"), TableRenamed(replace(ORDERS, name="mine"), moved))
    with pytest.raises(Conflict, match="cannot be renamed"):
        shop.to.schema.execute(("shop", "mine"), [renamed], moved, shop.commit())
    assert shop.to.schema.tables() == [("shop", "mine")]


MANY = table(ID, *(column(f"c{i}", "boolean") for i in range(1_596)))
UNFIT: list[tuple[str, Table, str]] = [
    ("too many", replace(MANY, columns=(*MANY.columns, column("c", "boolean"))), "1601 columns"),
    ("a column of every table", table(ID, column("xmin", "int32")), "in every table"),
    ("a long name", table(ID, column("ü" * 32, "int32")), "longer than 63 bytes"),
    ("a reserved schema", replace(table(ID), schema="pg_mine"), "unacceptable schema name"),
]


@pytest.mark.parametrize(("wanted", "text"), [c[1:] for c in UNFIT], ids=[c[0] for c in UNFIT])
def test_what_the_server_cannot_hold_is_refused(database: Database, tmp_path: Path, wanted: Table, text: str) -> None:
    shop = Warehouse(database, tmp_path)
    with pytest.raises(SchemaError, match=text) as caught:
        create(shop.to, replace(wanted, name="odd"))
    assert caught.value.hint
    assert shop.to.schema.tables() == [REF]


@pytest.mark.slow
def test_the_widest_table_is_held(database: Database, tmp_path: Path) -> None:
    shop = Warehouse(database, tmp_path, MANY)
    shop.overwrite({"id": 1, "c0": True, "c1595": False})
    assert shop.rows("id", "c0", "c1595") == [(1, True, False)]


@pytest.mark.parametrize(
    ("changes", "after", "error", "text"), [c[1:] for c in REFUSED[2:]], ids=[c[0] for c in REFUSED[2:]]
)
def test_a_refused_change_leaves_everything(
    shop: Warehouse, changes: Any, after: Table, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        shop.change(after, *changes)
    assert shop.to.schema.inspect([REF]).get(REF) == ORDERS
    assert shop.rows("id", "name") == [(1, "a"), (2, "b")]


TEXTS = {'struct("a" int32)': ['{"a":1}', None, '{"a":null}']}


@pytest.mark.parametrize(("before", "after", "values", "expected"), CASTS, ids=[f"{c[0]} to {c[1]}" for c in CASTS])
def test_a_rewritten_column_has_the_same_values(
    database: Database, tmp_path: Path, before: str, after: str, values: list[Any], expected: list[Any]
) -> None:
    old, new = column("v", before), column("v", after)
    shop = Warehouse(database, tmp_path, table(ID, old))
    shop.append(*({"id": i, "v": v} for i, v in enumerate(TEXTS.get(before, values))))
    shop.change(table(ID, new), RewriteColumn(REF, old, new))
    wanted = TEXTS.get(before, expected)
    assert [v for _, v in shop.rows("id", "v")] == wanted
    assert shop.to.schema.inspect([REF]).get(REF) == table(ID, new)


def test_rows_that_share_a_key_are_appended(shop: Warehouse) -> None:
    assert indexes(shop) == ["CREATE UNIQUE (id)"]
    assert shop.append({"id": 1, "name": "twin"}).inserted == 1
    assert shop.rows("id", "name") == [(1, "a"), (1, "twin"), (2, "b")]
    assert indexes(shop) == ["CREATE (id)"]
    shop.overwrite({"id": 1}, {"id": 1})
    assert indexes(shop) == ["CREATE (id)"]
    shop.overwrite({"id": 1}, {"id": 2})
    assert indexes(shop) == ["CREATE UNIQUE (id)"]


def test_an_index_follows_the_key(shop: Warehouse) -> None:
    both = replace(ORDERS, columns=(ID, replace(NAME, key=2), *ORDERS.columns[2:]))
    shop.change(both, KeyChanged(REF, ("id",), ("id", "name")))
    assert indexes(shop) == ["CREATE UNIQUE (id, name)"]
    none = replace(ORDERS, columns=tuple(replace(c, key=0) for c in ORDERS.columns))
    shop.change(none, KeyChanged(REF, ("id", "name"), ()))
    assert indexes(shop) == []


LONG = [("long texts", "string", "x" * 40_000), ("documents", "json", '{"a": 1}')]


@pytest.mark.parametrize(("kind", "value"), [c[1:] for c in LONG], ids=[c[0] for c in LONG])
def test_keys_that_no_index_takes_are_merged_all_the_same(
    database: Database, tmp_path: Path, kind: str, value: str
) -> None:
    import random

    text = value if kind == "json" else "".join(random.Random(1).choices("abcdefgh0123456789", k=len(value)))
    shop = Warehouse(database, tmp_path, table(column("id", kind, key=1), column("v", "int32")))
    shop.append({"id": text, "v": 1})
    assert (shop.merge({"id": text, "v": 2}, {"id": text, "v": 3}).updated) == 1
    assert shop.rows("v") == [(3,)]
    assert indexes(shop) == []


def test_staging_tables_of_dead_attempts_are_removed(shop: Warehouse) -> None:
    server, dead = shop.to.server, shop.fence
    for commit in (Commit("r-dead", dead), Commit("r", 99)):
        PostgresStaging(server, server.known(REF, commit), commit).make("rows", {"a": "int"}, 0)
    shop.to.lifecycle.remove_uncommitted_files(REF, {"r-dead": dead})
    left = [n for (n,) in shop.sql("SELECT relname FROM pg_class WHERE relname LIKE 'rows\\_%'")]
    assert [n.split("_")[2] for n in left] == ["99"]


def test_the_steps_are_told_in_its_own_words(shop: Warehouse) -> None:
    wide = column("n", 'array(struct("a" int32))')
    after = replace(ORDERS, columns=(*ORDERS.columns, wide))
    assert shop.to.schema.render_ddl([step(REF, ColumnAdded(REF, wide, 6))]) == [
        'ALTER TABLE "shop"."orders" ADD COLUMN "n" json;'
    ]
    shop.change(after, ColumnAdded(REF, wide, 6))
    assert shop.to.schema.inspect([REF]).get(REF) == after


ANOTHER = f"CREATE UNIQUE INDEX {INDEX}x ON shop.orders"
INDEXES: list[tuple[str, str]] = [
    ("none", "SELECT 1"),
    ("one that allows for twins", f"CREATE INDEX {INDEX}x ON shop.orders (id)"),
    ("one over more columns", f"{ANOTHER} (id, name)"),
    ("one over more, of which some are only kept", f"{ANOTHER} (amount) INCLUDE (id)"),
    ("one over an expression", f"{ANOTHER} (id, lower(name))"),
    ("one of some rows", f"{ANOTHER} (id) WHERE name = 'a'"),
]


@pytest.mark.sampled
@pytest.mark.parametrize("another", [c[1] for c in INDEXES], ids=[c[0] for c in INDEXES])
def test_twins_in_the_table_are_refused_whatever_its_index(shop: Warehouse, another: str) -> None:
    assert shop.merge({"id": 1, "name": "b"}).updated == 1
    [(ours,)] = shop.sql("SELECT indexname FROM pg_indexes WHERE schemaname = 'shop' AND tablename = 'orders'")
    shop.sql(f'DROP INDEX shop."{ours}"')
    shop.sql("INSERT INTO shop.orders (id, name) VALUES (1, 'twin')")
    shop.sql(another)
    with pytest.raises(StageError, match="holds 1 keys more than once"):
        shop.merge({"id": 1, "name": "c"})
    assert sorted(shop.rows("id", "name")) == [(1, "b"), (1, "twin"), (2, "b")]


def test_twins_in_a_table_that_inherits_are_refused(shop: Warehouse) -> None:
    assert shop.merge({"id": 1, "name": "b"}).updated == 1
    shop.sql("CREATE TABLE shop.archive () INHERITS (shop.orders)")
    shop.sql("INSERT INTO shop.archive (id, name) VALUES (1, 'twin')")
    with pytest.raises(StageError, match="holds 1 keys more than once"):
        shop.merge({"id": 1, "name": "c"})
    assert sorted(shop.rows("id", "name")) == [(1, "b"), (1, "twin"), (2, "b")]
    shop.sql("TRUNCATE shop.archive")
    assert shop.merge({"id": 1, "name": "c"}).updated == 1


def test_an_index_of_a_partitioned_table_proves_it_for_its_partitions(shop: Warehouse) -> None:
    shop.sql("CREATE TABLE shop.parts (id bigint NOT NULL) PARTITION BY RANGE (id)")
    shop.sql("CREATE TABLE shop.low PARTITION OF shop.parts FOR VALUES FROM (0) TO (100)")
    shop.sql(f"CREATE UNIQUE INDEX {INDEX}p ON shop.parts (id)")
    with shop.to.server.reading() as session:
        assert proves_unique(session, '"shop"."parts"', ["id"])


KEYS: list[tuple[str, list[str], bool]] = [
    ("its key", ["id"], True), ("more than its key", ["name", "id"], True), ("another", ["name"], False),
]  # fmt: skip


@pytest.mark.parametrize(("key", "proven"), [c[1:] for c in KEYS], ids=[c[0] for c in KEYS])
def test_our_index_proves_that_there_are_no_twins(shop: Warehouse, key: list[str], proven: bool) -> None:
    with shop.to.server.reading() as session:
        assert proves_unique(session, session.name(*REF), key) is proven


@pytest.mark.parametrize("own", ["", "4"])
def test_a_merge_of_a_few_rows_does_not_read_the_whole_table(
    shop: Warehouse, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the server's own people have said what a page costs. The row versions of a larger table are not looked
    at."""
    monkeypatch.setattr("instep.destinations.postgres.session.SMALL", 0)
    shop.sql("INSERT INTO shop.orders (id, name) SELECT i, repeat('x', 200) FROM generate_series(3, 40000) AS i")
    shop.sql("ANALYZE shop.orders")
    with said(shop, "random_page_cost", own):
        merged = shop.merge(*({"id": i * 100, "name": "y"} for i in range(1, 401)), {"id": 0, "name": "new"})
    assert (merged.inserted, merged.updated) == (1, 400)
    [(searched, read)] = shop.sql("SELECT idx_scan, seq_tup_read FROM pg_stat_user_tables WHERE relname = 'orders'")
    assert (searched >= 400) == (read < 40_000) == (not own)


@contextmanager
def said(shop: Warehouse, setting: str, value: str) -> Iterator[None]:
    """A setting of the database while this lasts. Connections end at both ends: they tell what they did, then."""
    database = shop.database.config.database
    if value:
        shop.sql(f'ALTER DATABASE "{database}" SET {setting} = {value}')
    ended(shop)
    try:
        yield
    finally:
        shop.sql(f'ALTER DATABASE "{database}" RESET {setting}')
        ended(shop)


def ended(shop: Warehouse) -> None:
    shop.to.server._plain.close()
    shop.to.server._arrow.close()
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    while shop.sql(f"SELECT pg_terminate_backend(pid) {others}"):
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("how", "left"),
    [({}, 3), ({"complete": True, "deletes": "soft"}, 3), ({"complete": True, "deletes": "hard"}, 2)],
)
def test_rows_are_counted_by_what_a_commit_did(shop: Warehouse, how: dict[str, Any], left: int) -> None:
    shop.merge({"id": 2, "name": "c"}, {"id": 3, "name": "d"}, **how)
    state = shop.to.schema.state(REF)
    assert state
    assert (state.rows, len(shop.rows("id"))) == (left, left)
    shop.append({"id": 9})
    state = shop.to.schema.state(REF)
    assert state
    assert state.rows == left + 1
