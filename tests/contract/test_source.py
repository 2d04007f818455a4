"""What every source must do, over a database of its own for each test. New sources: see sources.py."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from events.shows import shows
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import Decimal, Int, String
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange, Snapshot
from instep.stage.spec import Chunk
from sources import SOURCES, Case

NOTHING = CursorRange()
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""In one process with tests that use Spark: PySpark leaves the sockets of its calls to the garbage collector."""


def _param(kind: str) -> Any:
    """What runs in a JVM is slow."""
    return (
        pytest.param(kind, marks=[pytest.mark.slow, pytest.mark.spark, pytest.mark.drawn(3)])
        if kind.startswith("jdbc")
        else kind
    )


@pytest.fixture(params=map(_param, sorted(SOURCES)))
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with SOURCES[request.param](request) as opened:
        yield opened


@pytest.fixture
def orders(case: Case) -> Case:
    """The case with a table `orders` of three rows: 1 and 2 with a version, 3 without."""
    case.execute("CREATE TABLE orders (id bigint NOT NULL PRIMARY KEY, item varchar(40), version bigint)")
    case.execute("INSERT INTO orders VALUES (1, 'tea', 10), (2, NULL, 20), (3, 'Æ\n🫖', NULL)")
    return case


def find(case: Case, name: str, **options: Any) -> Table:
    """The table as it is discovered now."""
    found = case.source(**options).discover().catalog.get((case.schema, name))
    assert found is not None, f"{name} is not listed"
    return found


def read_all(table: Table) -> TableRead:
    """Every column of the table, accepted as it is."""
    return TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns))


def rows(snapshot: Snapshot, chunks: Sequence[Chunk]) -> list[tuple[Any, ...]]:
    """What the chunks yield, read as tasks do it: the reader pickled, one session for all."""
    reader = pickle.loads(pickle.dumps(snapshot.reader))
    with reader.open() as session:
        batches = [b for c in chunks for b in session.read(c)]
    return sorted((tuple(r) for b in batches for r in zip(*(c.to_pylist() for c in b.columns), strict=True)), key=repr)


