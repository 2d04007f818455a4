# ruff: noqa: F401, F811 - fixtures
"""Values go to the server and come back as they were; merges in SQL equal those made row by row."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from postgres_world import Warehouse, config_of, database, shared
from test_duckdb_merge import IDS, MERGE, ROW, SHOWN, WANTED, _one_a_key, _state

from instep.destinations.base import Commit, Merge
from instep.destinations.postgres.destination import PostgresDestination
from instep.destinations.postgres.shape import arrow_type
from instep.schema.catalog.types import parse
from lake import ID, REF, column, create, rows_of, stage, stage_table, table
from memory.destination import MemoryDestination
from postgres_server import Database

DAY, MICRO = 719_162, 62_135_596_800_000_000
LAST_DAY, LAST_MICRO = 2_932_896, 253_402_300_799_999_999
HUGE = Decimal("9" * 28 + "." + "9" * 10)
EDGES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int8": [-128, 127], "int16": [-(2**15), 2**15 - 1], "int32": [-(2**31), 2**31 - 1], "int64": [-(2**63), 2**63 - 1],
    "decimal(38,10)": [HUGE, HUGE.copy_negate(), Decimal("0E-10"), Decimal("0.0000000001"), Decimal("10000.0001")],
    "decimal(38,0)": [Decimal(10**38 - 1), Decimal(-1), Decimal(10**16)],
    "decimal(5,5)": [Decimal("0.00001"), Decimal("-0.99999")],
    "float32": [float("inf"), float("-inf"), 1.1754943508222875e-38, 3.4028234663852886e38, 0.10000000149011612],
    "float64": [float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308, 0.1],
    "string": ["", " ", "\n\t\\N\\.", "é🫖\u200b", "'\"%s", "x" * 100_000],
    "string(3)": ["longer than it says"],
    "binary": [b"", b"\x00\xff\\", bytes(range(256))],
    "date": [-DAY, 0, LAST_DAY],
    "timestamp": [-MICRO, -1, LAST_MICRO], "timestamptz": [-MICRO, 0, LAST_MICRO],
    "time": ["24:00:00.000000", "00:00:00.000001"],
    "uuid": [b"\x00" * 16, b"\xff" * 16],
    "json": ['{"b" : 1, "a":2, "a":3}', "1.00", '"\\u0000 \\ud83e"', "[]", "null"],
    "array(int32)": [[], [None], [1, None, -1]],
    "array(string)": [["", None, "NULL", '"{,}"', "\\"], []],
    "array(decimal(5,2))": [[Decimal("1.50"), None]],
    "array(uuid)": [[b"\x01" * 16, None]],
    "array(timestamptz)": [[0, None, LAST_MICRO]],
    "array(boolean)": [[True, None]], "array(binary)": [[b"\x00", b"", None]], "array(float64)": [[0.5, None]],
    "array(array(int32))": ["[[1],[],null,[2,3]]"],
    'struct("a" int32)': ['{"a":1}'],
    "unknown": ["?"],
}  # fmt: skip


def values(kind: str) -> pa.Array:
    """The edge values and a NULL."""
    target, given = arrow_type(parse(kind)), [*EDGES[kind], None]
    if kind.startswith(("date", "timestamp")):
        return pa.array(given, pa.int32() if kind == "date" else pa.int64()).cast(target)
    if kind == "array(uuid)":
        plain = pa.array(given, pa.large_list(pa.binary(16)))
        inner = pa.ExtensionArray.from_storage(pa.uuid(), plain.values)
        return pa.LargeListArray.from_arrays(plain.offsets, inner, type=target, mask=plain.is_null())
    return pa.array(given, target)


def test_every_edge_value_comes_back(database: Database, tmp_path: Path) -> None:
    """All types are columns of one table; each value is read back, copied by a merge, and met by its key."""
    longest = max(len(v) for v in EDGES.values()) + 1
    shop = Warehouse(database, tmp_path, table(ID, *(column(kind, kind) for kind in EDGES)))
    schema = shop.to.write.target(REF).schema
    filled = {k: pa.concat_arrays([v := values(k), pa.nulls(longest - len(v), v.type)]) for k in EDGES}
    arrays = [
        pa.array(range(longest)) if f.name == "id" else filled.get(f.name, pa.nulls(longest, f.type)) for f in schema
    ]
    given = pa.Table.from_arrays([a.cast(f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema)
    shop.to.write.overwrite(REF, [stage_table(shop.to, REF, given)], shop.commit())
    read = shop.to.write.read(REF).read_all().sort_by("id")
    for kind in EDGES:
        assert read.column(kind).combine_chunks().equals(given.column(kind).combine_chunks()), kind
    again = shop.to.write.merge(None, REF, [stage_table(shop.to, REF, given)], Merge(("id",)), shop.commit())
    assert (again.inserted, again.updated) == (0, 0), "nothing differs from itself"
    met = shop.to.write.lookup_rows(REF, pa.table({"id": pa.array([0])}))
    assert met.rows.equals(given.slice(0, 1))


NAN = [("float32", float("nan")), ("float64", float("nan"))]


@pytest.mark.parametrize(("kind", "value"), NAN)
def test_no_number_is_one(database: Database, tmp_path: Path, kind: str, value: float) -> None:
    shop = Warehouse(database, tmp_path, table(ID, column("v", kind)))
    shop.append({"id": 1, "v": value})
    assert repr(shop.rows("v")) == "[(nan,)]"
    assert shop.merge({"id": 1, "v": value}).updated == 0


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.lists(ROW, max_size=6).map(_one_a_key),
    loads=st.lists(st.tuples(st.lists(ROW, max_size=6), MERGE, st.none() | st.sets(IDS, min_size=1)), max_size=3),
)
@example(  # a deleted row whose key is there again, with an older version
    base=[{"id": 1, "at": 3, "v": "x", "f": None}],
    loads=[
        ([], {"cursor": "", "deletes": "soft", "complete": True, "unread": ()}, None),
        (
            [{"id": 1, "at": 1, "v": "y", "f": None}],
            {"cursor": "at", "deletes": "soft", "complete": False, "unread": ()}, {1, 2},
        ),
    ],
)  # fmt: skip
def test_sql_merges_as_rows_do(
    shared: Database,
    tmp_path: Path,
    base: list[dict[str, Any]],
    loads: list[Any],
) -> None:
    shared.execute("DROP SCHEMA IF EXISTS shop, _instep CASCADE")
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    pair = (PostgresDestination(config_of(shared, folder)), MemoryDestination(folder / "m"))
    for to in pair:
        create(to, WANTED)
        to.write.overwrite(REF, [stage(to, REF, base)], Commit("base", 1))
    for fence, (rows, how, known) in enumerate(loads, 2):
        if known is not None:
            how = how | {"complete": False}
            known = known | {row["id"] for row in rows}
        told = []
        for to in pair:
            to.write.claim(REF, fence)
            keys = (stage(to, REF, [{"id": i} for i in sorted(known)], only=["id"]),) if known else ()
            files = [stage(to, REF, rows[:3]), stage(to, REF, rows[3:], chunk=1)]
            outcome = to.write.merge(
                None, REF, files, Merge(("id",), keys=keys, **how), Commit(f"r{fence}", fence, "c")
            )
            told.append((outcome, rows_of(to, REF, SHOWN), _state(to)))
        assert told[0] == told[1]
