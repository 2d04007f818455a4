"""What a connector is given, as whoever may read its source sees it: its code alone knows which of it is secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from instep.bootstrap import App
from instep.control.resources.transfer import export_text
from instep.errors import ProjectError
from instep.project.documents import MASK, masked_arguments, pointer, secrets_in
from instep.store.store import Store
from served_requests import requested, served_project

CONFIGURATION = {
    "host": "shop.example",
    "pin": "99-swordfish",
    "password": "mellon-1234",
    "count": 7391,
    "trim": "true",
}
ENVIRONMENT = {"SHOP_MODE": "abracadabra99"}
SECRETS = ("99-swordfish", "mellon-1234", "abracadabra99", "7391")
OWN = {"type": "connector", "path": "connectors/own", "configuration": CONFIGURATION, "environment": ENVIRONMENT}
FILE = """\
sources:
  shop:
    type: connector
    path: connectors/own
    configuration: {host: shop.example, pin: 99-swordfish, password: '${env:OUTSIDE}', count: 7391}
    environment: {SHOP_MODE: abracadabra99}
  air:
    type: airbyte
    command: [python3, player.py, --token, mellon-1234, --pages, '3', --password, '${env:OUTSIDE}']
    environment: {SHOP_MODE: abracadabra99}
destinations: {lake: {type: iceberg}}
connections: {shop: {source: shop}}
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("OUTSIDE", "from-outside")
    (tmp_path / "connectors" / "own").mkdir(parents=True)
    with served_project(tmp_path, {"instep.yml": FILE}) as opened:
        yield opened


def request(app: App, role: str, method: str, path: str, body: Any = None) -> Any:
    answer = requested(app, role, method, path, body)
    found = [one for one in SECRETS if one in answer.text]
    assert not found, (method, path, found)
    return answer.json()


@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_no_value_of_a_connector_of_the_file_is_shown(app: App, role: str) -> None:
    spec = request(app, role, "GET", "/api/v1/sources/shop")["spec"]
    assert spec["configuration"] == {"host": MASK, "pin": MASK, "password": "${env:OUTSIDE}", "count": MASK}
    assert spec["environment"] == {"SHOP_MODE": MASK}
    air = request(app, role, "GET", "/api/v1/sources/air")["spec"]
    assert air["command"] == ["python3", "player.py", "--token", MASK, "--pages", "3", "--password", "${env:OUTSIDE}"]
    assert air["environment"] == {"SHOP_MODE": MASK}
    request(app, role, "GET", "/api/v1/sources")


@pytest.mark.parametrize("source", ["shop", "air"])
def test_what_a_file_has_to_say_instead_names_no_value(app: App, source: str) -> None:
    answer = request(app, "admin", "PATCH", f"/api/v1/sources/{source}", {"spec": {"sandbox": True}})
    assert answer["status"] == 409
    assert MASK not in json.dumps(answer)
    assert "${env:OUTSIDE}" in answer["hint"]
    assert request(app, "admin", "DELETE", f"/api/v1/sources/{source}")["status"] == 409


def test_a_value_that_is_not_shown_stays_as_it_is(app: App) -> None:
    made = request(app, "admin", "POST", "/api/v1/sources", {"name": "mine", "spec": OWN})["object"]["spec"]
    assert made["configuration"] == dict.fromkeys(CONFIGURATION, MASK)
    assert request(app, "viewer", "GET", "/api/v1/sources/mine")["spec"] == made
    again = {**made, "configuration": {**made["configuration"], "trim": "false"}}
    assert request(app, "admin", "PUT", "/api/v1/sources/mine", {"spec": again})["object"]["spec"] == made
    request(app, "admin", "PATCH", "/api/v1/sources/mine", {"spec": {"configuration": {"trim": None}}})
    stored = app.store.objects.get("source", "mine")
    assert stored is not None
    kept = stored.spec["configuration"]
    assert (kept["host"], kept["pin"], kept["count"]) == ("shop.example", "99-swordfish", 7391)
    assert "trim" not in kept
    assert stored.spec["environment"] == ENVIRONMENT


