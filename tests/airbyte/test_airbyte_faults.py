"""What becomes of a run in which a connector misbehaves: what lands, what is saved, what is said."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pytest

from airbyte_world import (
    INTEGER,
    TEXT,
    AirbyteWorld,
    Line,
    error,
    record,
    records,
    shared_state,
    state,
    status,
    stream,
    trace,
)
from instep.errors import InstepError
from instep.sources.airbyte.wire import Broken, parts_of
from instep.sync.quarantine.replay import replay

ONE = '{"type":"RECORD","record":{"stream":"users","data":'
FIRST, TWO = (f'{ONE}{{"id":{n}}}}}}}' for n in (1, 2))
DONE = status()
BOTH = [stream(name=TEXT), stream("orders")]
ORDERS = [*records(1, 2, "orders"), state(2, 2, "orders"), status(name="orders")]


@dataclass(frozen=True)
class Fault:
    """`lines` are what is sent, `ids` and `at` what is loaded and saved of `users` then (None: nothing), `says` parts
    of the error (none: the run is done), `notes` of what it notes. `orders`: its two rows land, and only the
    table `users` has failed."""

    name: str
    lines: list[Line]
    ids: tuple[int, ...]
    at: int | None
    says: tuple[str, ...] = ()
    notes: str = ""
    streams: list[Any] = field(default_factory=lambda: [stream(name=TEXT)])
    orders: bool = False
    limits: dict[str, Any] = field(default_factory=dict)
    transient: bool | None = None


REQUIRED = stream(age=INTEGER)
REQUIRED["json_schema"]["required"] = ["id", "age"]
"""As a file has it that had the column yesterday."""
BARE = {**stream(key=()), "json_schema": {}}
FAULTS = [
    Fault("a stream that the source no longer has", [*ORDERS, status("INCOMPLETE")], (), None,
          ("it ended as INCOMPLETE",), streams=BOTH, orders=True),
    Fault("exit code 0 without COMPLETE", [*ORDERS, *records(1, 1), state(1, 1), status("STARTED")], (1,), 1,
          ("it ended as STARTED",), streams=BOTH, orders=True),
    Fault("no status at all and exit code 0", [*records(1, 2), state(2, 2)], (1, 2), 2),
    Fault("no status at all and exit code 1", [*records(1, 2), state(2, 2), ["exit", 1]], (1, 2), 2,
          ("not complete: users", "exit code 1")),
    Fault("exit code 3 behind complete streams", [*records(1, 2), state(2, 2), DONE, ["exit", 3]], (1, 2), 2,
          ("exit code 3 after all streams were complete",)),
    Fault("an error that is the configuration's", [*ORDERS, error("the key is wrong", "config_error", "users"),
          status("INCOMPLETE")], (), None, ("the key is wrong",), streams=BOTH, orders=True),
    Fault("an error of no stream", [*ORDERS, *records(1, 1), state(1, 1), error("boom"), status("INCOMPLETE"),
          ["exit", 1]], (1,), 1, ("it ended as INCOMPLETE; boom",), streams=BOTH, orders=True),
    Fault("an error that passes", [error("too many requests", "transient_error"), ["exit", 1]], (), None,
          ("too many requests",), transient=True),
    Fault("an error of its system", [*records(1, 1), state(1, 1), error("boom"), ["exit", 1]], (1,), 1,
          ("boom",), transient=False),
    Fault("an error behind complete streams", [*records(1, 1), state(1, 1), DONE, error("late")], (1,), 1, ("late",)),
    Fault("a count that is too high", [*records(1, 2), state(2, 2), *records(3, 3), state(4, 2), DONE], (1, 2, 3), 2,
          ("about 2 records, and 1 came",)),
    Fault("a count that is too low", [*ORDERS, *records(1, 2), state(2, 1), DONE], (1, 2), None,
          ("about 1 records, and 2 came",), streams=BOTH, orders=True),
    Fault("a shared count that is wrong", [*records(1, 2), shared_state(1, {"users": {"at": 2}}, 5), DONE], (1, 2),
          None, ("about 5 records, and 2 came",)),
    Fault("a state before its records", [state(0, 0), *records(1, 2), state(2, 2), DONE], (1, 2), 2),
    Fault("a state of an unknown stream", [*records(1, 1), state(9, 0, "nobody"), state(1, 1), DONE], (1,), 1),
    Fault("records of an unknown stream", [record("nobody", id=1), *records(1, 1), state(1, 1), DONE], (1,), 1,
          notes="nobody: 1 records of a stream that was not asked for"),
    Fault("a message that is cut off", [*records(1, 1), state(1, 1), f'{ONE}{{"id":2', *records(3, 3), state(3), DONE],
          (1,), 1, ("a message that is not JSON",)),
    Fault("invalid UTF-8", [*records(1, 1), state(1, 1), f'{ONE}{{"id":2,"name":"\xff"}}}}}}', DONE], (1,), 1,
          ("a message that is not JSON",)),
    Fault("half a surrogate pair", [f'{ONE}{{"id":2,"name":"\\ud800"}}}}}}', DONE], (), None, ("not JSON",)),
    Fault("text between messages", ["Traceback: nothing", "{braces}", *records(1, 1), state(1, 1), DONE], (1,), 1),
    Fault("JSON that is no message", ['{"a": 1}', "[1]", "7", '"x"', *records(1, 1), state(1, 1), DONE], (1,), 1),
    Fault("an unknown type of message", [{"type": "NEWS", "news": 1}, *records(1, 1), state(1, 1), DONE], (1,), 1),
    Fault("empty lines", ["", "   ", *records(1, 1), "", state(1, 1), DONE], (1,), 1),
    Fault("a record without data", [{"type": "RECORD", "record": {"stream": "users"}}, DONE], (), None,
          ("a record without an object of data",)),
    Fault("a record whose data is a list", [{"type": "RECORD", "record": {"stream": "users", "data": [1]}}], (), None,
          ("a record without an object of data",)),
    Fault("a state that cannot be read", [*records(1, 1), {"type": "STATE", "state": {"type": "STREAM"}}, DONE], (1,),
          None, ("STATE message that cannot be read",)),
    Fault("a status that cannot be read", [*records(1, 1), state(1, 1), trace("STREAM_STATUS")], (1,), 1,
          ("TRACE message that cannot be read",)),
    Fault("no value in the key", [*ORDERS, *records(1, 2), state(2, 2), record(id=None), record(id=4), state(4), DONE],
          (1, 2), 2, ("no value of id, which is part of its primary key",), streams=BOTH, orders=True),
    Fault("a key that is missing", [*records(1, 2), record(name="x"), state(3, 3), DONE], (1, 2), None,
          ("no value of id",)),
    Fault("keys twice in an object", [f'{ONE}{{"id":1,"id":2}}}}}}', state(1, 1), DONE], (2,), 1),
    Fault("a name that no column can have", [*records(1, 1), state(1, 1), record(id=2, **{" ": 1}), DONE], (1,), 1,
          ("a property that cannot be a column",)),
    Fault("a reserved name", [record(id=2, __op=1), DONE], (), None, ("a property that cannot be a column",)),
    Fault("records behind its end", [*records(1, 1), state(1, 1), DONE, record(id=2), state(2, 1)], (1, 2), 2),
    Fault("a signal", [*records(1, 1), state(1, 1), ["kill"]], (1,), 1, ("not complete: users",)),
    Fault("a process that hangs", [*records(1, 1), state(1, 1), ["sleep", 600]], (1,), 1, ("sent nothing for 4 s",),
          limits={"silence": 4.0}),
    Fault("a message without an end", [*records(1, 1), state(1, 1), DONE, ["cut", '{"type":"LOG","lo']], (1,), 1),
    Fault("logs of every level", [{"type": "LOG", "log": {"level": level, "message": level}} for level in
          ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ODD")] + [*records(1, 1), state(1, 1), DONE], (1,), 1),
    Fault("estimates", [trace("ESTIMATE", name="users", type="STREAM", row_estimate=9), *records(1, 1), state(1, 1),
          DONE], (1,), 1),
    Fault("states that are null", [*records(1, 1), {"type": "STATE", "state": {"type": "STREAM", "stream": {
          "stream_descriptor": {"name": "users"}, "stream_state": None}}}, DONE], (1,), None),
    Fault("an empty namespace", [{"type": "RECORD", "record": {"stream": "users", "namespace": "", "data": {"id": 1}}},
          state(1, 1), DONE], (1,), 1),
]  # fmt: skip


ONE_ROW: list[Line] = [*records(1, 1), state(1, 1)]
MORE = [
    Fault("two messages in a line", [*ONE_ROW, f'{TWO}{ONE}{{"id":3}}}}}} ', state(3, 2), DONE], (1, 2, 3), 3),
    Fault("a state behind a record in a line", [f"{FIRST}{json.dumps(state(1, 1))}", DONE], (1,), 1),
    Fault("text behind a message", [*ONE_ROW, f"{TWO}12:00 INFO written", state(2, 1), DONE], (1, 2), 2),
    Fault("colours and a bar in front of a message", [f"10%\r20%\r{FIRST}", f"\x1b[32m\x1b[0m {TWO}", state(2, 2),
          DONE], (1, 2), 2),
    Fault("text in front of a record", [*ORDERS, *ONE_ROW, f"Some log{TWO}", *records(3, 3), DONE], (1,), 1,
          ("text in front of a RECORD message", "go to stderr"), streams=BOTH, orders=True),
    Fault("text in front of a state", [*ORDERS, *ONE_ROW, *records(2, 2), f"next: {json.dumps(state(2))}", DONE],
          (1, 2), 1, ("text in front of a STATE message",), streams=BOTH, orders=True),
    Fault("text in front of a record of no stream", [*ONE_ROW, f"Some log{TWO.replace('users', 'nobody')}", DONE],
          (1,), 1, ("text in front of a RECORD message",)),
    Fault("text in front of a message that is cut", [*ONE_ROW, f"Some log{TWO[:-9]}", DONE], (1,), 1,
          ("a message that is not JSON",)),
    Fault("text in front of a status", [*ORDERS, *ONE_ROW, f"Some log{json.dumps(status('INCOMPLETE'))}"], (1,), 1,
          ("it ended as INCOMPLETE",), streams=BOTH, orders=True),
    Fault("text with objects that are no messages", [
          *ONE_ROW, 'got {"record": {"stream": 1}} and {"type": "x"}',
          'INFO {"a": {"b": [1, "cut', "{'type': 'RECORD'}",
          DONE], (1,), 1),
    Fault("one message within another", [*ONE_ROW, f"{TWO[:20]}{TWO}{TWO[20:]}", DONE], (1,), 1,
          ("a message that is not JSON",)),
    Fault("messages in an array", [*ONE_ROW, f"[{TWO}]", DONE], (1,), 1, ("in an array",)),
    Fault("a message as a string", [*ONE_ROW, json.dumps(TWO), DONE], (1,), 1, ("as a JSON string",)),
    Fault("a record of another type", [*ONE_ROW, TWO.replace("RECORD", "record"), DONE], (1,), 1,
          ('a record whose `type` is "record"',)),
    Fault("a record without a type", [*ONE_ROW, {"record": record(id=2)["record"]}, DONE], (1,), 1,
          ("a record whose `type` is null",)),
    Fault("nothing but records of another namespace", [*ORDERS, *(
          {"type": "RECORD", "record": {"stream": "users", "namespace": "x", "data": {"id": n}}} for n in (1, 2)),
          DONE], (), None, ("none of its records arrived, but records of x.users",), streams=BOTH, orders=True),
    Fault("a shared state behind records of another namespace", [
          *ORDERS, {"type": "RECORD", "record": {"stream": "users", "namespace": "x", "data": {"id": 1}}},
          shared_state(7, {"users": {"at": 1}, "orders": {"at": 2}}), ["sleep", 1.2], DONE], (), None,
          ("none of its records arrived, but records of x.users",), streams=BOTH, orders=True),
    Fault("a message over two lines", [*ONE_ROW, ONE, '{"id":2}}}', DONE], (1,), 1, ("a message that is not JSON",)),
    Fault("a message over many lines", [*ONE_ROW, *json.dumps(record(id=2), indent=1).splitlines(), DONE], (1,), 1,
          ("a message that is not JSON",)),
    Fault("line ends of Windows", [f'{ONE}{{"id":1}}}}}}\r', state(1, 1), DONE], (1,), 1),
    Fault("a byte order mark", [f'\xef\xbb\xbf{ONE}{{"id":1}}}}}}', state(1, 1), DONE], (1,), 1),
    Fault("a byte order mark before what is no message", [f"\xef\xbb\xbf{ONE}", *ONE_ROW, DONE], (), None,
          ("a message that is not JSON",)),
    Fault("a long message", [*ONE_ROW, ["long", 20], state(2, 1), DONE], (1, 2), 2),
    Fault("a message that is too long", [*ONE_ROW, ["long", 129], DONE], (1,), 1, ("a line of more than 128 MiB",)),
    Fault("values nested 5,000 deep", [*ONE_ROW, f'{ONE}{{"id":2,"v":{"[" * 5000}{"]" * 5000}}}}}}}', DONE], (1,), 1,
          ("a message that is not JSON",)),
    Fault("numbers that JSON lacks", [f'{ONE}{{"id":1,"v":NaN,"w":-Infinity}}}}}}', state(1, 1), DONE], (1,), 1),
    Fault("a NUL in a text", [record(id=1, name="a\0b"), state(1, 1), DONE], (1,), 1),
    Fault("names that differ by case alone", [record(id=1, Name="a", name="b"), state(1, 1), DONE], (1,), 1),
    Fault("one key several times", [record(id=1, name="a"), record(id=1, name="b"), state(1, 2), DONE], (1,), 1),
    Fault("a record of no stream", [{"type": "RECORD", "record": {"data": {"id": 9}}}, *ONE_ROW, DONE], (1,), 1,
          notes="1 records of a stream that was not asked for"),
    Fault("records of another namespace", [{"type": "RECORD", "record": {"stream": "users", "namespace": "x", "data": {
          "id": 9}}}, *ONE_ROW, DONE], (1,), 1, notes="x.users: 1 records of a stream that was not asked for"),
    Fault("a trace of another type", [trace("ANALYTICS", type="x"), *ONE_ROW, DONE], (1,), 1),
    Fault("an error without a text", [*ONE_ROW, trace("ERROR"), ["exit", 1]], (1,), 1, ("it failed",)),
    Fault("an error of an unknown type", [*ONE_ROW, error("odd", "strange"), ["exit", 1]], (1,), 1, ("odd",),
          transient=True),
    Fault("an error that passes beside one that does not", [error("a", "transient_error"), error("b", "config_error")],
          (), None, ("a", "b"), transient=False),
    Fault("a control message of another type", [{"type": "CONTROL", "control": {"type": "NEWS"}}, *ONE_ROW, DONE],
          (1,), 1),
    Fault("a control message that cannot be read", [*ONE_ROW, {"type": "CONTROL"}], (1,), 1,
          ("CONTROL message that cannot be read",)),
    Fault("a state of an unknown type", [*ONE_ROW, {"type": "STATE", "state": {"type": "NEWS"}}], (1,), 1,
          ("STATE message that cannot be read",)),
    Fault("a count that is no number", [*records(1, 1), {"type": "STATE", "state": {"type": "STREAM", "stream": {
          "stream_descriptor": {"name": "users"}, "stream_state": {}}, "sourceStats": {"recordCount": "many"}}}], (1,),
          None, ("STATE message that cannot be read",)),
    Fault("a count that has no end", [*records(1, 1), '{"type":"STATE","state":{"type":"STREAM","stream":'
          '{"stream_descriptor":{"name":"users"},"stream_state":{}},"sourceStats":{"recordCount":1e999}}}'], (1,), None,
          ("STATE message that cannot be read",)),
    Fault("states of two types", [*ONE_ROW, *records(2, 2), shared_state(7, {"users": {"at": 2}}), DONE], (1, 2), 2),
    Fault("complete twice", [*ONE_ROW, DONE, DONE], (1,), 1),
    Fault("complete behind incomplete", [*ONE_ROW, status("INCOMPLETE"), *records(2, 2), state(2, 1), DONE], (1, 2), 2),
    Fault("incomplete behind complete", [*ORDERS, *ONE_ROW, DONE, status("INCOMPLETE")], (1,), 1,
          ("it ended as INCOMPLETE",), streams=BOTH, orders=True),
    Fault("begun again behind its end", [*ORDERS, *ONE_ROW, DONE, status("STARTED")], (1,), 1,
          ("it ended as STARTED",), streams=BOTH, orders=True),
    Fault("a flood on its error output", [["flood", 20_000], *ONE_ROW, DONE], (1,), 1),
    Fault("a child that lives on with its output", [*ONE_ROW, DONE, ["linger", 600]], (1,), 1,
          ("sent nothing for 4 s",), limits={"silence": 4.0}),
    Fault("a column that does not come any more, of yesterday's catalog", [record(id=1), state(1, 1), DONE], (1,), 1,
          notes="users.age: 1 records lack it", streams=[REQUIRED]),
    Fault("texts where yesterday's catalog says numbers", [record(id=1, age="n/a"), state(1, 1), DONE], (1,), 1,
          notes="users.age: 1 values do not fit int64", streams=[stream(age=INTEGER)]),
    Fault("a stream without properties", [record(id=1), state(1, 1), DONE], (1,), 1, streams=[BARE]),
]  # fmt: skip


WHOLE = [TWO, json.dumps(record(id=2)), json.dumps(state(2, 1)), json.dumps(shared_state(1, {"users": {"at": 2}}, 1)),
         '{"record":{"stream":"users","data":{"id":2}},"type":"RECORD"}']  # fmt: skip


@pytest.mark.parametrize("front", ["", "Some log"])
@pytest.mark.parametrize("text", WHOLE)
def test_a_record_or_state_that_is_cut_anywhere_is_noticed(text: str, front: str) -> None:
    for at in range(1, len(text)):
        with pytest.raises(Broken):
            list(chain(*map(parts_of, [f"{front}{text[:at]}".encode(), text[at:].encode()])))


LOGS = [
    '{"level": "info", "message": "Traceback',
    '{"type":"LOG","log":{"le', 'INFO {"a": 1}{"record": 2}', "{'type': 'RECORD'}",
    '{"type": "object", "properties": {"record": {"type": "object"}}} is a schema', "RECORD STATE {}", '{"a":' * 500,
    "{" * 5000, "[" * 100_000, 'got {"type": "record", "fields": []}', '{"state":"running", "why": no', "caf\xe9",
]  # fmt: skip


@pytest.mark.parametrize("text", LOGS)
def test_text_that_is_no_message_is_text(text: str) -> None:
    assert "".join(part for part in parts_of(text.encode()) if isinstance(part, str)) == text


@pytest.mark.parametrize("fault", [*FAULTS, *MORE], ids=lambda fault: fault.name)
def test_a_fault_loses_nothing_and_saves_nothing_ahead(world: AirbyteWorld, fault: Fault) -> None:
    world.streams, world.limits = fault.streams, fault.limits
    if fault.orders:
        report = world.read(*fault.lines)
        assert (report.status, world.statuses(report)) == ("partial", {"users": "failed", "orders": "done"})
        (why,) = (t.error for t in report.tables if t.error)
        for text in ("connector shop: ", *fault.says):
            assert text in why
    elif fault.says:
        with pytest.raises(InstepError) as raised:
            world.read(*fault.lines)
        for text in fault.says:
            assert text in str(raised.value)
        if fault.transient is not None:
            assert raised.value.transient is fault.transient
    else:
        notes = world.read(*fault.lines).notes
        assert fault.notes in "\n".join(notes)
    assert (tuple(world.ids()) if fault.ids else ()) == fault.ids
    assert world.states.get("users") == (None if fault.at is None else {"at": fault.at})
    if fault.orders:
        assert world.ids("orders") == [1, 2]
        assert world.states["orders"] == {"at": 2}


LARGE = 123456789012345678901234567890
VALUES = [
    ({"type": "integer"}, "5", 5),
    ({"type": "integer"}, "5.0", 5),
    ({"type": "integer"}, "9223372036854775807", 2**63 - 1),
    ({"type": "number"}, "1.5", 1.5),
    ({"type": "number"}, "3", 3.0),
    ({"type": "boolean"}, "true", True),
    ({"type": "string"}, "5", "5"),
    ({"type": ["string", "integer"]}, "5", "5"),
    ({"oneOf": [{"type": "string"}, {"type": "boolean"}]}, "true", "true"),
    ({"type": "string", "airbyte_type": "big_integer"}, f'"{LARGE}"', LARGE),
    ({"type": "integer", "airbyte_type": "big_integer"}, str(LARGE), LARGE),
    ({"type": "string", "format": "date"}, '"2026-01-31"', "2026-01-31"),
    ({"type": "string", "format": "date-time"}, '"2026-01-31T12:00:00Z"', "2026-01-31 12:00:00+00:00"),
    ({"type": "string", "format": "date-time"}, '"2026-01-31T12:00:00"', "2026-01-31 12:00:00+00:00"),
    ({"type": "string", "format": "date-time"}, '"2026-01-31T12:00:00.123456000+02:00"',
     "2026-01-31 10:00:00.123456+00:00"),
    ({"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}, '"2026-01-31T12:00:00"',
     "2026-01-31 12:00:00"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "text", "expected"), VALUES)
def test_a_value_gets_the_type_that_its_schema_says(world: AirbyteWorld, schema: Any, text: str, expected: Any) -> None:
    world.streams = [stream(v=schema)]
    world.read(f'{ONE}{{"id":1,"v":{text}}}}}}}', state(1, 1), status())
    (row,) = world.records("users", "v")
    assert (str(row["v"]) if isinstance(expected, str) else row["v"]) == expected


INVALID = [("integer", '"n/a"'), ("integer", "1.5"), ("integer", "9223372036854775808"), ("boolean", '"yes"'),
           ("number", '"1_000"')]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), INVALID)
def test_a_value_that_does_not_fit_is_quarantined_and_counted(world: AirbyteWorld, kind: str, text: str) -> None:
    world.streams = [stream(v={"type": kind})]
    good = "true" if kind == "boolean" else "7"
    lines = [f'{ONE}{{"id":{i},"v":{v}}}}}}}' for i, v in ((1, good), (2, text))]
    report = world.read(*lines, state(2, 2), status())
    assert [t.invalid_values for t in report.tables] == [1]
    assert world.ids() == [1, 2]
    assert any("users.v: 1 values do not fit" in note for note in report.notes)


BYTES = {"type": ["null", "string"], "contentEncoding": "base64"}


@pytest.mark.parametrize("answer", ["approved", "rejected"])
def test_bytes_stay_what_they_are_beside_values_that_are_none(world: AirbyteWorld, answer: str) -> None:
    """They are texts together, by which neither becomes other bytes, and each is its own text once that is the type."""
    world.streams = [stream(v=BYTES)]
    values = {1: "aGVsbG8=", 2: "", 3: "no base64", 4: 5, 5: "aGVsbG8=", 6: "\\x0G"}
    report = world.read(*(record(id=i, v=v) for i, v in values.items()), state(6, 6), status())
    assert [t.invalid_values for t in report.tables] == [3]
    good = {1: b"hello", 2: b"", 5: b"hello"}
    assert {row["id"]: row["v"] for row in world.records("users") if "v" in row} == good
    world.answer(answer, "column.retyped")
    world.read(status())
    replay(world.context)
    texts = {1: "\\x68656c6c6f", 2: "\\x", 3: "no base64", 4: "5", 5: "\\x68656c6c6f", 6: "\\x0G"}
    expected = texts if answer == "approved" else good
    assert {row["id"]: row["v"] for row in world.records("users") if "v" in row} == expected


RETYPED = [
    ("integer", '"n/a"', "string"), ("integer", "1.5", "float64"), ("integer", "9223372036854775808", "decimal(38,0)"),
    ("boolean", '"yes"', "string"), ("number", '{"a":1}', "string"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "found"), RETYPED)
def test_values_of_another_type_are_a_change_to_decide(world: AirbyteWorld, kind: str, text: str, found: str) -> None:
    good = "true" if kind == "boolean" else "7"
    world.streams = [stream(v={"type": kind})]
    world.read(f'{ONE}{{"id":1,"v":{good}}}}}}}', state(1, 1), status())
    report = world.read(f'{ONE}{{"id":2,"v":{text}}}}}}}', state(2, 1), status())
    assert [t.invalid_values for t in report.tables] == [1]
    assert retyped(world) == [found]
    world.read(f'{ONE}{{"id":3,"v":{good}}}}}}}', state(3, 1), status())
    assert retyped(world) == [found]
    assert len([row for row in world.records("users", "v") if row]) == 2
    world.answer("approved", "column.retyped")
    world.read(f'{ONE}{{"id":4,"v":{text}}}}}}}', f'{ONE}{{"id":5,"v":{good}}}}}}}', state(5, 2), status())
    assert f"v {found}" in world.schema("users")
    assert len([row for row in world.records("users", "v") if row]) == 4
    assert retyped(world) == []


@pytest.mark.parametrize("before", [{}, {"more": True}], ids=["a new column", "a column of another type"])
def test_an_approved_type_counts_whatever_else_comes_beside_it(world: AirbyteWorld, before: dict[str, Any]) -> None:
    world.streams = [stream(v=INTEGER)]
    world.read(record(id=1, v=1), state(1, 1), status())
    world.read(record(id=2, v="n/a", **before), state(2, 1), status())
    world.answer("approved", "column.retyped")
    world.read(record(id=3, v=3), record(id=4, more="maybe"), state(4, 2), status())
    assert retyped(world) == []
    assert world.schema("users") == "id int64!, v string, more string"
    assert [row.get("v") for row in world.records("users", "id", "v") if row["id"] != 2] == ["1", "3", None]


def retyped(world: AirbyteWorld) -> list[str]:
    """The types of the open changes to another one."""
    found = [r for r in world.store.reviews.find("shop", ("open",)) if r.kind == "column.retyped"]
    return [r.summary.rpartition(" to ")[2] for r in found]


def test_a_catalog_that_agrees_with_the_values_ends_the_change(world: AirbyteWorld) -> None:
    world.streams = [stream(v=INTEGER)]
    world.read(record(id=1, v=1), record(id=2, v="n/a"), state(2, 2), status())
    assert (world.schema("users"), retyped(world)) == ("id int64!, v int64", ["string"])
    world.streams = [stream(v={"type": "string"})]
    world.read(record(id=3, v="n/a"), state(3, 1), status())
    assert world.schema("users") == "id int64!, v string"
    assert retyped(world) == []


def test_secrets_that_it_prints_are_not_in_its_errors(world: AirbyteWorld) -> None:
    world.configuration = {"password": "hunter2-long"}
    said = world.failed(["print", "hunter2-long"], error("login with hunter2-long failed", "config_error"), ["exit", 1])
    assert "hunter2-long" not in said
    assert "login with" in said


def test_secrets_that_it_prints_are_not_in_its_log(world: AirbyteWorld, caplog: pytest.LogCaptureFixture) -> None:
    """Neither those of a new configuration, however long it has been in use, nor the half of one where a line is
    cut."""
    code = {"type": "string", "airbyte_secret": True}
    world.specification = {"type": "object", "properties": {"code": code}}
    world.configuration = {"password": "hunter2-long", "code": "old-code", "refresh_token": "old-token-1"}
    new = {"password": "hunter2-long", "code": "zebra-crossing", "refresh_token": "new-token-2"}
    control = {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": new}}}
    said = "with zebra-crossing, new-token-2"
    steps = [[record(id=i), state(i), ["sleep", 1.2]] for i in (1, 2, 3)]
    with caplog.at_level(logging.DEBUG, "instep.connector"):
        world.failed(
            control, *chain(*steps), {"type": "LOG", "log": {"level": "INFO", "message": f"refreshed {said}"}},
            {"type": "LOG", "log": {"level": "INFO", "message": f"{'x' * 9_994}hunter2-long"}},
            f"printed {said}", trace("ERROR", message=f"failed {said}", stack_trace=f"trace {said}"), ["exit", 1],
        )  # fmt: skip
    for start in ("refreshed with", "printed with", "trace with", "x" * 9_990):
        assert start in caplog.text
    for secret in ("zebra-crossing", "new-token-2", "hunter"):
        assert secret not in caplog.text


CATALOGS = [([], "offers no stream"), ([stream(), stream()], "offers the stream users twice"),
            ([stream(" ")], "without a name")]  # fmt: skip


@pytest.mark.parametrize(("streams", "says"), CATALOGS)
def test_a_catalog_that_cannot_be_right_removes_nothing(world: AirbyteWorld, streams: Any, says: str) -> None:
    world.read(*records(1, 2), state(2, 2), status())
    world.streams = streams
    assert says in world.failed(status())
    assert world.ids() == [1, 2]


def test_a_stream_that_is_gone_from_the_catalog_is_a_removed_table(world: AirbyteWorld) -> None:
    world.streams = BOTH
    world.read(*records(1, 1), state(1, 1), status(), *ORDERS)
    world.streams = [stream("orders")]
    world.read(*ORDERS)
    world.read(*ORDERS)
    assert world.accepted("users").retained
    assert world.ids() == [1]


def test_a_column_that_is_gone_from_the_catalog_keeps_its_values(world: AirbyteWorld) -> None:
    world.streams = [stream(age=INTEGER)]
    world.read(record(id=1, age=3), state(1, 1), status())
    world.streams = [stream()]
    world.read(record(id=2), state(2, 1), status())
    world.read(record(id=3), state(3, 1), status())
    assert world.records("users", "id", "age") == [{"id": 1, "age": 3}, {"id": 2}, {"id": 3}]
