"""spec, check and discover: answers, errors by who has to act, configurations that do not fit, and secrets."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from airbyte_wheels import TEXT, stream
from instep.errors import InstepError, ProjectError, ReadError
from instep.project.sections.connector import ConnectorLimits
from instep.sources.airbyte import requests
from instep.sources.airbyte.config import AirbyteConfig
from instep.sources.airbyte.requests import DiscoveredStreams, check, discover, spec
from instep.sources.airbyte.specification import Specification
from instep.sources.connector.segment import LogLine

PLAYER = """
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
script = json.load(open(os.path.join(here, "script.json")))
command = sys.argv[1]
if "--config" in sys.argv:
    file = sys.argv[sys.argv.index("--config") + 1]
    seen = {"argv": sys.argv, "mode": os.stat(file).st_mode & 0o777, "file": file}
    seen["configuration"] = json.load(open(file))
    json.dump({**seen, "environment": dict(os.environ)}, open(os.path.join(here, "seen.json"), "w"))
for line in script.get(command, []):
    if isinstance(line, str):
        print(line, flush=True)
    elif isinstance(line, dict):
        print(json.dumps(line), flush=True)
    elif line[0] == "exit":
        sys.exit(line[1])
    elif line[0] == "sleep":
        time.sleep(line[1])
    elif line[0] == "fill":
        print("x" * line[1], flush=True)
    elif line[0] == "stderr":
        print(line[1], file=sys.stderr, flush=True)
