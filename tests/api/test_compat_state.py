"""The state of a connection whose source is a connector, over the compatible API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_world import Compat, compatible

from instep.bootstrap import open_server
from instep.cli.main import main
from instep.project.sections.connector import segments_folder
from instep.store.admin.backup import dump
from instep.store.engine.keyring import FILE as KEYS
from instep.store.engine.keyring import add_key

FILE = """\
sources: {api: {type: connector, path: connector}}
destinations: {lake: {type: duckdb, path: w.db}}
connections: {shop: {source: api, destination: lake}}
"""
CODE = """\
from fivetran_connector_sdk import Connector, Operations as op

def update(configuration, state):
    op.upsert("t", {"at": state.get("at", 0)})
    op.checkpoint({"at": state.get("at", 0) + 1})

connector = Connector(update=update)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Compat]:
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector" / "connector.py").write_text(CODE)
    with compatible(tmp_path, text="{}", file=FILE) as opened:
        yield opened


def test_a_state_is_shown_and_set_while_nothing_runs(shop: Compat) -> None:
    path = "/connections/shop/state"
    assert "no state yet" in shop.ask("GET", path, status=400)["message"]
    shop.sync()
    assert shop.data("GET", path) == {"state": {"at": 1}}
    assert "has to be paused" in shop.ask("PATCH", path, {"state": {"at": 9}}, status=409)["message"]
    shop.store.pauses.pause("shop", "for a test")
    for wrong in ({}, {"state": 1}, {"state": [1]}, [1]):
        assert shop.ask("PATCH", path, wrong, status=400)["code"] == "InvalidInput"
    assert shop.data("PATCH", path, {"state": {"at": 9}}) == {"state": {"at": 9}}
    entry = shop.store.audit.page()[0]
    assert (entry.target, entry.detail) == ("/v1/connections/shop/state", {"fields": ["state"]})
    assert [e.target for e in shop.store.audit.page()].count(entry.target) == 1, "what is refused has no entry"
    shop.store.pauses.resume("shop", who="test")
    shop.sync()
    assert shop.data("GET", path) == {"state": {"at": 10}}


def test_a_state_is_shown_and_set_without_the_configuration_beside_it(tmp_path: Path) -> None:
    path, rows = "/connections/shop/state", {"airbyte": 1, "type": "LEGACY", "legacy": {"at": 1}}
    beside = {"configuration": {"refresh_token": "canary-9b2c"}, "configuration_of": "a1"}
    file = FILE.replace("connector, path: connector", "airbyte, command: [none]")
    with compatible(tmp_path, text="{}", file=file) as api:
        api.store.connectors.save("shop", {**rows, **beside})
        assert api.data("GET", path) == {"state": rows}
        api.store.pauses.pause("shop", "for a test")
        other = {**rows, "legacy": {"at": 7}}
        body = {"state": {**other, "configuration": {"refresh_token": "mine"}}}
        assert api.data("PATCH", path, body) == {"state": other}
        assert api.store.connectors.get("shop").state == {**other, **beside}


AIRBYTE = FILE.replace("connector, path: connector", "airbyte, command: [none]")
ROWS = {
    "airbyte": 1,
    "type": "STREAM",
    "streams": [{"namespace": "", "name": "users", "state": {"at": 5}}],
    "generations": [["", "users", 1]],
    "records": [["", "users", 7, False]],
}
NO_STATES = [
    ({"streams": [{"name": "users"}]}, "`streams[0].state` is missing"),
    ({"streams": [{"name": "users", "state": None}]}, "`streams[0].state` is missing"),
    ({"streams": [{"state": {}}]}, "`streams[0].name` is not a text"),
    ({"streams": [{"name": 5, "state": {}}]}, "`streams[0].name` is not a text"),
    ({"streams": [{"name": "users", "namespace": ["x"], "state": {}}]}, "`streams[0].namespace` is not a text"),
    ({"streams": [{"name": "users", "stream_state": {}, "state": {}}]}, "`streams[0].stream_state` is not one"),
    ({"streams": ["users"]}, "`streams[0]` is not an object"),
    ({"streams": {"users": {}}}, "`streams.name` is not a text"),
    ({"type": "PER_STREAM"}, "`type` is not one of STREAM, GLOBAL, LEGACY"),
    ({"type": ["STREAM"]}, "`type` is not one of"),
    ({"type": "STREAM", "shared": {"lsn": 1}}, "`shared` counts for the type GLOBAL alone"),
    ({"legacy": {"at": 1}}, "`legacy` counts for the type LEGACY alone"),
    ({"users": {"at": 1}}, "`users` is not one of its keys"),
    ({"airbyte": 2}, "`airbyte`, the version of its form, is not 1"),
    ({"generations": {"users": 1}}, "`generations` is not a list"),
    ({"generations": [["users", 1]]}, "`generations` is not a list"),
    ({"records": [["", "users", 1]]}, "`records` is not a list"),
    ({"records": [["", "users", "1", False]]}, "`records` is not a list"),
    ({"ends": [[None, "users", 1]]}, "`ends` is not a list"),
    ({"reserved": 5}, "`reserved` is not a list"),
]


