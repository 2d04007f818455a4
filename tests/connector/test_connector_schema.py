"""What schema() may declare, and what is refused with which words."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from sdk_world import World, types

from instep.errors import ReadError
from instep.sources.connector.child import answer
from instep.sources.connector.dialect import SdkDialect
from instep.sources.connector.sdk.fivetran_connector_sdk.declared import tables_of

ALL = {
    "a": "BOOLEAN", "b": "short", "c": "Int", "d": "LONG", "e": {"type": "DECIMAL", "precision": 15, "scale": 2},
    "f": "FLOAT", "g": "DOUBLE", "h": "NAIVE_DATE", "i": "NAIVE_DATETIME", "j": "UTC_DATETIME", "k": "BINARY",
    "l": "XML", "m": "STRING", "n": "JSON",
}  # fmt: skip
KINDS = ["boolean", "int16", "int32", "int64", "decimal(15,2)", "float32", "float64", "date", "timestamp",
         "timestamptz", "binary", "string", "string", "json"]  # fmt: skip
REFUSED = [
    ("no list", {"table": "t"}, "list of tables"),
    ("no table", [{"primary_key": ["id"]}], "without `table`"),
    ("an empty table name", [{"table": ""}], "not a text"),
    ("a table twice", [{"table": "t"}, {"table": "t"}], "declares table t twice"),
    ("a table twice in one schema", [{"table": "t", "schema": "s"}, {"table": "t", "schema": "s"}], "table s.t twice"),
    ("an unknown type", [{"table": "t", "columns": {"c": "INTEGER"}}], "table t, column c: 'INTEGER' is not a type"),
    ("a time", [{"table": "t", "columns": {"c": "NAIVE_TIME"}}], "not a type"),
    ("a bare decimal", [{"table": "t", "columns": {"c": "DECIMAL"}}], "'precision': 12"),
    ("another type as a dict", [{"table": "t", "columns": {"c": {"type": "STRING"}}}], "only DECIMAL"),
    ("no scale", [{"table": "t", "columns": {"c": {"type": "DECIMAL", "precision": 5}}}], "needs `precision` and"),
    ("too precise", [{"table": "t", "columns": {"c": {"type": "DECIMAL", "precision": 39, "scale": 0}}}], "1 to 38"),
    ("scale beyond it", [{"table": "t", "columns": {"c": {"type": "DECIMAL", "precision": 3, "scale": 4}}}], "scale"),
    ("a key that is a text", [{"table": "t", "primary_key": "id"}], "has to be a list"),
    ("a key twice", [{"table": "t", "primary_key": ["id", "id"]}], "names a column twice"),
    ("an empty column", [{"table": "t", "columns": {"": "INT"}}], "cannot be named ''"),
    ("a column of ours", [{"table": "t", "columns": {"__seq": "INT"}}], "cannot be named '__seq'"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "why"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(said: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        tables_of(said)


def test_a_column_name_that_is_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="7 is not a text"):
        tables_of([{"table": "t", "columns": {7: "INT"}}])


def test_unknown_keys_are_ignored_and_columns_may_be_missing() -> None:
    (table,) = tables_of([{"table": "t", "comment": "x", "columns": None, "primary_key": ["id"]}]).values()
    assert (table.name, table.key, dict(table.types)) == ("t", ("id",), {})


def test_declared_tables_are_there_without_a_row(world: World) -> None:
    sync = world.sync(f"""
        def schema(configuration):
            return [{{"table": "all", "primary_key": ["a", "z"], "columns": {ALL!r}}}, {{"table": "t", "schema": "s"}}]
        def update(configuration, state):
            pass
    """)
    assert sync.error is None
    (segment,) = sync.segments
    assert (segment.ends, segment.state, [t.name for t in segment.tables]) == (True, None, ["all", "t"])
    table = segment.table("all")
    assert types(table) == dict(zip(["a", "z", *"bcdefghijklmn"], [KINDS[0], "unknown", *KINDS[1:]], strict=True))
    assert table is not None
    assert [c.name for c in table.columns if c.key] == ["a", "z"]
    assert [c.name for c in table.columns if not c.declared] == ["z"]
    assert segment.table("t", "s") is not None


def test_values_of_every_declared_type_arrive(world: World) -> None:
    row = {
        "a": True, "b": 15, "c": "7", "d": 2**62, "e": "105.34", "f": 10.5, "g": 1e-4, "h": "2007-12-03",
        "i": "2007-12-03T10:15:30", "j": "2007-12-03T10:15:30.123+01:00", "k": b"\x00\x01", "l": "<a/>", "m": 5,
        "n": {"a": [10, None]}, "z": 1,
    }  # fmt: skip
    sync = world.sync(f"""
        def schema(configuration):
            return [{{"table": "all", "primary_key": ["z"], "columns": {ALL!r}}}]
        def update(configuration, state):
            op.upsert("all", {row!r})
            op.upsert("all", {{**dict.fromkeys({list(ALL)!r}), "z": 2}})
    """)
    assert sync.error is None
    first, second = sync.records("all")
    assert first == {
        **row, "c": 7, "e": Decimal("105.34"), "h": date(2007, 12, 3), "i": datetime(2007, 12, 3, 10, 15, 30),
        "j": datetime(2007, 12, 3, 9, 15, 30, 123_000, tzinfo=UTC), "m": "5", "n": '{"a":[10,null]}',
    }  # fmt: skip
    assert second == {**dict.fromkeys(row), "z": 2}


def test_the_schema_alone(world: World) -> None:
    code = """
        def schema(configuration):
            return [{"table": configuration["name"], "primary_key": ["id"], "columns": {"id": "LONG"}}]
        def update(configuration, state):
            raise AssertionError
    """
    config = world.config(code, configuration={"name": "given"})
    assert answer(SdkDialect(config), "schema", print) == [
        {"schema": "", "table": "given", "key": ["id"], "columns": {"id": "int64"}, "declared": True}
    ]
    with pytest.raises(ReadError, match="KeyError"):
        answer(SdkDialect(world.config(code)), "schema", print)


def test_what_is_wrong_ends_the_sync_before_update(world: World) -> None:
    sync = world.sync("""
        def schema(configuration):
            return [{"table": "t", "columns": {"c": "INTEGER"}}]
        def update(configuration, state):
            log.info("was here")
    """)
    assert "table t, column c" in str(sync.error)
    assert "was here" not in sync.said
    assert sync.segments == []
