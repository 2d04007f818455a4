# ruff: noqa: F401, F811 - fixtures of another file
"""PostgreSQL as a destination under odd names, texts and keys; what its types and errors are read as."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres_world import META, Warehouse, database, shared
from test_delta_laws import kinds

from instep.destinations.base import Commit, RowUpdate
from instep.destinations.postgres.connect import PostgresServerConfig, clear
from instep.destinations.postgres.shape import (
    MAX_COLUMNS,
    RESERVED,
    arrow_type,
    as_array,
    as_document,
    check_names,
    data_type,
    limits,
    sql_type,
)
from instep.destinations.sql.merge import text_literal
from instep.destinations.sql.records import LoadRecord, Parked, Record, dump, load, numbered
from instep.errors import Conflict, ConnectError, DestinationError, Fenced, InstepError, SchemaError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Array, DataType, parse
from instep.schema.changes.kinds import (
    ColumnAdded,
    ColumnComment,
    ColumnRemoved,
    ColumnRenamed,
    TableRemoved,
    TableReplaced,
)
from instep.schema.planning.step import RewriteColumn, UndropColumn, step
from instep.stage.field_metadata import VALID_JSON, WITHOUT_NUL
from lake import ID, ORDERS, REF, column, create, rows_of, stage, table
from postgres_server import Database

CONFIG = PostgresServerConfig.resolved(
    name="lake", host="db.example", database="shop", user="loader", password="s3cret"
)


TYPES: list[tuple[str, str]] = [
    ("boolean", "boolean"), ("smallint", "int16"), ("integer", "int32"), ("bigint", "int64"), ("real", "float32"),
    ("double precision", "float64"), ("numeric", "string"), ("numeric(10,2)", "decimal(10,2)"),
    ("numeric(10)", "decimal(10,0)"), ("numeric(5,-2)", "string"), ("numeric(2,5)", "string"),
    ("numeric(39,2)", "string"), ("character varying(7)", "string(7)"), ("character(3)", "string(3)"),
    ("character varying", "string"), ("text", "string"), ("name", "string"), ("bytea", "binary"), ("date", "date"),
    ("time(3) without time zone", "time"), ("timestamp(0) without time zone", "timestamp"),
    ("timestamp(6) with time zone", "timestamptz"), ("timestamp with time zone", "timestamptz"), ("uuid", "uuid"),
    ("jsonb", "json"), ("json", "json"), ("int4range", "json"), ('"char"', "json"), ("bit(3)", "json"),
    ("text[]", "array(string)"), ("numeric(5,2)[]", "array(decimal(5,2))"),
    ("character varying(7)[]", "array(string(7))"), ("timestamp(3) with time zone[]", "array(timestamptz)"),
    ("integer[][]", "array(array(int32))"), ("shop.mood", "json"), ("geometry(Point,4326)", "json"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), TYPES, ids=[c[0] for c in TYPES])
def test_a_type_of_the_server_is_read_as(text: str, kind: str) -> None:
    assert data_type(text) == parse(kind)


@settings(max_examples=50)
@given(kinds)
def test_a_type_is_stored_as_an_array_a_document_or_itself(kind: DataType) -> None:
    assert not (as_array(kind) and as_document(kind))
    stored = sql_type(kind)
    assert as_document(kind) == (stored == "json")
    assert as_array(kind) == stored.endswith("[]")
    assert "[][]" not in stored, "arrays of arrays need not be rectangular there"
    assert pa.types.is_large_list(arrow_type(kind)) == as_array(kind)
    if as_document(kind):
        assert pa.types.is_large_string(arrow_type(kind))
        assert data_type(stored) == parse("json")
    if as_array(kind) and isinstance(kind, Array):
        assert stored == f"{sql_type(kind.element)}[]"


LIMITS: list[tuple[str, dict[Any, Any]]] = [
    ("int32", {}), ("binary", {}), ("uuid", {}), ("array(int32)", {}), ("string(5)", {**WITHOUT_NUL}),
    ("array(string)", {**WITHOUT_NUL}), ("time", {**WITHOUT_NUL}), ("json", {**WITHOUT_NUL, **VALID_JSON}),
    ("array(uuid)", {}), ("array(time)", {**WITHOUT_NUL}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "wanted"), LIMITS, ids=[c[0] for c in LIMITS])
def test_tasks_are_told_what_the_server_does_not_take(kind: str, wanted: dict[Any, Any]) -> None:
    assert limits(parse(kind)) == wanted


def wide(count: int) -> Table:
    return Table("s", "t", tuple(Column(f"c{i}", parse("boolean")) for i in range(count)))


UNFIT: list[tuple[str, Table, int, str]] = [
    ("what waits counts", wide(MAX_COLUMNS), 1, "1601 columns"),
    ("a long table", Table("s", "é" * 32, ()), 0, "table .* is longer than 63 bytes"),
    *((name, Table("s", "t", (Column(name, parse("int32")),)), 0, "in every table") for name in sorted(RESERVED)),
]


@pytest.mark.parametrize(("wanted", "waiting", "text"), [c[1:] for c in UNFIT], ids=[c[0] for c in UNFIT])
def test_what_no_table_can_be_is_said_before_the_server_is_asked(wanted: Table, waiting: int, text: str) -> None:
    with pytest.raises(SchemaError, match=text) as caught:
        check_names(wanted, waiting)
    assert caught.value.hint


def test_what_just_fits_is_taken() -> None:
    check_names(wide(MAX_COLUMNS - 1), 1)
    check_names(Table("s", "x" * 63, (Column("é" * 31, parse("int32")), Column("XMIN", parse("int32")))))


SAID: list[tuple[str, str, type[InstepError], str]] = [
    ("ERROR:  canceling statement due to lock timeout\nCONTEXT:  x", "55P03", Conflict, "lock_timeout"),
    ("deadlock detected", "40P01", Conflict, "run this again"),
    ("permission denied for schema shop", "42501", DestinationError, "grant loader"),
    ("cannot execute INSERT in a read-only transaction", "25006", DestinationError, "primary"),
    ('column name "ctid" conflicts', "42701", SchemaError, "alias"),
    ("tables can have at most 1600 columns", "54011", DestinationError, "exclude"),
    ("could not extend file", "53100", DestinationError, "disk space"),
    ("sorry, too many clients already", "53300", ConnectError, "max_connections"),
    ('password authentication failed for user "loader"', "28P01", ConnectError, "user and password"),
    ('database "shop" does not exist', "3D000", ConnectError, "database (shop)"),
    ("could not translate host name", "", ConnectError, "host (db.example)"),
    ("the login was not finished within 10 s", "", ConnectError, "firewall"),
    ("server closed the connection unexpectedly", "", ConnectError, "has closed the connection"),
    ("something nobody knows", "08P01", ConnectError, "server's log"),
    ("something nobody knows", "XX000", DestinationError, "server's log"),
    ("", "", DestinationError, "server's log"),
]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (
            'ERROR:  invalid input syntax for type date: "canary"\nCONTEXT:  COPY t, column a: "canary"',
            "22P02",
        ),
        ('ERROR:  value "canary" is out of range for type integer', "22003"),
        (
            'ERROR:  duplicate key value violates constraint "k"\nDETAIL:  Key (a)=(canary) exists',
            "23505",
        ),
        ("ERROR:  no customer named 'canary'\nCONTEXT:  PL/pgSQL function f() line 3 at RAISE", "P0001"),
        ('[libpq] Execution error [PGRES_FATAL_ERROR]: ERROR:  date/time field value out of range: "canary"', ""),
    ],
)
def test_an_error_about_a_value_does_not_tell_it(text: str, state: str) -> None:
    made = clear(CONFIG, text, state)
    assert ("canary" in str(made), text.split("  ", 1)[1][:6] in made.message) == (False, True)


@pytest.mark.parametrize(("text", "state", "kind", "hint"), SAID, ids=[f"{c[1]} {c[0][:20]}" for c in SAID])
def test_what_the_server_says_has_a_next_step(text: str, state: str, kind: type[InstepError], hint: str) -> None:
    made = clear(CONFIG, f"{text} (s3cret)", state)
    assert type(made) is kind
    assert hint in made.hint
    assert made.message.startswith("loader@db.example:5432/shop: ")
    assert "s3cret" not in str(made)
    assert "\n" not in made.message


@pytest.mark.parametrize("text", ["", "it's", "''", "\\", "a\\'b", "%s %", "\n", "é\u2028"])
def test_a_literal_ends_where_it_should(text: str) -> None:
    made = text_literal(text)
    assert made[1:-1].replace("''", "'") == text
    assert made[1:-1].replace("''", "").count("'") == 0


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
NUMBERS = st.integers(0, 2**53)
LOADS = st.builds(
    LoadRecord, WORDS, NUMBERS, WORDS, WORDS, NUMBERS, NUMBERS, NUMBERS, st.booleans(),
    st.lists(WORDS, max_size=3).map(tuple),
)  # fmt: skip
RECORDS = st.builds(
    Record, st.just(ORDERS), WORDS, NUMBERS, st.dictionaries(WORDS, NUMBERS, max_size=3), NUMBERS,
    st.dictionaries(WORDS, WORDS, max_size=3), st.none() | LOADS, st.none() | st.just(replace(ORDERS, id="oid-2")),
    st.lists(st.builds(Parked, WORDS, WORDS, NUMBERS, NUMBERS, NUMBERS), max_size=3).map(tuple),
    st.lists(WORDS, max_size=3).map(tuple), st.lists(WORDS, max_size=3).map(tuple),
    st.lists(NUMBERS, max_size=3).map(tuple), NUMBERS, WORDS,
)  # fmt: skip


@settings(max_examples=40)
@given(RECORDS, NUMBERS, WORDS)
def test_a_record_is_read_back_under_its_name_of_now(record: Record, fence: int, name: str) -> None:
    text = dump(record)
    assert "\n" not in text
    assert load(record.ref, record.fence, text) == record
    moved = load(("other", name), fence, text)
    assert (moved.ref, moved.fence) == (("other", name), fence)
    assert moved.pending is None or moved.pending.ref == moved.ref
    assert json.loads(dump(replace(moved, table=record.table, pending=record.pending))) == json.loads(text)


@settings(max_examples=40)
@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=6))
def test_a_number_is_one_columns_for_ever(steps: list[set[str]]) -> None:
    """Columns come and go; one that comes again is another."""
    record, given_to = Record(ORDERS, "p"), dict[int, int]()
    since = dict[str, int]()
    for at, names in enumerate(steps):
        since = {n: since.get(n, at) for n in names}
        wanted = replace(ORDERS, columns=tuple(column(n, "int32") for n in sorted(names)))
        record = numbered(replace(record, table=wanted))
        assert set(record.numbers) == names
        for name, number in record.numbers.items():
            assert given_to.setdefault(number, hash((name, since[name]))) == hash((name, since[name]))
        assert record.next_number > max(record.numbers.values())
    assert numbered(record) == record


@settings(max_examples=40)
@given(NUMBERS, NUMBERS)
def test_only_an_earlier_run_is_fenced(held: int, own: int) -> None:
    record = replace(Record(ORDERS, "p"), fence=held)
    if own < held:
        with pytest.raises(Fenced, match=f"fence {held}, ours is {own}"):
            record.check(own)
    else:
        record.check(own)


def test_rows_that_come_later_are_counted_for_what_waits() -> None:
    record = Record(ORDERS, "p", parked=(Parked("a", "x", 1, 0, 2),))
    one = record.after_load(Commit("r1", 1, "c1", "p1"), 5, (), new=3)
    two = one.after_load(Commit("r2", 1, "c2", "p2"), 4, (), new=4, replaces_rows=True)
    assert [r.parked[0].written for r in (one, two)] == [5, 9]
    assert (two.version, two.runs) == (2, ("r1", "r2"))
    assert two.state is not None
    assert (two.state.run, two.state.cursor, two.state.rows) == ("r2", "c2", 4)
    assert replace(two, pending=ORDERS).state is None, "a replacement has no load yet"


ODD = ["100%", "%s", '"quoted"', "it's", "back\\slash", "new\nline", "select", "a b", "é", "$1", "{x}", "n", "t"]
SHELF = table(ID, *(column(name, "string") for name in ODD))


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, **{name: f"{name}{number}" for name in ODD}, **more}


def test_names_of_columns_may_be_anything(database: Database, tmp_path: Path) -> None:
    shop = Warehouse(database, tmp_path, SHELF)
    shop.append(row(1), row(2))
    assert shop.merge(row(2), row(3), {**row(1), "%s": "new"}).updated == 1
    assert rows_of(shop.to, REF, ["id", "%s", "100%"]) == [(1, "new", "100%1"), (2, "%s2", "100%2"),
                                                           (3, "%s3", "100%3")]  # fmt: skip
    shop.overwrite(row(1))
    for name in ODD:
        old = SHELF.by_name[name]
        without = replace(SHELF, columns=tuple(c for c in SHELF.columns if c is not old))
        shop.change(without, ColumnRemoved(REF, old, 1))
        shop.change(SHELF, UndropColumn(REF, old, old))
    moved = replace(SHELF, columns=(ID, *(
        replace(SHELF.by_name[a], name=b) for a, b in zip(ODD, [*ODD[1:], ODD[0]], strict=True)
    ), *SHELF.columns[-3:]))  # fmt: skip
    now = shop.to.schema.inspect([REF]).get(REF)
    assert now is not None
    shop.change(moved, *(ColumnRenamed(REF, now.by_name[c.alias or ""], c) for c in moved.columns[1:-3]))
    assert shop.rows(*ODD) == [tuple(f"{a}1" for a in [ODD[-1], *ODD[:-1]])]


TEXTS = ["it's 100% %s", "back\\slash \\n", "two\nlines", "é\u2028", '"', "$$x$$"]


def test_comments_may_be_anything(database: Database, tmp_path: Path) -> None:
    columns = tuple(column(f"c{i}", "int32", comment=text) for i, text in enumerate(TEXTS))
    wanted = table(ID, *columns, comment="".join(TEXTS))
    shop = Warehouse(database, tmp_path, wanted)
    assert shop.to.schema.inspect([REF]).get(REF) == wanted
    shop.overwrite({"id": 1})
    assert shop.to.schema.inspect([REF]).get(REF) == wanted, "the table that took its place has them too"
    bare = replace(columns[0], comment=None)
    after = replace(wanted, columns=(ID, bare, *wanted.columns[2:]), comment=None)
    shop.change(after, ColumnComment(REF, columns[0], bare))
    assert shop.to.schema.inspect([REF]).get(REF) == after


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["100%s", 'a"b', "x" * 63, "it's\\"])
def test_tables_may_be_called_anything(database: Database, tmp_path: Path, name: str) -> None:
    shop = Warehouse(database, tmp_path)
    ref = create(shop.to, replace(ORDERS, name=name, id="odd"), shop.commit())
    for commit in (Commit("a", 3), Commit("b", 3)):
        shop.to.write.overwrite(ref, [stage(shop.to, ref, [{"id": 1}])], commit)
    shop.to.write.append(ref, [stage(shop.to, ref, [{"id": 1}])], Commit("c", 3))
    shop.to.write.claim(ref, 4)
    assert shop.to.lifecycle.clones.clone_table(ref, ("shop", "copy"), Commit("k", 4)) == 2
    shop.to.lifecycle.clones.purge_clone(("shop", "copy"), 4)
    was = shop.to.schema.inspect([ref]).get(ref)
    assert was is not None
    shop.to.schema.execute(ref, [step(ref, TableRemoved(was))], None, Commit("d", 4))
    assert shop.to.schema.inspect([ref]).tables == ()
    shop.to.schema.undrop_table(ref, was, Commit("e", 4))
    assert rows_of(shop.to, ref, ["id"]) == [(1,), (1,)]


KEYED = table(column("id", "json", key=1), column("name", "string"), column("size", "int32"))


def test_rows_with_documents_for_keys_keep_what_waits(database: Database, tmp_path: Path) -> None:
    shop = Warehouse(database, tmp_path, KEYED)
    one, two = '{"a": 1}', '{"a": 2}'
    shop.append({"id": one, "name": "a"}, {"id": two, "name": "b"})
    name = KEYED.columns[1]
    shop.change(replace(KEYED, columns=tuple(c for c in KEYED.columns if c is not name)), ColumnRemoved(REF, name, 1))
    assert shop.overwrite({"id": two}, {"id": '{"a": 3}'}).inserted == 2
    assert shop.to.lifecycle.undrop_report(REF, "name").written == 1
    shop.change(KEYED, UndropColumn(REF, name, name))
    assert shop.rows("id", "name") == [(two, "b"), ('{"a": 3}', None)]
    assert shop.fill({"id": two, "size": 5}).rows == 1
    met = shop.to.write.lookup_rows(REF, pa.table({"id": pa.array([two], pa.large_string())}))
    assert met.rows.column("size").to_pylist() == [5]
    better = met.rows.set_column(2, met.rows.schema.field("size"), pa.array([6], pa.int32()))
    shop.to.write.update_rows(REF, met, RowUpdate([0], better, met.rows.slice(0, 0)), shop.commit())
    assert shop.rows("id", "size") == [(two, 6), ('{"a": 3}', None)]
    with pytest.raises(Conflict, match="moved"):
        shop.to.write.update_rows(REF, met, RowUpdate([0], better, met.rows.slice(0, 0)), shop.commit())


def test_a_replacement_takes_names_that_wait(database: Database, tmp_path: Path) -> None:
    """What the old generation keeps for an undo goes with it."""
    shop = Warehouse(database, tmp_path)
    shop.append({"id": 1, "name": "a"})
    name = ORDERS.columns[1]
    without = replace(ORDERS, columns=tuple(c for c in ORDERS.columns if c is not name))
    shop.change(without, ColumnRemoved(REF, name, 1))
    new = replace(ORDERS, id="oid-2", generation=1)
    shop.change(new, TableReplaced(without, new))
    with pytest.raises(DestinationError, match="was replaced"):
        shop.append({"id": 2})
    assert shop.overwrite({"id": 2, "name": "b"}).inserted == 1
    assert shop.to.lifecycle.undrop_report(REF, "name").why_not == ""
    assert shop.rows("id", "name") == [(2, "b")]
    assert shop.to.lifecycle.dropped(REF, ORDERS.id)


REWRITES: list[tuple[str, str, str]] = [
    ("no number", "int32", "x"), ("too big", "int16", "70000"), ("no uuid", "uuid", "1"),
    ("no day", "date", "2026-02-30"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), [c[1:] for c in REWRITES], ids=[c[0] for c in REWRITES])
def test_a_rewrite_that_would_lose_a_value_is_refused(
    database: Database, tmp_path: Path, kind: str, value: str
) -> None:
    old, new = column("v", "string"), column("v", kind)
    shop = Warehouse(database, tmp_path, table(ID, old))
    shop.append({"id": 1, "v": value}, {"id": 2, "v": None})
    with pytest.raises(SchemaError, match="do not fit"):
        shop.change(table(ID, new), RewriteColumn(REF, old, new))
    assert shop.rows("id", "v") == [(1, value), (2, None)]
    assert shop.to.schema.inspect([REF]).get(REF) == table(ID, old)
    assert shop.to.write.count_invalid_values(REF, "v", new.type).count == 1


def test_a_column_in_which_texts_that_differ_are_equal_is_refused(database: Database, tmp_path: Path) -> None:
    """The tests' server has no ICU, whose collations these are, so one of its own is said to be such."""
    shop = Warehouse(database, tmp_path)
    shop.append({"id": 1, "name": "a"})
    shop.sql('CREATE COLLATION shop.folded FROM "C"')
    shop.sql("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'folded'")
    shop.sql("ALTER TABLE shop.orders ALTER COLUMN name TYPE text COLLATE shop.folded")
    with pytest.raises(DestinationError, match="its column name has the collation folded now") as refused:
        shop.merge({"id": 1, "name": "A"})
    assert shop.rows("id", "name") == [(1, "a")]
    shop.sql(refused.value.hint.split("`")[1])
    assert shop.merge({"id": 1, "name": "A"}).updated == 1


def test_a_fill_by_keys_that_differ_and_are_equal_is_refused(database: Database, tmp_path: Path) -> None:
    """It would give the row `a` the value of `A`."""
    keyed = table(column("id", "string", key=1), column("size", "int32"))
    shop = Warehouse(database, tmp_path, keyed)
    shop.append({"id": "a", "size": None})
    shop.sql('CREATE COLLATION shop.folded FROM "C"')
    shop.sql("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'folded'")
    shop.sql("ALTER TABLE shop.orders ALTER COLUMN id TYPE text COLLATE shop.folded")
    with pytest.raises(DestinationError, match="its column id has the collation folded now"):
        shop.fill({"id": "A", "size": 5})
    assert shop.rows("id", "size") == [("a", None)]
