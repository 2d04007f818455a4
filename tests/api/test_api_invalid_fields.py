"""What is wrong with a request is told in the API's own words, by its place, and without a text that was given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from api_world import Api
from compat_world import Compat
from pydantic import BaseModel, TypeAdapter, ValidationError

from instep.server import invalid_fields
from instep.server.body_keys import COMPATIBLE, OWN
from instep.server.fivetran_api.http import request_body
from instep.server.invalid_fields import field_problems
from instep.suggest import did_you_mean

CANARY = "canary-7c1e"
FOREIGN = re.compile(
    r"Input|input|Extra|Field required|String should|valid (integer|boolean|string)|pydantic|JSON decode"
)
LONG = "x" * 9_000

# method and path, body or parameters, (place, text) of what is wrong
CASES: list[tuple[str, str, Any, list[tuple[str, str]]]] = [
    ("POST", "/keys", {"name": "a", "rol": "viewer"}, [
        ("body.role", "is required"), ("body.rol", "unknown field, did you mean role?")]),
    ("POST", "/keys", {"name": "a", "role": "viewr"}, [
        ("body.role", "must be one of 'viewer', 'operator', 'approver' or 'admin', did you mean viewer?")]),
    ("POST", "/keys", {"name": "a", "role": CANARY}, [
        ("body.role", "must be one of 'viewer', 'operator', 'approver' or 'admin'")]),
    ("POST", "/keys", {"name": 7, "role": True}, [
        ("body.name", "must be text, not a number"),
        ("body.role", "must be one of 'viewer', 'operator', 'approver' or 'admin', not true or false")]),
    ("POST", "/keys", {"name": "", "role": "viewer"}, [("body.name", "must not be empty")]),
    ("POST", "/keys", {"name": "a", "role": "viewer", "groups": CANARY}, [("body.groups", "must be a list, not text")]),
    ("POST", "/keys", {"name": "a", "role": "viewer", "groups": ["x", None]}, [
        ("body.groups.1", "must be text, not null")]),
    ("POST", "/connections/eu/pause", [], [("body", "must be an object, not a list")]),
    ("POST", "/connections/eu/pause", CANARY, [("body", "must be an object, not text")]),
    ("POST", "/connections/eu/pause?dryrun=true", {"reason": "x"}, [
        ("query.dryrun", "unknown field, did you mean dry_run?")]),
    ("POST", "/connections/eu/pause?dry_run=maybe", {"reason": "x"}, [("query.dry_run", "must be true or false")]),
    ("DELETE", "/connections/eu?table=drop", None, [("query.table", "unknown field, did you mean tables?")]),
    ("GET", "/runs?limit=ten", None, [("query.limit", "must be a whole number")]),
    ("GET", "/runs?limit=0", None, [("query.limit", "must be at least 1, not 0")]),
    ("GET", "/runs?limit=99999", None, [("query.limit", "must be at most 1000, not 99999")]),
    ("GET", "/runs?conection=eu", None, [("query.conection", "unknown field, did you mean connection?")]),
    ("GET", "/me?color=red", None, [("query.color", "unknown field")]),
    ("GET", f"/runs?cursor={'x' * 501}", None, [("query.cursor", "must have at most 500 characters")]),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "wrong"), CASES)
def test_a_field_that_is_wrong(api: Api, method: str, path: str, body: Any, wrong: list[tuple[str, str]]) -> None:
    found = api.call(method, path, body=body)
    assert (found.status_code, found.json()["code"]) == (422, "invalid"), found.text
    assert sorted((one["at"], one["message"]) for one in found.json()["errors"]) == sorted(wrong)
    assert all(f"{place}: {text}" in found.json()["detail"] for place, text in wrong)
    assert CANARY not in found.text


def test_a_body_that_is_no_json(api: Api) -> None:
    headers = {**api.key("admin"), "Content-Type": "application/json"}
    found = api.client.post("/api/v1/keys", content=f'{{"name": "{CANARY}",,}}', headers=headers)
    assert (found.status_code, found.json()["code"]) == (400, "unreadable")
    assert "JSON" in found.json()["detail"]
    assert CANARY not in found.text


# method, path, body and the message
FOR_CLIENTS: list[tuple[str, str, Any, str]] = [
    ("POST", "/groups", {}, "name: is required."),
    ("POST", "/groups", {"name": 7}, "name: must be text, not a number."),
    ("PATCH", "/connections/shop", {"schedule_type": "manul"},
     "schedule_type: must be one of 'auto' or 'manual', did you mean manual?."),
    ("PATCH", "/connections/shop", {"schedule_type": CANARY}, "schedule_type: must be one of 'auto' or 'manual'."),
    ("PATCH", "/connections/shop", {"paused": CANARY}, "paused: must be true or false."),
    ("PATCH", "/connections/shop", {"data_delay_threshold": -1}, "data_delay_threshold: must be at least 0, not -1."),
    ("PATCH", "/connections/shop", {"config": []}, "config: must be an object, not a list."),
    ("PATCH", "/connections/shop/schemas", {"schemas": {"main": {"tables": {"item": {"enabled": 3}}}}},
     "schemas.main.tables.item.enabled: must be true or false, not a number."),
    ("PATCH", "/connections/shop", [CANARY], "The body must be a JSON object."),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "message"), FOR_CLIENTS)
def test_a_field_that_is_wrong_for_clients(compat: Compat, method: str, path: str, body: Any, message: str) -> None:
    refused = compat.ask(method, path, body, 400)
    assert (refused["code"], refused["message"]) == ("InvalidInput", message)


def test_a_name_that_clients_have_misspelled_is_left_out_with_what_was_meant(compat: Compat) -> None:
    told = compat.ask("PATCH", "/connections/shop", {"schedule_typ": "manual"})["message"]
    assert told.endswith("no effect here: schedule_typ (did you mean schedule_type?).")


def _bodies() -> Iterator[tuple[type[BaseModel], dict[str, Any]]]:
    """Each body with each of its fields as something else, and with a field that it does not have."""
    for model in (*OWN, *COMPATIBLE):
        for name, field in model.model_fields.items():
            for value in (CANARY, LONG, "", 7.5, -(10**30), True, [], [CANARY], [{CANARY: 1}], {CANARY: 1}, None):
                yield model, {field.alias or name: value}
        yield model, {CANARY: CANARY}


def test_no_body_is_refused_in_the_words_of_a_library() -> None:
    seen = 0
    for model, document in _bodies():
        try:
            TypeAdapter(model).validate_python(document)
        except ValidationError as error:
            for place, text in field_problems(error.errors(include_url=False), model, document):
                seen += 1
                assert not FOREIGN.search(text), (model, document, text)
                assert CANARY not in text.replace(f"unknown field, {CANARY}", ""), (model, document, text)
                assert json.dumps(place), place
    assert seen > 1_000


def test_thousands_of_unknown_fields_are_told_in_part_and_soon(
    api: Api, compat: Compat, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [0]

    def counted(*given: Any, **more: Any) -> str:
        asked[0] += 1
        return did_you_mean(*given, **more)

    monkeypatch.setattr(invalid_fields, "did_you_mean", counted)
    monkeypatch.setattr(request_body, "did_you_mean", counted)
    strange = {f"schedule{n}{'x' * 50}": 1 for n in range(5_000)}
    found = api.call("POST", "/connections/eu/pause", body={"reason": "x", **strange})
    assert (found.status_code, len(found.json()["errors"]), asked[0]) == (422, 100, 100)
    told = compat.ask("PATCH", "/connections/shop", {"schedule_type": "manual", **strange})["message"]
    assert ("and 4990 more" in told, asked[0]) == (True, 110)
