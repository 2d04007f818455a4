"""The binary log of MySQL 9.7, recorded: what MariaDB's does not have.

`mysql97_events.json` are the events of a session that changed `j (id int PRIMARY KEY, a json, b json, v varchar(20))`:
partial updates of JSON, one of which changes the key, three compressed transactions, and one whose GTID has a tag.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.errors import ReadError
from instep.sources.mysql.binlog import payload, stream
from instep.sources.mysql.binlog.collect import BinlogKeys, LogPass
from instep.sources.mysql.binlog.gtids import GtidSet
from instep.sources.mysql.binlog.log import numbered
from instep.sources.mysql.binlog.payload import payload_events
from instep.sources.mysql.binlog.stream import BinlogStream
from instep.sources.mysql.binlog.values import KeyColumn
from instep.sources.mysql.binlog.wire import BinlogBegin, decode

EVENTS = [bytes.fromhex(text) for text in json.loads((Path(__file__).parent / "mysql97_events.json").read_text())]
START, END = ("binlog.000003", 245), ("binlog.000003", 2914)
SOURCE = "aaa19af0eb6b11f19faf02fc00000001"


class _Recorded(BinlogStream):
    def _packets(self) -> Iterator[bytes]:
        yield from EVENTS


def followed(since: int = 0) -> tuple[BinlogKeys, list[str]]:
    """What a pass over all of it finds, and the names of the transactions."""
    id_ = KeyColumn("id", "int")
    keys = BinlogKeys((id_,), (0,), 4, 100, since=numbered((START[0], since)), names=frozenset({"id", "a", "b", "v"}))
    names: list[str] = []
    work = LogPass({("d", "j"): keys}, lambda name: names.append(name) is None, numbered, START, 1000)
    reach = work.collect(_Recorded(None, START).events(END))  # type: ignore[arg-type]
    assert (reach.end, reach.hidden, reach.more) == (END, False, False)
    return keys, names


def test_keys_of_compressed_transactions_and_of_partial_updates() -> None:
    keys, names = followed()
    assert keys.whole == ""
    assert {k for (k,) in keys.keys} == {"1", "2", "20", "101", "120", "500", "501"}
    assert names == [*(f"{SOURCE}:{n}" for n in range(592, 598)), f"{SOURCE}:mytag:2", f"{SOURCE}:598"]


def test_what_was_read_before_is_left_out() -> None:
    """The events in a compressed transaction have the place of its end."""
    ends = [int.from_bytes(e[13:17], "little") for e in EVENTS if e[4] == stream.PAYLOAD]
    assert {k for (k,) in followed(ends[1])[0].keys} == {"101", "500", "501"}
    assert {k for (k,) in followed(ends[2])[0].keys} == {"500", "501"}


def test_a_tagged_name_is_found_in_a_set() -> None:
    (begin,) = [decode(e[:-4]) for e in EVENTS if e[4] == 42]
    assert begin == BinlogBegin(f"{SOURCE}:mytag:2")
    done = GtidSet.of("aaa19af0-eb6b-11f1-9faf-02fc00000001:1-5:mytag:1-2")
    assert done.has(begin.gtid)
    assert not done.has(f"{SOURCE}:mytag:3")


@pytest.mark.parametrize(
    ("limit", "why"),
    [("MOST", "a compressed transaction of its log has"), ("LARGEST", "a compressed event"), ("", "zstandard")],
)
def test_what_is_not_unpacked_leads_to_a_read_of_the_whole_table(
    limit: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log goes on behind it."""
    if limit:
        monkeypatch.setattr(payload, limit, 30)
    else:
        monkeypatch.setitem(sys.modules, "zstandard", None)
    keys, names = followed()
    assert why in keys.whole
    assert len(names) == 8


@pytest.mark.parametrize("cut", [0, 5, 40])
def test_a_payload_that_is_cut_is_refused(cut: int) -> None:
    (one, *_) = [e[:-4] for e in EVENTS if e[4] == stream.PAYLOAD]
    assert len(list(payload_events(one))) == 4
    with pytest.raises(ReadError, match="compressed transaction"):
        list(payload_events(one[: 19 + cut]))
