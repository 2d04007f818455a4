"""What a load has had of a table, and what is chosen otherwise since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import String, parse
from instep.schema.planning.projection import (
    ColumnRead,
    LoadedColumn,
    TableRead,
    deselected_columns,
    is_read_again,
    left_out,
    loaded_columns,
    reselected_columns,
)
from instep.schema.policy.policy import Policy

Now = tuple[str, str | None, bool, bool]
"""(name, id, read, hashed)"""
READ: Now = ("a", "1", True, False)
OFF: Now = ("a", "1", False, False)
HASHED: Now = ("a", "1", True, True)


def read(*columns: Now) -> TableRead:
    found = [(Column(name, String(), id=id), on, masked) for name, id, on, masked in columns]
    table = Table("s", "t", tuple(c for c, _, _ in found))
    return TableRead(table, table, tuple(ColumnRead(c, c if on else None, masked) for c, on, masked in found))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(READ, READ, [], id="as before"),
        pytest.param(READ, OFF, [], id="off"),
        pytest.param(OFF, READ, [("a", "on")], id="on again"),
        pytest.param(READ, HASHED, [("a", "hashed")], id="hashed"),
        pytest.param(HASHED, READ, [("a", "clear")], id="shown"),
        pytest.param(OFF, HASHED, [("a", "hashed")], id="on again and hashed"),
        pytest.param(OFF, ("b", "1", True, False), [("b", "on")], id="renamed, by id"),
        pytest.param(OFF, ("a", "2", True, False), [("a", "on")], id="its name on another server"),
        pytest.param(OFF, ("a", None, True, False), [("a", "on")], id="without ids, by name"),
        pytest.param(OFF, ("b", None, True, False), [], id="new"),
    ],
)
def test_turned(before: Now, after: Now, expected: list[tuple[str, str]]) -> None:
    had = (LoadedColumn(*before),)
    assert [(t.column.name, t.what) for t in reselected_columns(read(after), had)] == expected


def test_nothing_is_known_of_a_table_that_was_never_loaded() -> None:
    assert list(reselected_columns(read(HASHED), ())) == []


def test_what_is_left_out_keeps_the_values_that_it_had() -> None:
    [first] = loaded_columns(read(HASHED))
    assert first == LoadedColumn("a", "1", read=True, hashed=True, type="string")
    off = replace(read(OFF), table=Table("s", "t", (Column("id", String(), key=1), Column("a", String(), id="1"))))
    [later] = loaded_columns(off, (first,))
    assert later == LoadedColumn("a", "1", read=False, hashed=True, type="string")
    assert left_out(read(OFF), (first,)) == (later,)
    assert left_out(read(HASHED), (first,)) == (first,)
    assert [t.what for t in reselected_columns(read(READ), (later,))] == ["clear"]


def test_without_a_key_a_load_of_all_rows_keeps_none() -> None:
    [first] = loaded_columns(read(READ))
    off = replace(read(OFF), columns=(ColumnRead(Column("a", String(), id="1"), None, off=True),))
    assert deselected_columns(off, (first,)) == ("a",)
    assert loaded_columns(off, (first,), whole=False) == (replace(first, read=False),)
    after = loaded_columns(off, (first,))
    assert deselected_columns(off, after) == ()
    assert [t.what for t in reselected_columns(read(READ), after)] == ["on"]


def test_hashes_wait_for_their_type() -> None:
    """Until it is let in, values in clear stay, and are known as such."""
    column = Column("a", String(9))
    held = replace(read(READ), columns=(ColumnRead(column, column, hashed=True),))
    had = loaded_columns(held)
    assert had == (LoadedColumn("a", None, read=True, hashed=False, type="string(9)"),)
    assert [t.what for t in reselected_columns(held, had)] == ["waiting"]
    assert [t.what for t in reselected_columns(read(HASHED), had)] == ["hashed"]


@pytest.mark.parametrize("backfill", ["none", "column", "table"])
def test_is_read_again(backfill: str) -> None:
    policy, column = Policy(preset="allow_all", modifiers={"backfill": backfill}), Column("a", String())
    found = {what: is_read_again(("s", "t"), column, what, policy) for what in ("on", "hashed", "clear", "waiting")}  # type: ignore[arg-type]
    assert found == {"on": backfill != "none", "hashed": True, "clear": True, "waiting": False}


@pytest.mark.parametrize(
    ("before", "after", "again"),
    [
        (("integer", "int32"), ("bigint", "int64"), False),
        (("integer", "int32"), ("text", "string"), True),
        (("integer", "int32"), ("bigint", "int32", "int64"), True),
        (("bigint", "int64"), ("integer", "int64", "int32"), True),
        (("timestamp", "timestamp"), ("date", "timestamp", "date"), True),
        (("int(11)", "int32"), ("int", "int32"), False),
        (("bigint", "int32"), ("bigint", "int64"), True),
        (("character varying(9)", "string(9)"), ("text", "string"), False),
        (("character(9)", "string(9)"), ("text", "string"), True),
        (("interval", "string"), ("text", "string"), True),
        (("json", "json"), ("jsonb", "json"), True),
        (("", ""), ("text", "string"), False),
    ],
)
def test_another_type(before: tuple[str, str], after: tuple[str, ...], again: bool) -> None:
    """(source type, accepted type) before and after, there with the source's type as one of ours if it is another."""
    column = Column("a", parse(after[1]), native=after[0])
    now = replace(read(READ), columns=(ColumnRead(column, replace(column, type=parse(after[-1]))),))
    had = LoadedColumn("a", None, native=before[0], type=before[1])
    assert [t.what for t in reselected_columns(now, (had,))] == (["retyped"] if again else [])


def test_what_a_narrower_type_may_have_cut_waits_for_the_decision() -> None:
    """Reading it again would be the decision; what the source's type was stays on record until then."""
    source = Column("a", parse("int32"), native="integer")
    now = replace(read(READ), columns=(ColumnRead(replace(source, type=parse("int64")), source),))
    had = (LoadedColumn("a", None, native="bigint", type="int64"),)
    assert list(reselected_columns(now, had, undecided=["a"])) == []
    [as_before] = loaded_columns(now, had, whole=False, undecided=["a"])
    assert as_before.native == "bigint"
    assert [t.what for t in reselected_columns(now, (as_before,))] == ["retyped"]
    [brought] = loaded_columns(now, had, whole=True, undecided=["a"])
    assert brought.native == "integer"