def load(case: Case, name: str, limit: CursorRange = NOTHING, columns: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    with case.source().snapshot() as snapshot:
        read = read_all(find(case, name))
        return rows(snapshot, snapshot.chunks(read, name, limit, columns=columns))


def test_discovery_equals_what_was_created(orders: Case) -> None:
    table = find(orders, "orders")
    assert [(c.name, c.type, c.nullable, c.key) for c in table.columns] == [
        ("id", Int(64), False, 1),
        ("item", String(40), True, 0),
        ("version", Int(64), True, 0),
    ]
    assert (table.kind, table.key) == ("table", ("id",))
    assert (table.id is not None) == orders.table_ids
    assert all((c.id is not None) == orders.column_ids for c in table.columns)


def test_key_columns_keep_the_order_of_the_key(case: Case) -> None:
    case.execute("CREATE TABLE basket (line int NOT NULL, note text, item bigint NOT NULL, PRIMARY KEY (item, line))")
    assert find(case, "basket").key == ("item", "line")


def test_types_that_every_source_has(case: Case) -> None:
    case.execute("CREATE TABLE typed (a int, b decimal(12,2), c double precision, d text, e date)")
    table = find(case, "typed")
    assert table.by_name["b"].type == Decimal(12, 2)
    assert [c.native != "" for c in table.columns] == [True] * 5


def test_an_empty_database_is_an_empty_catalog(case: Case) -> None:
    found = case.source().discover()
    assert found.catalog.tables == ()
    assert found.fingerprint == case.source().fingerprint()


@shows(event=58)
def test_views_are_listed_with_their_kind(orders: Case) -> None:
    if not orders.views:
        pytest.skip("no views")
    orders.execute("CREATE VIEW cheap AS SELECT id FROM orders")
    assert find(orders, "cheap").kind == "view"
    assert load(orders, "cheap") == [(1,), (2,), (3,)]


def test_source_test_passes_on_a_good_source(orders: Case) -> None:
    checks = orders.source().test()
    assert checks
    assert [c for c in checks if c.needed and not c.ok] == []


# Fingerprints and changes

DDL = {
    "table added": "CREATE TABLE more (id int PRIMARY KEY)",
    "table dropped": "DROP TABLE other",
    "table renamed": "ALTER TABLE other RENAME TO another",
    "column added": "ALTER TABLE orders ADD COLUMN extra int",
    "column dropped": "ALTER TABLE orders DROP COLUMN item",
    "column renamed": "ALTER TABLE orders RENAME COLUMN item TO product",
    "default": "ALTER TABLE orders ADD COLUMN with_default int DEFAULT 7",
    "view": "CREATE VIEW seen AS SELECT id FROM orders",
}


@pytest.mark.sampled
@pytest.mark.parametrize("sql", DDL.values(), ids=DDL)
def test_fingerprint_tells_each_change(orders: Case, sql: str) -> None:
    if "VIEW" in sql and not orders.views:
        pytest.skip("no views")
    orders.execute("CREATE TABLE other (id int NOT NULL PRIMARY KEY)")
    source = orders.source()
    before = source.discover()
    assert source.fingerprint() == before.fingerprint == source.fingerprint()
    orders.execute(sql)
    after = source.discover()
    assert source.fingerprint() == after.fingerprint != before.fingerprint
    assert after.catalog != before.catalog


def test_rows_do_not_change_the_fingerprint(orders: Case) -> None:
    before = orders.source().fingerprint()
    orders.execute("INSERT INTO orders VALUES (4, 'cup', 30)")
    orders.execute("DELETE FROM orders WHERE id = 1")
    assert orders.source().fingerprint() == before


def _ids(case: Case, name: str) -> dict[str, str | None]:
    return {c.name: c.id for c in find(case, name).columns}


@shows(event=(44, 45, 46))
def test_column_ids_follow_renames_swaps_and_chains(orders: Case) -> None:
    if not orders.column_ids:
        pytest.skip("no column ids")
    before = _ids(orders, "orders")
    for old, new in (("item", "parked"), ("version", "item"), ("parked", "version")):
        orders.execute(f"ALTER TABLE orders RENAME COLUMN {old} TO {new}")
    after = _ids(orders, "orders")
    assert (after["version"], after["item"]) == (before["item"], before["version"])
    orders.execute("ALTER TABLE orders RENAME COLUMN item TO amount")
    assert _ids(orders, "orders")["amount"] == before["version"]


@shows(event=43)
def test_a_column_added_again_has_another_id(orders: Case) -> None:
    if not orders.column_ids:
        pytest.skip("no column ids")
    before = _ids(orders, "orders")
    orders.execute("ALTER TABLE orders DROP COLUMN item")
    assert "item" not in _ids(orders, "orders")
    orders.execute("ALTER TABLE orders ADD COLUMN item int")
    assert _ids(orders, "orders")["item"] not in before.values()
    assert load(orders, "orders") == [(1, 10, None), (2, 20, None), (3, None, None)]


@shows(event=(49, 50))
def test_table_ids_follow_swaps_and_mark_replacements(orders: Case) -> None:
    if not orders.table_ids:
        pytest.skip("no table ids")
    orders.execute("CREATE TABLE other (id int NOT NULL PRIMARY KEY)")
    first, second = find(orders, "orders").id, find(orders, "other").id
    for old, new in (("orders", "parked"), ("other", "orders"), ("parked", "other")):
        orders.execute(f"ALTER TABLE {old} RENAME TO {new}")
    assert (find(orders, "orders").id, find(orders, "other").id) == (second, first)
    orders.execute("DROP TABLE orders")
    orders.execute("CREATE TABLE orders (id int NOT NULL PRIMARY KEY)")
    assert find(orders, "orders").id not in (first, second)


def test_ids_come_with_the_identity_they_hold_in(orders: Case) -> None:
    first, second = orders.source().discover(), orders.source().discover()
    assert first.identity == second.identity
    assert bool(first.identity) == orders.table_ids


def test_comments_are_read_and_counted_as_changes(orders: Case) -> None:
    if not orders.comments:
        pytest.skip("no comments")
    before = orders.source().fingerprint()
    orders.execute("COMMENT ON TABLE orders IS 'what was bought'")
    orders.execute("COMMENT ON COLUMN orders.item IS 'it''s'")
    table = find(orders, "orders")
    assert (table.comment, table.by_name["item"].comment) == ("what was bought", "it's")
    assert orders.source().fingerprint() != before


# Names and patterns

AWKWARD = (
    'quote"d', "it's", "dotted.name", "select", "Sp ace", "back\\slash", "back`tick", "per%cent_", "naïve", "🫖 emoji",
    "semi;colon--", "{brace}", "$1", "%s", ":colon",
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names_are_listed_and_read(case: Case, name: str) -> None:
    quoted = case.quote(name)
    case.execute(f"CREATE TABLE {quoted} (id bigint NOT NULL PRIMARY KEY, {quoted} int)")
    case.execute(f"INSERT INTO {quoted} VALUES (1, 5)")  # noqa: S608 - quoted
    assert [c.name for c in find(case, name).columns] == ["id", name]
    assert load(case, name) == [(1, 5)]
    assert load(case, name, CursorRange(name, "5", "5")) == [(1, 5)]
    assert load(case, name, CursorRange(name, "6", None)) == []


def test_names_of_full_length(case: Case) -> None:
    name = "é" * (case.name_bytes // 2) + "x"
    case.execute(f"CREATE TABLE {case.quote(name)} (id int NOT NULL PRIMARY KEY)")
    assert load(case, name) == []


def test_case_twins_are_two_tables(case: Case) -> None:
    if not case.case_sensitive:
        pytest.skip("names differ by more than case")
    for number, name in enumerate(("Twin", "twin", "TWIN")):
        case.execute(f"CREATE TABLE {case.quote(name)} (id int NOT NULL PRIMARY KEY)")
        case.execute(f"INSERT INTO {case.quote(name)} VALUES ({number})")  # noqa: S608 - quoted
    assert [load(case, n) for n in ("Twin", "twin", "TWIN")] == [[(0,)], [(1,)], [(2,)]]


PATTERNS = [
    ("all by default", (), (), {"orders", "order_lines", "stock"}),
    ("exact", ("{s}.orders",), (), {"orders"}),
    ("glob", ("{s}.order*",), (), {"orders", "order_lines"}),
    ("one character", ("{s}.order?",), (), {"orders"}),
    ("an underscore is itself", ("{s}.order_lines", "{s}.order_"), (), {"order_lines"}),
    ("class", ("{s}.[os]*k",), (), {"stock"}),
    ("a name without its schema", ("stock",), (), {"stock"}),
    ("excluded", (), ("{s}.order*",), {"stock"}),
    ("exclude wins", ("{s}.*",), ("{s}.stock",), {"orders", "order_lines"}),
    ("nothing", ("{s}.absent",), (), set()),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("include", "exclude", "expected"), [p[1:] for p in PATTERNS], ids=[p[0] for p in PATTERNS])
def test_patterns(case: Case, include: Sequence[str], exclude: Sequence[str], expected: set[str]) -> None:
    for name in ("orders", "order_lines", "stock"):
        case.execute(f"CREATE TABLE {name} (id int NOT NULL PRIMARY KEY)")
    chosen = [tuple(p.replace("{s}", case.schema) for p in patterns) for patterns in (include, exclude)]
    source = case.source(include=chosen[0], exclude=chosen[1])
    found = source.discover()
    assert {t.name for t in found.catalog.tables} == expected
    assert source.fingerprint() == found.fingerprint


# Reading


def test_null_and_awkward_values_arrive_as_they_are(orders: Case) -> None:
    assert load(orders, "orders") == [(1, "tea", 10), (2, None, 20), (3, "Æ\n🫖", None)]


def test_an_empty_table_has_no_rows_and_no_bounds(case: Case) -> None:
    case.execute("CREATE TABLE empty (id bigint NOT NULL PRIMARY KEY)")
    with case.source().snapshot() as snapshot:
        read = read_all(find(case, "empty"))
        assert rows(snapshot, snapshot.chunks(read, "k", NOTHING)) == []
        assert snapshot.count(read) == 0
        assert snapshot.cursor_bounds(read, "id", None, 0)[1].upper is None


def test_key_only_reads_have_the_key_alone(orders: Case) -> None:
    assert load(orders, "orders", columns=("id",)) == [(1,), (2,), (3,)]


def test_a_column_without_a_source_is_not_in_the_query(orders: Case) -> None:
    with orders.source().snapshot() as snapshot:
        table = find(orders, "orders")
        identifier, item, version = table.columns
        columns = (ColumnRead(version, version), ColumnRead(item, None), ColumnRead(identifier, identifier))
        read = TableRead(table, table, columns)
        assert set(snapshot.query_types(read)) == {"version", "id"}
        found = rows(snapshot, snapshot.chunks(read, "k", NOTHING))
    assert sorted(found, key=lambda r: r[1]) == [(10, 1), (20, 2), (None, 3)]


def test_a_renamed_column_is_read_under_its_accepted_name(orders: Case) -> None:
    accepted = find(orders, "orders")
    orders.execute("ALTER TABLE orders RENAME COLUMN item TO product")
    with orders.source().snapshot() as snapshot:
        now = find(orders, "orders")
        read = TableRead(accepted, now, tuple(map(ColumnRead, accepted.columns, now.columns)))
        assert set(snapshot.query_types(read)) == {"id", "item", "version"}
        assert len(rows(snapshot, snapshot.chunks(read, "k", NOTHING, columns=("id", "item")))[0]) == 2


def test_rows_committed_later_are_not_read(orders: Case) -> None:
    if not orders.isolates:
        pytest.skip("no isolation from later commits")
    with orders.source().snapshot() as snapshot:
        read = read_all(find(orders, "orders"))
        chunks = snapshot.chunks(read, "k", NOTHING)
        orders.execute("INSERT INTO orders VALUES (4, 'late', 40)")
        orders.execute("DELETE FROM orders WHERE id = 1")
        assert [r[0] for r in rows(snapshot, chunks)] == [1, 2, 3]
        assert snapshot.count(read) == 3
        assert snapshot.cursor_bounds(read, "version", None, 0)[1].upper == "20"
    assert len(load(orders, "orders")) == 3


def test_chunks_name_their_table_and_number(orders: Case) -> None:
    with orders.source().snapshot() as snapshot:
        chunks = snapshot.chunks(read_all(find(orders, "orders")), "my key", NOTHING)
    assert {c.table for c in chunks} == {"my key"}
    assert len({c.number for c in chunks}) == len(chunks)


RANGES = [(None, None, {1, 2, 3}), ("10", "10", {1}), (None, "20", {1, 2}), ("11", None, {2}), ("21", "99", set())]


@pytest.mark.sampled
@pytest.mark.parametrize(("lower", "upper", "expected"), RANGES)
def test_cursor_ranges_include_both_ends_and_no_nulls(
    orders: Case, lower: str | None, upper: str | None, expected: set[int]
) -> None:
    assert {r[0] for r in load(orders, "orders", CursorRange("version", lower, upper))} == expected


BOUNDS = [(None, 0, None), ("10", 0, "10"), ("10", 5, "5"), ("10", 15, "-5")]


@pytest.mark.sampled
@pytest.mark.parametrize(("after", "lookback", "lower"), BOUNDS)
def test_cursor_bounds(orders: Case, after: str | None, lookback: float, lower: str | None) -> None:
    with orders.source().snapshot() as snapshot:
        start, bounds = snapshot.cursor_bounds(read_all(find(orders, "orders")), "version", after, lookback)
    assert (start, bounds.upper, bounds.nulls) == (lower, "20", 1)


def test_a_bound_cannot_be_sql(orders: Case) -> None:
    orders.execute("CREATE TABLE notes (id int NOT NULL PRIMARY KEY, version varchar(40))")
    orders.execute("INSERT INTO notes VALUES (1, 'a')")
    assert load(orders, "notes", CursorRange("version", "z' OR '1'='1", None)) == []
    assert load(orders, "notes", CursorRange("version", "\\' OR 1=1 -- ", None)) == [(1, "a")]


# What moves, what is refused


def test_moved_names_the_tables_whose_schema_changed(orders: Case) -> None:
    orders.execute("CREATE TABLE other (id int NOT NULL PRIMARY KEY)")
    orders.execute("CREATE TABLE third (id int NOT NULL PRIMARY KEY)")
    with orders.source().snapshot() as snapshot:
        catalog = snapshot.discover().catalog
        assert snapshot.changed_tables(catalog) == frozenset()
        altered = replace(catalog.by_ref[orders.schema, "orders"], comment="not so")
        gone = replace(catalog.by_ref[orders.schema, "other"], name="gone")
        expected = catalog.put(altered).put(gone)
        assert snapshot.changed_tables(expected) == {(orders.schema, "orders"), (orders.schema, "gone")}


@shows(event=62)
def test_moved_sees_a_change_made_during_the_snapshot(orders: Case) -> None:
    if not orders.isolates:
        pytest.skip("no change can be made during the snapshot")
    orders.execute("CREATE TABLE other (id int NOT NULL PRIMARY KEY)")
    with orders.source().snapshot() as snapshot:
        catalog = snapshot.discover().catalog
        orders.execute("ALTER TABLE orders ADD COLUMN extra int")
        orders.execute("DROP TABLE other")
        assert snapshot.changed_tables(catalog) == {(orders.schema, "orders"), (orders.schema, "other")}


@shows(trap=16, event=64)
def test_a_denied_table_is_named_and_proves_nothing(orders: Case) -> None:
    if orders.deny is None:
        pytest.skip("no privileges")
    orders.execute("CREATE TABLE other (id int NOT NULL PRIMARY KEY)")
    before = orders.source(restricted=True).discover()
    assert before.denied == {}
    orders.deny("orders")
    found = orders.source(restricted=True).discover()
    assert set(found.denied) == {(orders.schema, "orders")}
    assert (orders.schema, "other") in found.catalog.by_ref
    assert not found.proves_absence
    assert found.fingerprint != before.fingerprint
    failed = [c for c in orders.source(restricted=True).test() if c.needed and not c.ok]
    assert any("orders" in c.detail and "GRANT" in c.hint for c in failed)
