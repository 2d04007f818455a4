"""Connectors that a server keeps: whoever may write a source runs no code of their choice with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from instep.bootstrap import opens
from instep.control.resources.resources import Resources
from instep.control.resources.transfer import import_project
from instep.project.documents import InvalidObject
from instep.project.load import load, load_beside
from instep.project.served import served
from instep.store.engine.keyring import Keyring, new_key, parse
from instep.store.store import Store


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Resources]:
    """With a connector on the shelf, one elsewhere, and a link on the shelf that leads there."""
    server, elsewhere = tmp_path / "server", tmp_path / "elsewhere"
    for folder in (server / "connectors" / "crm", elsewhere):
        folder.mkdir(parents=True)
        folder.joinpath("connector.py").touch()
        folder.joinpath("settings.json").write_text('{"a": "b"}')
    server.joinpath("connectors", "link").symlink_to(elsewhere)
    server.joinpath("connectors", "round").symlink_to(server / "connectors" / "round")
    server.joinpath("instep.yml").write_text(f"sources: {{own: {{type: connector, path: {elsewhere}}}}}\n")
    with Store(f"sqlite:///{tmp_path / 'state.db'}", keys=Keyring(parse(new_key("k"), ""))) as store:
        yield Resources(served(load_beside(server, {}), store.objects, opens(store.secrets)), store)


def put(objects: Resources, **said: Any) -> None:
    objects.put("source", "api", {"type": "connector", **said}, who="eve")


@pytest.mark.parametrize(
    "said",
    [
        {"path": "connectors/crm"},
        {"path": "./connectors/../connectors/crm"},
        {"path": "connectors/not-there-yet"},
        {"path": "connectors/crm", "configuration_file": "connectors/crm/settings.json"},
        {"path": "connectors/crm", "environment": {"REGION": "eu", "HTTPS_PROXY": "p"}, "configuration": {"a": "b"}},
    ],
)
def test_a_connector_on_the_shelf_is_taken(objects: Resources, said: dict[str, Any]) -> None:
    put(objects, **said)
    assert objects.project.source("api").path.startswith(str(objects.project.root))


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ({"path": "connectors"}, "path"),
        ({"path": "connectors/.."}, "path"),
        ({"path": "connectors/../../elsewhere"}, "path"),
        ({"path": "connectors/link"}, "path"),
        ({"path": "connectors/link/deeper"}, "path"),
        ({"path": "connectors/round"}, "path"),
        ({"path": "connectors-2/crm"}, "path"),
        ({"path": "/"}, "path"),
        ({"path": "/tmp"}, "path"),
        ({"path": "~/connectors/crm"}, "path"),
        ({"path": "file://connectors/crm"}, "path"),
        ({"path": "connectors/crm", "python": "/usr/bin/python3"}, "python"),
        ({"path": "connectors/crm", "environments": "connectors/crm"}, "environments"),
        ({"path": "connectors/crm", "configuration_file": "/etc/passwd"}, "configuration_file"),
        ({"path": "connectors/crm", "configuration_file": "instep.yml"}, "configuration_file"),
        ({"path": "connectors/crm", "configuration_file": "connectors/link/settings.json"}, "configuration_file"),
        ({"path": "connectors/crm", "environment": {"PYTHONPATH": "/tmp"}}, "environment.PYTHONPATH"),
        ({"path": "connectors/crm", "environment": {"LD_PRELOAD": "/tmp/x.so"}}, "environment.LD_PRELOAD"),
        ({"path": "connectors/crm", "environment": {"Path": "/tmp"}}, "environment.Path"),
    ],
)
def test_what_leads_anywhere_else_is_not_written(objects: Resources, said: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidObject, match=f"source api: {where}: ") as refused:
        put(objects, **said)
    assert [".".join(map(str, place)) for place, _ in refused.value.problems] == [where]
    assert objects.find("source", "api") is None


def test_a_folder_that_has_moved_since_is_not_opened(objects: Resources) -> None:
    put(objects, path="connectors/crm")
    shelf = objects.project.root / "connectors"
    shelf.joinpath("crm").rename(shelf / "before")
    shelf.joinpath("crm").symlink_to(shelf.parent.parent / "elsewhere")
    with pytest.raises(InvalidObject, match="path: must be a folder below connectors/"):
        objects.project.source("api")


def test_the_file_says_what_it_likes(objects: Resources) -> None:
    assert objects.project.source("own").path == str(objects.project.root.parent / "elsewhere")


def test_an_imported_file_is_not_the_file(objects: Resources, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    given.joinpath("instep.yml").write_text("sources: {api: {type: connector, path: /tmp/mine}}\n")
    with pytest.raises(InvalidObject, match="path: must be a folder below"):
        import_project(objects, load(given, {}), who="eve")
    assert objects.find("source", "api") is None
