"""Messages of the log as bytes, and what is made of them, without a server."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import ReadError
from instep.sources.postgres.wal.wire import (
    UNCHANGED,
    Message,
    Truncate,
    Value,
    VisibleTransactions,
    WalBegin,
    WalChange,
    WalCommit,
    WalKeys,
    WalRelation,
    WireColumn,
    collect,
    decode,
)


def tuple_data(values: tuple[Value, ...]) -> bytes:
    out = pack(">H", len(values))
    for value in values:
        if value is None:
            out += b"n"
        elif isinstance(value, bytes):
            out += b"t" + pack(">I", len(value)) + value
        else:
            out += b"u"
    return out


CASES = [
    ("begin", b"B" + pack(">qqI", 99, 1, 7), WalBegin(7, 99)),
    ("commit", b"C" + pack(">Bqqq", 0, 99, 120, 1), WalCommit(120)),
    ("relation", b"R" + pack(">I", 5) + b"s\0t\xc3\xbc\0d" + pack(">H", 2) + b"\1id\0" + pack(">Ii", 23, -1)
     + b"\0v\0" + pack(">Ii", 25, -1),
     WalRelation(5, "s", "tü", (WireColumn("id", True, 23), WireColumn("v", False, 25)))),
    ("insert", b"I" + pack(">I", 5) + b"N" + tuple_data((b"1", None)), WalChange(5, None, (b"1", None))),
    ("update", b"U" + pack(">I", 5) + b"N" + tuple_data((b"1", UNCHANGED)), WalChange(5, None, (b"1", UNCHANGED))),
    ("update of a key", b"U" + pack(">I", 5) + b"K" + tuple_data((b"1", None)) + b"N" + tuple_data((b"2", b"")),
     WalChange(5, (b"1", None), (b"2", b""))),
    ("update, whole old row", b"U" + pack(">I", 5) + b"O" + tuple_data((b"1",)) + b"N" + tuple_data((b"2",)),
     WalChange(5, (b"1",), (b"2",))),
    ("delete", b"D" + pack(">I", 5) + b"K" + tuple_data((b"1", None)), WalChange(5, (b"1", None), None)),
    ("truncate", b"T" + pack(">IB", 2, 1) + pack(">II", 5, 6), Truncate((5, 6))),
    ("origin", b"O" + pack(">q", 1) + b"x\0", None),
    ("type", b"Y" + pack(">I", 600) + b"s\0mood\0", None),
]  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_messages(data: bytes, expected: object) -> None:
    assert decode(data) == expected


def test_an_unknown_message_is_no_silent_loss() -> None:
    with pytest.raises(ReadError, match="b'Z'"):
        decode(b"Z123")


@given(st.lists(st.lists(st.none() | st.binary(max_size=20) | st.just(UNCHANGED), max_size=5), min_size=1, max_size=3))
def test_every_row_is_read_as_it_was_written(rows: list[list[Value]]) -> None:
    for row in rows:
        found = decode(b"I" + pack(">I", 1) + b"N" + tuple_data(tuple(row)))
        assert isinstance(found, WalChange)
        assert found.new == (tuple(row) if row else ())


SEEN = [
    ("10:20:", 9, True), ("10:20:", 19, True), ("10:20:", 20, False), ("10:20:12,15", 12, False),
    ("10:20:12,15", 13, True), (f"{2**32 + 10}:{2**32 + 20}:", 2**32 - 5, True),
    (f"{2**32 + 10}:{2**32 + 20}:{2**32 + 12}", 12, False), (f"{2**32 - 9}:{2**32 - 3}:", 4, False),
]  # fmt: skip


@pytest.mark.parametrize(("snapshot", "xid", "shown"), SEEN)
def test_what_a_snapshot_shows(snapshot: str, xid: int, shown: bool) -> None:
    assert VisibleTransactions.of(snapshot).shows(xid % 2**32) == shown


ALL = VisibleTransactions.of("100:100:")
NOW = {"id": 23, "v": 25}
WIRE = WalRelation(5, "s", "t", (WireColumn("id", True, 23), WireColumn("v", False, 25)))


def table(limit: int = 10, columns: dict[str, int] = NOW) -> WalKeys:
    return WalKeys(("id",), columns, limit)


def new(key: bytes | None) -> WalChange:
    return WalChange(5, None, (key, b"v"))


KEYS: list[tuple[str, list[object], dict[str, int], set[str], str]] = [
    ("each key once", [WIRE, new(b"1"), new(b"2"), new(b"1")], NOW, {"1", "2"}, ""),
    ("old and new", [WIRE, WalChange(5, (b"1", None), (b"2", b"v"))], NOW, {"1", "2"}, ""),
    ("a key stored out of line", [WIRE, WalChange(5, (b"1", None), (UNCHANGED, b"v"))], NOW, {"1"}, ""),
    ("one that was not logged", [WIRE, WalChange(5, None, (UNCHANGED, b"v"))], NOW, set(), "without its key"),
    ("no key", [WIRE, new(None)], NOW, set(), "without its key"),
    ("truncated", [WIRE, new(b"1"), Truncate((4, 5)), new(b"2")], NOW, set(), "truncated"),
    ("too many", [WIRE, *(new(b"%d" % i) for i in range(11))], NOW, set(), "more than 10"),
    ("of another table", [WIRE, WalChange(6, None, (b"1",))], NOW, set(), ""),
    ("the key had another type", [WIRE, new(b"1")], {"id": 20, "v": 25}, set(), "altered"),
    ("the key had another name", [WIRE, new(b"1")], {"key": 23, "v": 25}, set(), "altered"),
    ("names were swapped", [WIRE, new(b"1")], {"v": 23, "id": 23}, set(), "altered"),
    ("other columns came and went", [WIRE, new(b"1")], {"id": 23, "w": 25}, {"1"}, ""),
]


@pytest.mark.parametrize(("messages", "columns", "keys", "whole"), [c[1:] for c in KEYS], ids=[c[0] for c in KEYS])
def test_keys(messages: list[object], columns: dict[str, int], keys: set[str], whole: str) -> None:
    found = table(columns=columns)
    collect([WalBegin(1), *messages, WalCommit(9)], {5: found}, ALL)  # type: ignore[list-item]
    assert {k for (k,) in found.keys} == keys
    assert whole in found.whole
    assert bool(whole) == bool(found.whole)


def test_the_reach_ends_before_what_the_snapshot_does_not_show() -> None:
    found, visible = table(), VisibleTransactions.of("10:20:12")
    first, second, third = ([WalBegin(x), new(b"%d" % (x - 10)), WalCommit(x * 5)] for x in (11, 12, 13))
    messages: list[Message] = [WIRE, *first, *second, *third]
    reach = collect(messages, {5: found}, visible)
    assert (reach.end, reach.hidden, reach.count) == (55, True, 10)
    assert {k for (k,) in found.keys} == {"1", "3"}
