"""The configuration of a connector as whoever may read a source sees it: what the connector's own specification calls
secret is not in it, and before that is known, nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from instep.bootstrap import App, open_server
from instep.project.documents import MASK
from instep.redaction import HIDDEN, blot
from instep.sources.airbyte.specification import Specification
from served_requests import requested, served_project

SECRETS = ("99-swordfish", "mellon-1234", "abracadabra", "plain-by-mistake", "in-a-list", "7391")
CONFIGURATION = """\
      host: shop.example
      pages: 3
      trim: true
      pin: 99-swordfish
      number: 7391
      login: {kind: key, value: mellon-1234}
      referred: abracadabra
      from_outside: '${env:OUTSIDE}'
      with_default: '${env:OUTSIDE:-plain-by-mistake}'
      unknown: plain-by-mistake
      words: [in-a-list]
      parts: [a, b]
"""
FILE = f"""\
sources:
  shop:
    type: airbyte
    command: ["{sys.executable}", player.py]
    configuration:
{CONFIGURATION}
destinations: {{lake: {{type: iceberg}}}}
connections: {{shop: {{}}}}
"""
TEXT, HIDDEN_TEXT = {"type": "string"}, {"type": "string", "airbyte_secret": True}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "definitions": {"text": TEXT},
    "properties": {
        "host": TEXT,
        "pages": {"type": "integer"},
        "trim": {"type": "boolean"},
        "pin": HIDDEN_TEXT,
        "number": {"type": "integer", "airbyte_secret": True},
        "login": {
            "oneOf": [
                {"properties": {"kind": {"const": "key"}, "value": HIDDEN_TEXT}},
                {"properties": {"kind": {"const": "open"}, "value": TEXT}},
            ]
        },
        "referred": {"$ref": "#/definitions/text", "airbyte_secret": True},
        "from_outside": HIDDEN_TEXT,
        "words": {"type": "array", "items": HIDDEN_TEXT},
        "parts": {"type": "array", "items": TEXT},
    },
}
PLAYER = """
import json, sys
answers = {"spec": {"type": "SPEC", "spec": {"connectionSpecification": json.load(open("schema.json"))}},
           "check": {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "FAILED", "message": "no"}}}
print(json.dumps(answers[sys.argv[1]]))
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("OUTSIDE", "from-outside")
    files = {"instep.yml": FILE, "player.py": PLAYER, "schema.json": json.dumps(SCHEMA)}
    with served_project(tmp_path, files) as opened:
        yield opened


def shown(app: App) -> dict[str, Any]:
    spec = requested(app, "viewer", "GET", "/api/v1/sources/shop").json()["spec"]
    configuration: dict[str, Any] = spec["configuration"]
    return configuration


def check(app: App) -> None:
    assert app.source("shop").test()


def test_a_viewer_sees_what_the_connector_calls_no_secret(app: App) -> None:
    before = shown(app)
    assert before["host"] == before["pin"] == before["parts"][0] == before["login"]["kind"] == MASK
    assert (before["trim"], before["from_outside"]) == (True, "${env:OUTSIDE}")
    check(app)
    assert shown(app) == {
        "host": "shop.example", "pages": 3, "trim": True, "pin": MASK, "number": MASK, "referred": MASK,
        "login": {"kind": "key", "value": MASK}, "from_outside": "${env:OUTSIDE}", "with_default": MASK,
        "unknown": MASK, "words": [MASK], "parts": ["a", "b"],
    }  # fmt: skip


def test_another_program_may_have_other_secrets(app: App, tmp_path: Path) -> None:
    check(app)
    tmp_path.joinpath("instep.yml").write_text(FILE.replace("player.py]", "./player.py]"))
    other = open_server(tmp_path, insecure_dev=True)
    assert shown(other)["host"] == MASK
    other.store.close()


@pytest.mark.parametrize("known", [True, False], ids=["its specification is known", "it is not"])
@pytest.mark.parametrize(("method", "path", "body"), [
    ("GET", "/api/v1/sources", None), ("GET", "/api/v1/sources/shop", None), ("GET", "/api/v1/references", None),
    ("DELETE", "/api/v1/sources/shop", None), ("PATCH", "/api/v1/sources/shop", {"spec": {"sandbox": True}}),
    ("GET", "/api/v1/connections/shop", None), ("GET", "/v1/connections/shop", None),
])  # fmt: skip
def test_no_answer_has_a_secret(app: App, known: bool, method: str, path: str, body: Any) -> None:
    if known:
        check(app)
    text = requested(app, "admin", method, path, body).text
    assert [secret for secret in SECRETS if secret in text] == []
    if method == "PATCH":
        assert "configuration:" in text
        assert "${env:SHOP_PIN}" in text or "PIN}" in text, "what the file has to say instead"
        assert MASK not in text