def test_a_state_that_no_sync_could_read_is_refused(tmp_path: Path) -> None:
    path = "/connections/shop/state"
    with compatible(tmp_path, text="{}", file=AIRBYTE) as api:
        api.store.connectors.save("shop", ROWS)
        api.store.pauses.pause("shop", "for a test")
        for given, why in NO_STATES:
            said = api.ask("PATCH", path, {"state": given}, status=400)
            assert why in said["message"], given
            assert "GET /v1/connections/shop/state" in said["hint"]
            assert api.store.connectors.get("shop").state == ROWS
        assert api.data("PATCH", path, {"state": ROWS}) == {"state": ROWS}


def test_a_stream_that_a_new_state_leaves_out_replaces_its_rows(tmp_path: Path) -> None:
    """Without a key they would come again beside those that are there. Its numbers go on where nothing is said."""
    path = "/connections/shop/state"
    again = {**ROWS, "streams": [], "records": [["", "users", 7, True]]}
    with compatible(tmp_path, text="{}", file=AIRBYTE) as api:
        api.store.pauses.pause("shop", "for a test")
        for given in ({}, {"type": "STREAM", "streams": []}, {**ROWS, "streams": []}):
            api.store.connectors.save("shop", ROWS)
            found = api.data("PATCH", path, {"state": given})["state"]
            assert found["records"] == again["records"]
            assert found["generations"] == ROWS["generations"]
        api.store.connectors.save("shop", ROWS)
        back = {"type": "STREAM", "streams": [{"name": "users", "state": {"at": 2}}]}
        assert api.data("PATCH", path, {"state": back})["state"]["records"] == ROWS["records"]


OTHER = {"namespace": "", "name": "users", "state": {"at": 2}}
SAME = ROWS["streams"][0]
ANSWERS: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    ("set back", ROWS, {"type": "STREAM", "streams": [OTHER]}, True),
    ("as it was", ROWS, {"type": "STREAM", "streams": [SAME]}, False),
    ("left out", ROWS, {"type": "STREAM", "streams": []}, False),
    ("replaced by itself", ROWS, {"streams": [OTHER], "records": [["", "users", 7, True]]}, False),
    ("with a key", {**ROWS, "records": []}, {"type": "STREAM", "streams": [OTHER]}, False),
    ("without rows", {**ROWS, "records": [["", "users", 0, False]]}, {"type": "STREAM", "streams": [OTHER]}, False),
    ("another stream", ROWS, {"streams": [SAME, {"name": "keyed", "state": {"at": 1}}]}, False),
    ("a shared state", {**ROWS, "type": "GLOBAL", "shared": {"lsn": 9}},
     {"type": "GLOBAL", "shared": {"lsn": 1}, "streams": [SAME]}, True),
    ("a single document", {"airbyte": 1, "type": "LEGACY", "legacy": {"at": 9}, "generations": [["", "users", 1]],
                           "records": [["", "users", 7, False]]}, {"type": "LEGACY", "legacy": {"at": 1}}, True),
    ("nothing was saved", {}, {"type": "STREAM", "streams": [OTHER]}, False),
]  # fmt: skip


def test_the_answer_warns_of_records_that_come_again_as_new_rows(tmp_path: Path) -> None:
    path = "/connections/shop/state"
    with compatible(tmp_path, text="{}", file=AIRBYTE) as api:
        api.store.pauses.pause("shop", "for a test")
        for name, known, given, warns in ANSWERS:
            api.store.connectors.save("shop", known)
            message = api.ask("PATCH", path, {"state": given})["message"]
            assert ("records of users come again as new rows" in message) is warns, (name, message)
            assert "has been updated" in message


def test_a_state_is_not_set_while_a_run_of_a_command_is_alive(shop: Compat) -> None:
    """It would be overwritten by the run, whose process no job knows."""
    shop.store.connectors.save("shop", {"at": 1})
    run = shop.store.runs.claim("shop", "sync", "ann")
    shop.store.pauses.pause("shop", "for a test")
    assert run.id in shop.ask("PATCH", "/connections/shop/state", {"state": {"at": 9}}, status=409)["message"]
    assert shop.store.connectors.get("shop").state == {"at": 1}
    shop.store.runs.finish(run, "done")
    assert shop.data("PATCH", "/connections/shop/state", {"state": {"at": 9}}) == {"state": {"at": 9}}


