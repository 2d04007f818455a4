"""Each field of each message of the protocol with each other JSON type: an error that names it, or no difference."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from bridge_in_thread import Output, ScriptedConnector, in_this_process, lines

from airbyte_world import AirbyteWorld, Message, airbyte_world, record, shared_state, state, status, stream, trace
from instep.destinations.duckdb.file import DatabaseFile
from instep.errors import ReadError
from instep.project.sections.tables import TableSettings
from instep.sources.airbyte import requests
from instep.sources.airbyte.catalog import stream_tables
from instep.sources.airbyte.json_schema import column_type, properties
from instep.sources.airbyte.messages import MESSAGES, check_message
from instep.sources.airbyte.specification import Specification
from instep.sources.airbyte.upgrade import specification_differences
from instep.sources.airbyte.wire import Broken

DESCRIPTOR = {"name": "users", "namespace": "shop"}
STREAM = {"stream_descriptor": DESCRIPTOR, "stream_state": {"at": 1}}
META = {"changes": [{"field": "name", "change": "NULLED", "reason": "x"}]}
WHOLE: list[Message] = [
    {"type": "RECORD", "record": {"stream": "users", "namespace": "shop", "data": {"id": 1}, "emitted_at": 1,
                                  "meta": META}},
    {"type": "STATE", "state": {"type": "STREAM", "stream": STREAM, "sourceStats": {"recordCount": 1.0}}},
    {"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": {"lsn": 1}, "stream_states": [STREAM]},
                                "sourceStats": {"recordCount": 1}}},
    {"type": "STATE", "state": {"type": "LEGACY", "data": {"at": 1}}},
    trace("ERROR", message="m", internal_message="i", stack_trace="s", failure_type="system_error",
          stream_descriptor=DESCRIPTOR),
    trace("STREAM_STATUS", stream_descriptor=DESCRIPTOR, status="INCOMPLETE", reasons=[{"type": "RATE_LIMITED"}]),
    trace("ESTIMATE", name="users", namespace="shop", type="STREAM", row_estimate=9),
    {"type": "LOG", "log": {"level": "INFO", "message": "m", "stack_trace": "s"}},
    {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": {"k": "v"}}}},
    {"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}, "documentationUrl": "u"}},
    {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED", "message": "m"}},
    {"type": "CATALOG", "catalog": {"streams": [{
        "name": "users", "namespace": "shop", "json_schema": {"properties": {"id": {"type": "integer"}}},
        "supported_sync_modes": ["full_refresh", "incremental"], "source_defined_cursor": False,
        "default_cursor_field": ["id"], "source_defined_primary_key": [["id"]]}]}},
]  # fmt: skip
OWN = {"data", "json_schema", "connectionSpecification", "config"}
"""Objects whose content is the connector's own."""
FREE = {"stream_state", "shared_state", "emitted_at", "message", "internal_message", "stack_trace", "level"}
"""States, texts for people, and what nobody reads: any value does."""
OTHERS: list[Any] = [[], ["x"], {}, {"x": 1}, "x", "", 5, 0, 1.5, math.inf, True, False]
Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """The places of all values in a document."""
    if at:
        yield at
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(one, (*at, key))


def put(message: Message, at: Place, value: Any) -> Message:
    """The message with another value there."""
    found = deepcopy(message)
    inner: Any = found
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return found


def kind_of(value: Any) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def path_of(at: Place) -> str:
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in at).removeprefix(".")


def is_free(at: Place) -> bool:
    return bool(set(at) & FREE or set(at[:-1]) & OWN) or at == ("state", "data")


def wrong() -> Iterator[tuple[Message, Place, Any]]:
    for message in WHOLE:
        for at in places(message):
            now: Any = message
            for key in at:
                now = now[key]
            if at != ("type",):
                yield from ((put(message, at, other), at, other) for other in OTHERS if kind_of(other) != kind_of(now))


def test_a_message_that_is_right_is_taken() -> None:
    for message in WHOLE:
        check_message(message["type"], message)
    assert {message["type"] for message in WHOLE} == set(MESSAGES)