"""
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["host", "count"],
    "additionalProperties": False,
    "properties": {
        "host": {"type": "string", "description": "Where the  shop is", "pattern": "^[a-z.]+$"},
        "count": {"type": "integer", "minimum": 1, "title": "Count"},
        "fraction": {"type": "number"},
        "trim": {"type": "boolean"},
        "since": {"type": "string", "minLength": 10},
        "pin": {"type": "string", "airbyte_secret": True},
        "tables": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "login": {
            "oneOf": [
                {
                    "title": "Key",
                    "required": ["kind", "key"],
                    "properties": {"kind": {"const": "key"}, "key": {"type": "string", "airbyte_secret": True}},
                },
                {
                    "title": "OAuth",
                    "required": ["kind", "client"],
                    "properties": {"kind": {"const": "oauth"}, "client": {"type": "string"}},
                },
            ]
        },
    },
}
CATALOG = {"type": "CATALOG", "catalog": {"streams": [stream(name=TEXT)]}}
SUCCEEDED = {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}}
GOOD = {"host": "shop.example", "count": 3}


def spec_message(schema: Mapping[str, Any] = SPEC) -> dict[str, Any]:
    return {"type": "SPEC", "spec": {"connectionSpecification": schema, "documentationUrl": "https://example.com/doc"}}


def trace(message: str, failure_type: str = "", **more: Any) -> dict[str, Any]:
    error = {"message": message, **({"failure_type": failure_type} if failure_type else {}), **more}
    return {"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1, "error": error}}


class Player:
    def __init__(self, folder: Path) -> None:
        self.folder, self.lines, self.saved = folder, list[LogLine](), list[Mapping[str, Any]]()
        (folder / "player.py").write_text(PLAYER)

    def config(self, configuration: Mapping[str, Any], limits: Mapping[str, Any], **script: Any) -> AirbyteConfig:
        (self.folder / "script.json").write_text(json.dumps({"spec": [spec_message()], **script}))
        command = [sys.executable, str(self.folder / "player.py")]
        return AirbyteConfig.resolved(
            name="shop", command=command, configuration=configuration, limits=ConnectorLimits(**limits)
        )

    def discovered(self, *lines: Any, configuration: Any = GOOD, **limits: Any) -> DiscoveredStreams:
        return discover(self.config(configuration, limits, discover=lines), self.lines.append, self.saved.append)

    def error(self, *lines: Any, configuration: Any = GOOD, **limits: Any) -> InstepError:
        with pytest.raises(InstepError) as raised:
            self.discovered(*lines, configuration=configuration, **limits)
        return raised.value

    @property
    def seen(self) -> Any:
        return json.loads((self.folder / "seen.json").read_text())

    @property
    def log(self) -> str:
        return "\n".join(line.message for line in self.lines)


@pytest.fixture
def player(tmp_path: Path) -> Player:
    return Player(tmp_path)


def test_a_catalog_is_the_answer_whatever_else_is_printed(player: Player) -> None:
    noise = ("hello", {"no": "type"}, {"type": "LOG", "log": {"level": "WARN", "message": "slow"}}, ["stderr", "oops"])
    found = player.discovered(*noise, CATALOG)
    assert [one["name"] for one in found.streams] == ["users"]
    levels = {line.message: (line.level, line.origin) for line in player.lines}
    assert levels["hello"] == ("info", "stdout")
    assert levels["slow"] == ("warning", "connector")
    assert levels["oops"] == ("warning", "stderr")


ANSWER, ROTATED = json.dumps(CATALOG), {**GOOD, "count": 9}
CONTROL = {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": ROTATED}}}


@pytest.mark.parametrize("line", [
    f"Some log{ANSWER}", f"\ufeff{ANSWER}", f"{json.dumps(CONTROL)}{ANSWER}", f"a {json.dumps(CONTROL)} b {ANSWER} c"
])  # fmt: skip
def test_messages_beside_others_and_text_on_one_line_are_taken(player: Player, line: str) -> None:
    assert [one["name"] for one in player.discovered(line).streams] == ["users"]
    assert player.saved == ([ROTATED] if "CONTROL" in line else [])


def test_an_answer_without_a_bottom_is_an_error(player: Player) -> None:
    deep = f'{{"type":"CATALOG","catalog":{{"streams":{"[" * 100_000}{"]" * 100_000}}}}}'
    error = player.error(deep)
    assert type(error) is ReadError
    assert "`discover`: it sent a message that is not JSON of at most 200 levels" in error.message
    assert [one["name"] for one in player.discovered("[" * 100_000, CATALOG).streams] == ["users"]


SECRET = "tiger-lily-77"


def test_the_configuration_is_in_a_private_file_that_is_gone_afterwards(player: Player, monkeypatch: Any) -> None:
    monkeypatch.setenv("INSTEP_KEYS", "ours")
    given = {**GOOD, "count": "3", "trim": "true", "fraction": "0.5", "pin": SECRET}
    echo = {"type": "LOG", "log": {"level": "INFO", "message": f"the pin is {SECRET}"}}
    player.discovered(echo, ["stderr", f"pin={SECRET}"], f"raw {SECRET}", CATALOG, configuration=given)
    seen = player.seen
    assert seen["configuration"] == {**GOOD, "trim": True, "fraction": 0.5, "pin": SECRET}
    assert (seen["mode"], SECRET in str(seen["argv"]), Path(seen["file"]).exists()) == (0o600, False, False)
    assert "INSTEP_KEYS" not in seen["environment"]
    assert SECRET not in player.log
    assert "[redacted]" in player.log


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ({"host": "a.b"}, "count: is required (Count)"),
        ({"count": 1}, "host: is required (Where the shop is)"),
        ({**GOOD, "count": "many"}, "count: must be of type integer (Count)"),
        ({**GOOD, "count": 0}, "count: must be at least 1 (Count)"),
        ({**GOOD, "host": "A B"}, "host: must match ^[a-z.]+$ (Where the shop is)"),
        ({**GOOD, "since": "2020"}, "since: must have at least 10 characters"),
        ({**GOOD, "hosst": "x"}, "hosst: is not known to the connector (host, count,"),
        ({**GOOD, "tables": [{"name": 7}]}, "tables.0.name: must be of type string"),
        ({**GOOD, "login": {"kind": "key"}}, "login.key: is required"),
        ({**GOOD, "login": {"kind": "oauth", "client": 1}}, "login.client: must be of type string"),
        ({**GOOD, "login": {"kind": "password"}}, "login.kind: must be one of key, oauth"),
        ({**GOOD, "pin": 4711_4711}, "pin: must be of type string"),
    ],
)
def test_a_configuration_that_does_not_fit_is_told_by_field_and_without_its_values(
    player: Player, configuration: dict[str, Any], said: str
) -> None:
    error = player.error(CATALOG, configuration=configuration)
    assert isinstance(error, ProjectError)
    assert f"\n  {said}" in error.message
    assert "https://example.com/doc" in error.hint
    for value in ("many", "A B", "password", "47114711"):
        assert value not in str(error).replace("Where", "")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/spec.json"},
        {"type": "no such type"},
        {"properties": {"host": {"pattern": "(["}}},
        {"properties": "nonsense"},
    ],
)
def test_a_schema_that_is_none_stops_nobody(schema: dict[str, Any]) -> None:
    assert Specification(schema).problems(GOOD) == []


@pytest.mark.parametrize(
    ("lines", "kind", "transient", "said"),
    [
        ([trace("wrong key", "config_error"), ["exit", 1]], ProjectError, False, "connector shop: wrong key"),
        ([trace("try later", "transient_error"), ["exit", 1]], ReadError, True, "connector shop: try later"),
        ([trace("a bug", "system_error"), ["exit", 1]], ReadError, False, "connector shop: a bug"),
        (
            [trace("See the logs.", "system_error", internal_message="'count'\n..."), ["exit", 1]],
            ReadError,
            False,
            "connector shop: See the logs. ('count')",
        ),
        ([trace("no type"), ["exit", 1]], ReadError, False, "connector shop: no type"),
        ([CATALOG, trace("half of it", "system_error")], ReadError, False, "half of it"),
        ([CATALOG, ["exit", 3]], ReadError, True, "`discover` failed after its answer (exit code 3)"),
        ([["exit", 0]], ReadError, True, "`discover` gave no answer (exit code 0)"),
        ([{"type": "CATALOG", "catalog": {"streams": 3}}], ReadError, True, "`catalog.streams` is a number"),
        ([{"type": "CATALOG", "catalog": None}], ReadError, True, "`catalog` is missing"),
    ],
)
def test_errors_say_who_has_to_act(
    player: Player, lines: list[Any], kind: type[InstepError], transient: bool, said: str
) -> None:
    error = player.error(*lines)
    assert (type(error), error.transient) == (kind, transient)
    assert said in error.message
    assert error.hint


def test_the_traceback_of_an_error_goes_into_the_log_without_secrets(player: Player) -> None:
    given = {**GOOD, "pin": SECRET}
    error = player.error(trace(f"no {SECRET}", "system_error", stack_trace=f"at {SECRET}"), configuration=given)
    assert SECRET not in str(error) + player.log
    assert "at [redacted]" in player.log


@pytest.mark.parametrize("shift", [0, 1, 5, 12, 13])
def test_an_error_output_that_is_cut_within_a_secret_shows_no_half_of_it(player: Player, shift: int) -> None:
    text = "x" * ((1 << 20) - shift) + SECRET + "y" * 50
    player.error(
        ["stderr", text], ["stderr", "2026 - ERROR - more"], ["exit", 1], configuration={**GOOD, "pin": SECRET}
    )
    assert [part for part in ("tige", "lily", "-77", "y-7") if part in player.log] == []
    assert [line.level for line in player.lines if "more" in line.message] == ["error"]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("discover", {"type": "TRACE", "trace": ["x"]}, "`trace` is a list"),
    ("discover", {"type": "TRACE", "trace": {"type": "ERROR", "error": "boom"}}, "`trace.error` is a text"),
    ("discover", {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "connectorConfig": ["ab"]}},
     "`control.connectorConfig` is a list"),
    ("discover", {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": ["ab"]}}},
     "`control.connectorConfig.config` is a list"),
    ("discover", {"type": "CATALOG", "catalog": {"streams": [{"name": 4}]}}, "`catalog.streams[0].name` is a number"),
    ("discover", {"type": "CATALOG", "catalog": {"streams": [{**stream(name=TEXT), "source_defined_primary_key":
      ["id"]}]}}, "`catalog.streams[0].source_defined_primary_key[0]` is a text, not a list"),
    ("discover", {"type": "CATALOG", "catalog": {"streams": [{**stream(name=TEXT), "default_cursor_field": "id"}]}},
     "`catalog.streams[0].default_cursor_field` is a text, not a list"),
    ("check", {"type": "CONNECTION_STATUS", "connectionStatus": {"status": ["x"]}}, "`connectionStatus.status` is"),
    ("spec", {"type": "SPEC", "spec": {"connectionSpecification": "x"}}, "`spec.connectionSpecification` is a text"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "message", "said"), WRONG, ids=[case[2] for case in WRONG])
def test_an_answer_with_a_field_of_another_type_is_an_error_that_names_it(
    player: Player, command: str, message: dict[str, Any], said: str
) -> None:
    config = player.config(GOOD, {}, **{"discover": [CATALOG], "check": [SUCCEEDED], command: [message]})
    with pytest.raises(ReadError) as raised:
        (check if command == "check" else discover)(config, player.lines.append, player.saved.append)
    assert f"connector shop: `{command}`: it sent a {message['type']} message" in raised.value.message
    assert said in raised.value.message
    assert player.saved == [], "what is no configuration is not saved"


def test_the_text_of_a_check_shows_no_token_of_a_new_configuration(player: Player) -> None:
    new = {**GOOD, "pin": "fresh-lily-88"}
    control = {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": new}}}
    answer = {**SUCCEEDED, "connectionStatus": {"status": "FAILED", "message": "no fresh-lily-88, no tiger-lily-77"}}
    config = player.config({**GOOD, "pin": SECRET}, {}, check=[control, answer])
    found = check(config, player.lines.append, player.saved.append)
    assert found.message == "no [redacted], no [redacted]"


def test_limits_end_what_hangs_or_prints_without_end(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "took more than 2 s" in player.error(["sleep", 600], time=2).message
    monkeypatch.setattr(requests, "MOST_BYTES", 5_000_000)
    assert "printed more than" in player.error(["fill", 9_000_000]).message


def test_what_lingers_after_its_answer_is_ended_and_its_answer_counts(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_AFTERWARDS", 0.5)
    assert player.discovered(CATALOG, ["sleep", 600]).streams


def test_a_new_configuration_is_saved_at_once_and_its_tokens_are_hidden(player: Player) -> None:
    new = {**GOOD, "pin": "fresh-lily-88"}
    control = {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": new}}}
    player.discovered(control, "now fresh-lily-88", CATALOG, ["exit", 0], configuration={**GOOD, "pin": SECRET})
    assert player.saved == [new]
    assert "fresh-lily-88" not in player.log
    assert player.error({**control}, ["exit", 1]).message
    assert len(player.saved) == 2, "also of a request that fails: old tokens may be gone"


@pytest.mark.parametrize(
    ("lines", "succeeded", "message"),
    [
        ([SUCCEEDED], True, ""),
        ([{**SUCCEEDED, "connectionStatus": {"status": "FAILED", "message": "no route"}}], False, "no route"),
        ([{**SUCCEEDED, "connectionStatus": {"status": "FAILED", "message": "no"}}, ["exit", 1]], False, "no"),
        ([trace("x", "config_error"), {**SUCCEEDED, "connectionStatus": {"status": "FAILED"}}], False, ""),
    ],
)
def test_a_check_tells_whether_the_source_is_reached(
    player: Player, lines: list[Any], succeeded: bool, message: str
) -> None:
    found = check(player.config(GOOD, {}, check=lines), player.lines.append, player.saved.append)
    assert (found.succeeded, found.message) == (succeeded, message)


def test_the_specification_of_a_manifest_is_read_from_it(tmp_path: Path) -> None:
    manifest = {"spec": {"connection_specification": SPEC, "documentation_url": "https://example.com/m"}}
    assert (
        Specification.of_message({"connectionSpecification": manifest["spec"]["connection_specification"]}).schema
        == SPEC
    )
    player = Player(tmp_path)
    config = player.config(GOOD, {}, spec=["no answer", ["exit", 2]])
    with pytest.raises(ReadError, match=r"`spec` gave no answer \(exit code 2\)"):
        spec(config, player.lines.append)


def catalog(**more: Any) -> DiscoveredStreams:
    return DiscoveredStreams((stream(name=TEXT, **more),))


def reworked(**schema: Any) -> DiscoveredStreams:
    one = stream()
    return DiscoveredStreams(({**one, "json_schema": {**one["json_schema"], **schema}},))


PROPERTIES = {
    "a": {"type": ["null", "string"], "description": "first"},
    "b": {"oneOf": [{"type": "string"}, {"type": "null"}]},
}
REORDERED = {"b": {"oneOf": [{"type": "null"}, {"type": "string"}]}, "a": {"type": ["string", "null"], "title": "A"}}


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (reworked(properties=PROPERTIES), reworked(properties=REORDERED), True),
        (reworked(required=["a", "b"]), reworked(required=["b", "a"]), True),
        (reworked(properties={"a": {"type": ["string"]}}), reworked(properties={"a": {"type": "string"}}), True),
        (reworked(properties={"a": {"type": "string"}}), reworked(properties={"a": {"type": "integer"}}), False),
        (reworked(properties={"a": TEXT}), reworked(properties={"a": {**TEXT, "format": "date"}}), False),
        (reworked(properties={"title": TEXT}), reworked(properties={"order": TEXT}), False),
        (reworked(properties={"description": TEXT}), reworked(properties={}), False),
        (catalog(), DiscoveredStreams(()), False),
        (DiscoveredStreams((stream("a"), stream("b"))), DiscoveredStreams((stream("b"), stream("a"))), True),
        (DiscoveredStreams((stream("a"),)), DiscoveredStreams((stream("a", key=("id", "x")),)), False),
    ],
)
def test_a_catalog_is_the_same_while_nothing_but_texts_and_orders_differ(
    before: DiscoveredStreams, after: DiscoveredStreams, same: bool
) -> None:
    assert (before.fingerprint == after.fingerprint) == same
