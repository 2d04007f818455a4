"""Code and files that an API key cannot reach: by both routers, in what was stored before, by links and imports."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compat_world import Compat, compatible

from instep.bootstrap import App, open_server
from instep.control.resources.transfer import import_project
from instep.errors import ConnectError
from instep.project.documents import InvalidObject
from instep.project.load import load
from instep.worker.perform import perform

CODE = {"py-io-impl": "subprocess.Popen", "/usr/bin/touch": "", "PROOF": ""}
PATHS = [
    ".instep/state.db",
    "../outside.db",
    "/etc/passwd",
    "file:///etc/passwd",
    "data/../.instep/keys",
    "data/link.db",
]


@pytest.fixture
def compat(tmp_path: Path) -> Iterator[Compat]:
    with compatible(tmp_path) as opened:
        folder = opened.folder
        text = (folder / "instep.yml").read_text()
        (folder / "instep.yml").write_text(text.replace("shelves: [.]", "shelves: [data, lakes]"))
        assert opened.app.refresh() == ""
        (folder / "data").mkdir()
        (folder / "data/link.db").symlink_to("../.instep/state.db")
        with closing(sqlite3.connect(folder / "data/shop.db")) as shop:
            shop.execute("create table item (id integer primary key)")
        yield opened


def own(compat: Compat, method: str, path: str, spec: dict[str, Any], name: str = "x") -> Any:
    body = {"spec": spec, **({"name": name} if method == "POST" else {})}
    headers = {"Authorization": f"Bearer {compat.pair[1]}"}
    return compat.client.request(method, f"/api/v1{path}", json=body, headers=headers, auth=None)


def test_code_in_properties_is_refused_by_every_way_in(compat: Compat) -> None:
    lake = {"type": "iceberg", "warehouse": "lakes/w"}
    assert own(compat, "POST", "/destinations", lake, "w").status_code == 201
    for method, path in (("POST", "/destinations"), ("PUT", "/destinations/w"), ("PATCH", "/destinations/w")):
        refused = own(compat, method, path, {**lake, "properties": CODE})
        assert refused.status_code == 422, refused.text
        assert [error["at"] for error in refused.json()["errors"]] == [
            "/spec/properties/py-io-impl", "/spec/properties/~1usr~1bin~1touch", "/spec/properties/PROOF",
        ]  # fmt: skip
    assert own(compat, "GET", "/destinations/w", {}).json()["spec"] == lake
    group = compat.data("POST", "/groups", {"name": "pond"}, 201)["id"]
    body = {"group_id": group, "service": "iceberg", "config": {"warehouse": "lakes/p", "properties": CODE}}
    assert "py-io-impl" in compat.ask("POST", "/destinations", body, 400)["message"]
    body["config"] = {"warehouse": "lakes/p"}
    compat.data("POST", "/destinations", {**body, "run_setup_tests": False}, 201)
    patch = {"config": {"properties": CODE}}
    assert "py-io-impl" in compat.ask("PATCH", f"/destinations/{group}", patch, 400)["message"]


@pytest.mark.sampled
@pytest.mark.parametrize("path", PATHS)
def test_a_path_beside_the_shelves_is_refused_by_every_way_in(compat: Compat, path: str) -> None:
    source = {"type": "sqlite", "path": path}
    assert own(compat, "POST", "/sources", source).status_code == 422
    assert own(compat, "PUT", "/sources/x", source).status_code == 422
    assert own(compat, "POST", "/sources", {**source, "path": "data/shop.db"}).status_code == 201
    assert own(compat, "PATCH", "/sources/x", {"path": path}).status_code == 422
    config = {"path": path, "schema": "mine"}
    body = {"group_id": "lake", "service": "sqlite", "config": config, "run_setup_tests": False}
    assert "path" in compat.ask("POST", "/connections", body, 400)["message"]
    made = compat.data("POST", "/connections", {**body, "config": {**config, "path": "data/shop.db"}}, 201)
    assert "path" in compat.ask("PATCH", f"/connections/{made['id']}", {"config": {"path": path}}, 400)["message"]
    later = compat.data("POST", "/connections", {**body, "config": {"schema": "later"}}, 201)["id"]
    assert "path" in compat.ask("PATCH", f"/connections/{later}", {"config": {"path": path}}, 400)["message"]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    (tmp_path / "instep.yml").write_text("engine: local\n")
    (tmp_path / "data").mkdir()
    with closing(sqlite3.connect(tmp_path / "data/shop.db")) as shop:
        shop.execute("create table item (id integer primary key)")
    with open_server(tmp_path, insecure_dev=True) as app:
        app.objects.put("source", "shop", {"type": "sqlite", "path": "data/shop.db"}, who="eve")
        app.objects.put("destination", "lake", {"type": "iceberg", "warehouse": "lakes/l"}, who="eve")
        app.objects.put("connection", "shop", {"source": "shop", "destination": "lake"}, who="eve")
        yield app


BEFORE = [
    ("destination", "lake", {"type": "iceberg", "warehouse": "lakes/l", "properties": CODE}, "properties.py-io-impl"),
    ("source", "shop", {"type": "sqlite", "path": ".instep/state.db"}, "path"),
    ("source", "shop", {"type": "files", "path": "${env:HOME}"}, "path"),
    ("source", "shop", {"type": "mysql", "database": "d", "user": "u", "tls": {"cert": "data/c", "key": "${file:x}"}},
     "tls.key"),
    ("connection", "shop", {"source": "shop", "destination": "lake", "downstream": {"manifest": "/etc/passwd"}},
     "downstream.manifest"),
    ("connection", "shop", {"source": "shop", "destination": "lake", "tables": {"*.*": {"properties": CODE}}},
     "tables.*.*.properties.py-io-impl"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "spec", "place"), BEFORE, ids=[b[3] for b in BEFORE])
def test_what_was_stored_before_the_rule_is_not_opened(
    app: App, kind: Any, name: str, spec: dict[str, Any], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(app.project.root)
    app.store.objects.put(kind, name, spec, who="before")
    with pytest.raises(InvalidObject) as refused:
        app.sync_context("shop")
    assert place in str(refused.value)
    job = app.store.jobs.enqueue("shop", "sync", who="eve")
    worker = app.store.workers.register(1)
    ended = perform(app, app.store.jobs.claim(worker.id) or job)
    assert place in (ended.error or "")
    assert not Path("PROOF").exists()


def test_a_path_is_looked_at_again_when_it_is_opened(app: App) -> None:
    shop = app.project.root / "data/shop.db"
    shop.unlink()
    shop.symlink_to("../.instep/state.db")
    with pytest.raises(InvalidObject, match="shelves"):
        app.sync_context("shop")


@pytest.mark.parametrize("whole", [True, False])
def test_links_in_a_folder_of_files_lead_nowhere(app: App, tmp_path: Path, whole: bool) -> None:
    drop = app.project.root / "data/drop/t"
    drop.mkdir(parents=True)
    (drop / "a.csv").write_text("id\n1\n")
    (app.project.root / ".instep/more").mkdir()
    (app.project.root / ".instep/more/keys.csv").write_text("id\n2\n")
    (drop.parent / "u").symlink_to("../../.instep/more") if whole else (drop / "b.csv").symlink_to(
        "../../../.instep/more/keys.csv"
    )
    app.objects.put("source", "drop", {"type": "files", "path": "data/drop", "settle": 0}, who="eve")
    with pytest.raises(ConnectError, match="leads out of"):
        app.source("drop").discover()
    (drop.parent / "u" if whole else drop / "b.csv").unlink()
    assert [table.name for table in app.source("drop").discover().catalog.tables] == ["t"]


def test_an_import_is_held_to_the_rule(app: App, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for said in ("{type: sqlite, path: ../.instep/state.db}", "{type: sqlite, path: '${env:WHERE}'}"):
        (other / "instep.yml").write_text(f"sources: {{x: {said}}}\n")
        with pytest.raises(InvalidObject, match="x: path"):
            import_project(app.objects, load(other, {"WHERE": ".instep/state.db"}), who="eve")


def test_a_secret_that_is_kept_leads_nowhere_either(app: App) -> None:
    put = app.objects.put
    put("source", "b", {"type": "files", "path": "s3://key:hush@bucket/x"}, who="eve")
    with pytest.raises(InvalidObject, match="path"):
        put("source", "b", {"type": "sqlite", "path": "******"}, who="eve")
    assert app.objects.get("source", "b").spec["path"] == "******"