AIR = {"type": "airbyte", "configuration": {"pin": "99-swordfish", "parts": [{"word": "in-a-list-77", "n": 7391}]}}


@pytest.mark.parametrize("kind", ["connector", "airbyte"])
def test_no_value_of_a_connector_is_in_clear_in_the_store(app: App, tmp_path: Path, kind: str) -> None:
    spec = OWN if kind == "connector" else AIR
    app.store.objects.put("source", "mine", spec, who="test")
    kept = b"".join(path.read_bytes() for path in (tmp_path / ".instep").glob("state.db*"))
    clear = ["shop.example", "99-swordfish", "abracadabra99", "in-a-list-77", "swordfish"]
    assert [one for one in clear if one.encode() in kept] == []
    for _ in range(2):
        stored = app.store.objects.get("source", "mine")
        assert stored is not None
        assert stored.spec == spec
        assert [one.spec for one in app.store.objects.page("source")] == [spec]
        assert app.store.secrets.by_key()
        app.store.objects.put("source", "mine", stored.spec, who="test")


def test_what_a_connector_is_given_is_exported_moved_and_deleted(app: App) -> None:
    request(app, "admin", "POST", "/api/v1/sources", {"name": "mine", "spec": OWN})
    exported = export_text(app.objects)
    assert "shop.example" in exported
    assert "mellon-1234" not in exported, "what looks like a secret is a variable"
    for trim in ("false", "true"):
        request(app, "admin", "PATCH", "/api/v1/sources/mine", {"spec": {"configuration": {"trim": trim}}})
        assert len(app.store.secrets.of("source", "mine")) == 3, "password, configuration and environment"
    moved = {"spec": {"configuration": {"host": "evil.example"}}}
    assert request(app, "admin", "PATCH", "/api/v1/sources/mine", moved)["status"] == 422, "with the password sealed"
    assert request(app, "admin", "DELETE", "/api/v1/sources/mine")["deleted"] == "mine"
    assert app.store.secrets.of("source", "mine") == []


def test_without_the_master_keys_the_object_is_listed_and_a_use_of_it_says_why(app: App, tmp_path: Path) -> None:
    request(app, "admin", "POST", "/api/v1/sources", {"name": "mine", "spec": OWN})
    with Store(f"sqlite:///{tmp_path / '.instep' / 'state.db'}") as store:
        [kept] = store.objects.page("source")
        [(place, id)] = [one for one in secrets_in(kept.spec).items() if one[0][0] == "configuration"]
        with pytest.raises(ProjectError, match="no master keys"):
            store.secrets.open(id, "source", "mine", pointer(place))


def test_stars_where_nothing_was_are_no_value(app: App) -> None:
    request(app, "admin", "POST", "/api/v1/sources", {"name": "mine", "spec": OWN})
    body = {"spec": {"configuration": {"other": MASK}}}
    assert request(app, "admin", "PATCH", "/api/v1/sources/mine", body)["status"] == 422


@pytest.mark.parametrize(("given", "shown"), [
    (["--token", "a"], ["--token", MASK]),
    (["-password", "a", "b"], ["-password", MASK, "b"]),
    (["--api-key=a", "b"], [MASK, "b"]),
    (["-H", "Authorization: Bearer abcdefgh"], ["-H", MASK]),
    (["https://u:pw@shop.example/"], [MASK]),
    (["PASSWORD=a"], [MASK]),
    (["--token", "${env:TOKEN}"], ["--token", "${env:TOKEN}"]),
    (["--token", "${env:TOKEN:-a}"], ["--token", MASK]),
    (["--pages", "3", "token", "b"], ["--pages", "3", "token", "b"]),
    (["--token-file", 3], ["--token-file", MASK]),
])  # fmt: skip
def test_an_argument_that_is_called_secret_is_not_shown(given: list[Any], shown: list[Any]) -> None:
    assert masked_arguments(given) == shown