def test_a_state_is_not_shown_to_strangers(shop: Compat) -> None:
    shop.sync()
    shop.client.auth = shop.key("approver", "elsewhere")
    assert shop.ask("GET", "/connections/shop/state", status=404)["code"] == "NotFound_Connection"
    shop.client.auth = shop.key("viewer")
    assert shop.ask("GET", "/connections/shop/state", status=403)["code"], "a connector may keep a token in it"
    assert shop.ask("PATCH", "/connections/shop/state", {"state": {}}, status=403)["code"]


def test_a_state_is_sealed_and_shown_by_whoever_has_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over the server, by commands beside it, and after the keys have turned."""
    monkeypatch.delenv("INSTEP_KEYS", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(["--project", str(tmp_path), *words]), *capsys.readouterr()

    add_key(tmp_path / KEYS, "k1")
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector" / "connector.py").write_text(CODE.replace("+ 1", "+ 1, 'token': 'canary-7d1f'"))
    with compatible(tmp_path, text="{}", file=FILE) as shop:
        shop.sync()
        assert shop.data("GET", "/connections/shop/state") == {"state": {"at": 1, "token": "canary-7d1f"}}
        assert not any("canary-7d1f" in line for line in dump(shop.store._db))
    assert run("sync")[0] == 0
    add_key(tmp_path / KEYS, "k2")
    assert "k1: 1 secret(s), present" in run("secrets", "status")[1]
    assert "1 secret(s) re-encrypted with k2" in run("secrets", "rotate")[1]
    (tmp_path / KEYS).write_text((tmp_path / KEYS).read_text().splitlines()[0])
    with open_server(tmp_path) as app:
        assert app.store.connectors.get("shop").state["at"] == 2
    (tmp_path / KEYS).unlink()
    code, _, told = run("sync")
    assert (code, "connection shop: its connector's state is sealed" in told) == (1, True)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("path", "link"), [("/tmp/mine", ""), ("connectors", ""), ("connectors/../own", ""), ("connectors/l", "own")]
)
def test_a_connector_that_is_not_on_the_shelf_is_refused(tmp_path: Path, path: str, link: str) -> None:
    """Neither made nor changed to, and no folder is looked into."""
    for folder in ("connectors/crm", "own"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "connector.py").write_text(CODE)
    if link:
        (tmp_path / path).symlink_to(tmp_path / link)
    with compatible(tmp_path, text="{}", file="destinations: {lake: {type: duckdb, path: w.db}}\n") as api:
        body = {"group_id": "lake", "service": "connector_sdk", "config": {"path": path, "schema": "crm"}}
        said = api.ask("POST", "/connections", body, 400)
        assert said["code"] == "InvalidInput"
        assert "must be a folder below connectors/" in said["message"]
        assert (api.store.objects.names("source"), api.store.objects.names("connection")) == ((), ())
        made = api.data("POST", "/connections", body | {"config": {"path": "connectors/crm", "schema": "crm"}}, 201)
        assert {test["status"] for test in made["setup_tests"]} <= {"PASSED", "WARNING"}
        refused = api.ask("PATCH", f"/connections/{made['id']}", {"config": {"path": path}}, 400)
        assert "must be a folder below connectors/" in refused["message"]
        (source,) = api.store.objects.names("source")
        assert api.app.objects.project.source(source).path == str(tmp_path / "connectors" / "crm")


def test_operations_that_wait_go_with_a_connection_of_the_server(tmp_path: Path) -> None:
    file = "destinations: {lake: {type: duckdb, path: w.db}}\n"
    kept = (
        "sources: {api: {type: connector, path: connectors/c}}\n"
        "connections: {shop: {source: api, destination: lake}, two: {source: api, destination: lake}}\n"
    )
    with compatible(tmp_path, text=kept, file=file) as api:
        places = {name: segments_folder(tmp_path, name) / "held-1" for name in ("shop", "two")}
        for name, place in places.items():
            place.mkdir(parents=True)
            api.store.connectors.of(name).done({"at": 1}, [(("", "t"), str(place), 1, "ab")], [], "", 0)
        api.ask("DELETE", "/connections/shop")
        assert [p.parent.exists() for p in places.values()] == [False, True]
        assert api.client.delete("/api/v1/connections/two", params={"confirm": "two"}).status_code < 300
        api.worker.idle()
        assert [ended.error for _, ended in api.worker.ended] == [""]
        assert not places["two"].parent.exists()
        assert [api.store.connectors.pending(n) for n in places] == [[], []]
        assert [api.store.connectors.get(n).state for n in places] == [{}, {}]