def test_a_specification_that_refers_to_itself_is_walked_through_soon() -> None:
    many = {f"d{n}": {"oneOf": [{"$ref": f"#/definitions/d{m}"} for m in range(20)]} for n in range(20)}
    many["d0"]["properties"] = {"a": HIDDEN_TEXT, "b": {"$ref": "#/definitions/d1"}}
    spec = Specification({"$ref": "#/definitions/d0", "definitions": many})
    value = {"a": "abcdefghij", "b": {"a": "klmnopqrst", "b": {"c": "1"}}}
    assert spec.secrets(value) == ("abcdefghij", "klmnopqrst")
    assert spec.fitted(value) == value
    assert spec.open_fields(value) == ()


CONDITIONAL: list[tuple[str, dict[str, Any]]] = [
    ("behind a condition", {"if": {}, "then": {"properties": {"a": HIDDEN_TEXT}}}),
    ("otherwise", {"else": {"properties": {"a": HIDDEN_TEXT}}}),
    ("with another field", {"dependencies": {"b": {"properties": {"a": HIDDEN_TEXT}}}}),
    ("by a pattern", {"patternProperties": {"^a": HIDDEN_TEXT}}),
    ("of a part", {"allOf": [{"properties": {"a": HIDDEN_TEXT}}]}),
    ("called so by its reference", {"properties": {"a": {"$ref": "#/definitions/t", "airbyte_secret": True}}}),
    ("called so where it leads", {"properties": {"a": {"$ref": "#/definitions/h"}}}),
    ("of an item by its place", {"properties": {"a": {"items": [TEXT, HIDDEN_TEXT]}}}),
]


@pytest.mark.parametrize(("_name", "schema"), CONDITIONAL, ids=[name for name, _ in CONDITIONAL])
def test_a_field_is_secret_whichever_branch_says_so(_name: str, schema: dict[str, Any]) -> None:
    value = ["abcdefghij"] if "place" in _name else "abcdefghij"
    base = {"definitions": {"t": TEXT, "h": HIDDEN_TEXT}, "allOf": [{"properties": {"a": TEXT, "b": TEXT}}, schema]}
    spec = Specification(base)
    assert spec.secrets({"a": value, "b": "1"}) == ("abcdefghij",)
    by_pattern = "patternProperties" in schema  # which names a pattern means is the connector's business
    assert spec.open_fields({"a": value, "b": "x"}) == (() if by_pattern else (("b",),))


ECHO = """
import json, os, sys
given, command = sys.argv[1:3]
print(json.dumps({"type": "LOG", "log": {"level": "WARN", "message": f"given {given}"}}))
if command == "spec":
    print(json.dumps({"type": "SPEC", "spec": {"connectionSpecification": {}}}))
else:
    words = json.load(open(sys.argv[sys.argv.index("--config") + 1]))["words"]
    same = "SUCCEEDED" if given == os.environ["SAME"] == words[0] else "FAILED"
    print(json.dumps({"type": "CONNECTION_STATUS", "connectionStatus": {"status": same, "message": given}}))
"""


@pytest.mark.parametrize("right", [True, False])
def test_references_in_lists_are_what_they_lead_to_and_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    value = f"word-{token_hex(8)}"
    monkeypatch.setenv("OUTSIDE", value)
    tmp_path.joinpath("echo.py").write_text(ECHO)
    tmp_path.joinpath("instep.yml").write_text(f"""\
sources:
  shop:
    type: airbyte
    command: ["{sys.executable}", echo.py, '${{env:OUTSIDE}}']
    environment: {{SAME: {"'${env:OUTSIDE}'" if right else "another"}}}
    configuration: {{words: ['${{env:OUTSIDE}}']}}
destinations: {{lake: {{type: iceberg}}}}
connections: {{shop: {{}}}}
""")
    opened = open_server(tmp_path, insecure_dev=True)
    checked = opened.source("shop").test()
    opened.store.close()
    assert checked[0].ok == right, checked
    assert value not in str(checked)
    assert blot(value) == HIDDEN