def test_a_field_of_another_type_is_named() -> None:
    seen = 0
    for message, at, _ in wrong():
        path, kind = path_of(at), message["type"]
        if is_free(at):
            check_message(kind, message)
            continue
        with pytest.raises(Broken) as raised:
            check_message(kind, message)
        assert f"it sent a {kind} message that cannot be read: `{path}" in str(raised.value), (message, path)
        seen += 1
    assert seen > 300


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Reads a message between a row that is loaded and the end of its stream."""
    sent: list[Any] = []

    def read(given: Any, catalog: Any) -> Output:
        return b"".join(lines(sent)), 0

    connector = ScriptedConnector([stream()], read)
    in_this_process(monkeypatch, connector, prompt=lambda: True)
    world = airbyte_world(tmp_path, streams=connector.streams)

    def sync(message: Message) -> str:
        sent[:] = [record(id=1), state(1, 1), message, status()]
        try:
            return "\n".join(world.read().notes)
        except ReadError as error:
            return str(error)

    with DatabaseFile(tmp_path / "warehouse.db").session():
        yield world, sync
        world.close()


READ = ("RECORD", "STATE", "TRACE", "CONTROL")
SAMPLE = [[], {}, "x", 5, True]


def test_no_message_ends_a_sync_without_a_word_about_it(scripted: Any) -> None:
    """Through the bridge: the rows before it are there, and the error names the field."""
    world, sync = scripted
    tried: set[tuple[str, str, str]] = set()
    for message, at, other in wrong():
        kind, path = message["type"], path_of(at)
        case = (kind, path, type(other).__name__)
        if kind not in READ or other not in SAMPLE or is_free(at) or case in tried:
            continue
        tried.add(case)
        said = sync(message)
        is_data = kind == "RECORD" and path in ("record", "record.data")
        assert ("a record without an object of data" if is_data else f"`{path}") in said, (message, said)
        assert world.ids() == [1]
        assert world.states == {"users": {"at": 1}}
    assert len(tried) > 60


NAMESPACES: list[Any] = [[], {}, ["x"], 0, 5, False, True, 1.5]


@pytest.mark.parametrize("namespace", NAMESPACES, ids=repr)
def test_a_namespace_that_is_no_text_is_no_namespace_of_nobody(scripted: Any, namespace: Any) -> None:
    world, sync = scripted
    one = record(id=2)
    one["record"]["namespace"] = namespace
    assert "`record.namespace` is" in sync(one)
    assert world.ids() == [1]


def test_the_text_of_an_error_that_cannot_be_read_is_in_the_log(
    world: AirbyteWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "instep.connector"):
        said = world.failed(trace("ERROR", message="the disk is full", failure_type=["x"]))
    assert "`trace.error.failure_type` is a list" in said
    assert "the disk is full" in caplog.text


def test_a_shared_state_of_no_streams_is_taken(world: AirbyteWorld) -> None:
    world.read(record(id=1), shared_state(7, {}, 1), status())
    assert world.state["shared"] == {"lsn": 7}


ODD: list[Any] = [None, [], "x", 5, True, {}, [1], ["x"], {"x": 1}, [[]], [None]]
KEYS = ("properties", "oneOf", "anyOf", "allOf", "$ref", "type", "format", "items", "required", "enum", "const",
        "airbyte_type", "contentEncoding", "additionalProperties", "airbyte_secret", "title")  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_json_schema_of_any_form_is_read(key: str, odd: Any) -> None:
    """Of a stream, of a column of it, and of a configuration."""
    inner = {"type": "object", "properties": {"a": {"type": "string"}}, key: odd}
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "o": inner}, key: odd}
    for one in (schema, inner):
        properties(one)
        column_type(one, schema)
    plain = stream_tables("c", [{**stream(), "json_schema": schema}], lambda _: TableSettings(), lambda _: True, {})
    assert [table.ref for table in plain] == [("", "users")]
    requests.DiscoveredStreams(({**stream(), "json_schema": schema},)).fingerprint  # noqa: B018
    own, given = Specification(schema), {"id": "7", "o": {"a": "b", "token": "canary-83"}, "x": ["y"]}
    assert "canary-83" in own.secrets(given)
    assert isinstance(own.fitted(given), dict)
    assert isinstance(own.problems(given), list)
    assert isinstance(specification_differences(own, Specification(inner), given), tuple)
    assert json.dumps(own.fitted(given))
