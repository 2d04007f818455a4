"""Any sequence of messages: read as it was written, cut short it is refused, and every change leaves its key."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import ReadError
from instep.sources.postgres.wal.wire import (
    UNCHANGED,
    Message,
    Row,
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


def written(message: Message) -> bytes:
    """As the server's plug-in writes it."""
    match message:
        case WalBegin(xid, commit):
            return b"B" + pack(">qqI", commit, 8, xid)
        case WalCommit(end):
            return b"C" + pack(">Bqqq", 0, 1, end, 2)
        case Truncate(oids):
            return b"T" + pack(">IB", len(oids), 0) + b"".join(pack(">I", o) for o in oids)
        case WalRelation(oid, schema, name, columns):
            head = b"R" + pack(">I", oid) + schema.encode() + b"\0" + name.encode() + b"\0d" + pack(">H", len(columns))
            return head + b"".join(bytes([c.key]) + c.name.encode() + b"\0" + pack(">Ii", c.kind, -1) for c in columns)
    assert isinstance(message, WalChange)
    kind = b"I" if message.old is None else b"D" if message.new is None else b"U"
    old = b"" if message.old is None else b"K" + _row(message.old)
    return kind + pack(">I", message.oid) + old + (b"" if message.new is None else b"N" + _row(message.new))


def _row(row: Row) -> bytes:
    return pack(">H", len(row)) + b"".join(map(_value, row))


def _value(value: Value) -> bytes:
    if isinstance(value, bytes):
        return b"t" + pack(">I", len(value)) + value
    return b"n" if value is None else b"u"


OIDS, WORDS = st.integers(0, 2**32 - 1), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
ROWS = st.lists(st.none() | st.binary(max_size=12) | st.just(UNCHANGED), min_size=1, max_size=5).map(tuple)
COLUMNS = st.builds(WireColumn, WORDS, st.booleans(), OIDS)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(WalBegin, OIDS, st.integers(0, 2**63 - 1)),
    st.builds(WalCommit, st.integers(0, 2**63 - 1)),
    st.builds(Truncate, st.lists(OIDS, max_size=4).map(tuple)),
    st.builds(WalRelation, OIDS, WORDS, WORDS, st.lists(COLUMNS, max_size=4).map(tuple)),
    st.tuples(OIDS, st.none() | ROWS, ROWS).map(lambda c: WalChange(*c)),
    st.tuples(OIDS, ROWS).map(lambda c: WalChange(*c)),
)


@given(st.lists(MESSAGES, max_size=6))
def test_any_messages_are_read_as_they_were_written(messages: list[Message]) -> None:
    assert [decode(written(m)) for m in messages] == messages


@given(MESSAGES, st.data())
def test_a_message_that_was_cut_is_refused(message: Message, data: st.DataObject) -> None:
    """Never read as one with shorter values; the end of an update's old row is where an insert could end."""
    whole = written(message)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        found = decode(cut)
    except ReadError:
        return
    assert isinstance(message, WalChange)
    assert message.old is not None
    assert message.new is not None
    assert found == WalChange(message.oid, message.old, None)


SECRET = b"customer 4711"


@pytest.mark.parametrize("cut", range(6, 25, 3))
def test_what_is_said_of_a_cut_message_holds_no_value(cut: int) -> None:
    with pytest.raises(ReadError) as said:
        decode(written(WalChange(5, None, (SECRET,)))[:cut])
    assert b"customer" not in str(said.value).encode()


def test_values_are_in_no_representation() -> None:
    assert "4711" not in repr(WalChange(5, (SECRET,), (SECRET, UNCHANGED)))


KEYS = st.sampled_from([b"1", b"2", b"3", b"4"])
EVENTS = st.one_of(
    st.tuples(st.just("insert"), KEYS, KEYS), st.tuples(st.just("update"), KEYS, KEYS),
    st.tuples(st.just("delete"), KEYS, KEYS), st.tuples(st.just("other"), KEYS, KEYS),
)  # fmt: skip
TRANSACTIONS = st.lists(st.tuples(st.integers(11, 19), st.lists(EVENTS, max_size=5)), max_size=6)
RELATION = WalRelation(5, "s", "t", (WireColumn("id", True, 23), WireColumn("v", False, 25)))


def changes(kind: str, one: bytes, two: bytes) -> tuple[WalChange, set[str]]:
    """(the message, the keys that it touches)."""
    match kind:
        case "insert":
            return WalChange(5, None, (one, b"v")), {one.decode()}
        case "delete":
            return WalChange(5, (one, None), None), {one.decode()}
        case "other":
            return WalChange(6, None, (one, b"v")), set()
    if one == two:
        return WalChange(5, None, (one, UNCHANGED)), {one.decode()}
    return WalChange(5, (one, None), (two, UNCHANGED)), {one.decode(), two.decode()}


@given(TRANSACTIONS, st.frozensets(st.integers(11, 19)))
def test_every_change_that_is_shown_leaves_its_keys(
    transactions: list[tuple[int, list[tuple[str, bytes, bytes]]]], running: frozenset[int]
) -> None:
    """And the reach stands before the first transaction that the snapshot does not show."""
    table, messages, expected = WalKeys(("id",), {"id": 23, "v": 25}, 10), [RELATION], set()
    end: int | None = None
    hidden = False
    for number, (xid, events) in enumerate(transactions, 1):
        made = [changes(*event) for event in events]
        messages += [WalBegin(xid), *(m for m, _ in made), WalCommit(number * 10)]  # type: ignore[list-item]
        hidden = hidden or xid in running
        end = end if hidden else number * 10
        if xid not in running:
            expected |= set().union(*(keys for _, keys in made))
    visible = VisibleTransactions.of(f"10:20:{','.join(map(str, sorted(running)))}")
    reach = collect((decode(written(m)) for m in messages), {5: table}, visible)
    assert ({k for (k,) in table.keys}, table.whole) == (expected, "")
    assert (reach.end, reach.hidden, reach.count) == (end, hidden, len(messages))


@given(st.lists(KEYS, max_size=12), st.integers(1, 4))
def test_too_many_keys_are_none(keys: list[bytes], limit: int) -> None:
    table = WalKeys(("id",), {"id": 23, "v": 25}, limit)
    collect([WalBegin(1), RELATION, *(WalChange(5, None, (k, b"v")) for k in keys), WalCommit(2)], {5: table},
            VisibleTransactions.of("99:99:"))  # fmt: skip
    many = len(set(keys)) > limit
    assert bool(table.whole) == many
    assert len(table.keys) == (0 if many else len(set(keys)))


@given(st.permutations(["id", "other", "v"]), st.booleans(), st.sampled_from([20, 23]))
def test_a_relation_in_the_midst_decides_for_what_follows(names: list[str], key: bool, kind: int) -> None:
    """Where its key is as it is today keys are found by their new places, else the table is read as a whole."""
    again = WalRelation(5, "s", "t", tuple(WireColumn(n, n == "id" and key, kind if n == "id" else 25) for n in names))
    row = tuple(n.encode() for n in names)
    table = WalKeys(("id",), {"id": 23, "v": 25}, 10)
    collect([WalBegin(1), RELATION, WalChange(5, None, (b"1", b"v")), again,
        WalChange(5, None, row), WalCommit(2)], {5: table},
            VisibleTransactions.of("99:99:"))  # fmt: skip
    if key and kind == 23 and names.index("id") < names.index("v"):
        assert set(table.keys) == {("1",), ("id",)}
    else:
        assert "altered" in table.whole
