"""What takes long is done before the store is locked: another writer does not wait while connections are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, recorded, serve

from instep.bootstrap import open_server
from instep.control import reviews
from instep.control.immediate import decisions, objects, rollouts
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.store.catalogs.discoveries import CachedDiscovery

ROLLOUT = {"group": {"matching": ["*"]}, "selection": [{"verb": "off", "object": "main.orders"}]}
CHANGE = {"group": {"matching": ["*"]}, "change": {"verdict": "approved", "change": "column.added:main.item.note"}}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    (tmp_path / "instep.yml").write_text("engine: local\nshelves: [.]\n")
    with open_server(tmp_path, insecure_dev=True) as app:
        app.objects.put("source", "db", {"type": "sqlite", "path": "shop.db"}, who="test")
        app.objects.put("destination", "lake", {"type": "duckdb", "path": "a.duckdb"}, who="test")
        catalog = Catalog.of([Table("main", "orders", (Column("id", parse("int64"), nullable=False, key=1),))])
        for name in ("a", "b"):
            app.objects.put("connection", name, {"source": "db", "destination": "lake"}, who="test")
            app.store.accepted.add(name, catalog, who="test", why="first")
            app.store.discoveries.save(name, CachedDiscovery(catalog, "f"))
            recorded(app.store, name, "note")
        yield serve(app)


@pytest.fixture
def watched(api: Api, monkeypatch: pytest.MonkeyPatch) -> Callable[[object, str], list[bool]]:
    """Notes whether a transaction of the store is open whenever a function is called."""

    def watch(module: object, name: str) -> list[bool]:
        plain, open_then = getattr(module, name), list[bool]()

        def noted(*given: Any, **named: Any) -> Any:
            open_then.append(getattr(api.store.audit._db._local, "connection", None) is not None)
            return plain(*given, **named)

        monkeypatch.setattr(module, name, noted)
        return open_then

    return watch


@pytest.mark.parametrize("dry_run", ["true", "false"])
@pytest.mark.parametrize("body", [ROLLOUT, CHANGE])
def test_the_table_of_a_rollout(api: Api, watched: Any, body: dict[str, Any], dry_run: str) -> None:
    looks = [watched(rollouts, name) for name in ("chosen", "_patch", "draft")]
    written = watched(rollouts, "create")
    found = api.call("POST", "/rollouts", body=body, params={"dry_run": dry_run}, headers={"Idempotency-Key": "k"})
    assert found.status_code == (200 if dry_run == "true" else 201), found.text
    assert (looks, written) == ([[False]] * 3, [True])
    again = api.call("POST", "/rollouts", body=body, headers={"Idempotency-Key": "k"})
    assert again.status_code == 201
    assert again.headers.get("idempotent-replayed") == (None if dry_run == "true" else "true")
    assert len(looks[0]) == (2 if dry_run == "true" else 1), "what is told again is not looked for again"


def test_answers_to_what_a_pattern_finds(api: Api, watched: Any) -> None:
    looks, written = watched(decisions, "_chosen"), watched(reviews, "answer")
    found = api.call("POST", "/changes/answers", body={"answer": "approved", "patterns": ["*note"]})
    assert found.json()["answered"] == 2
    assert (looks, written) == ([False], [True])


def test_what_was_answered_since_the_look_is_left_alone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = decisions._chosen

    def late(*given: Any) -> Any:
        found = choose(*given)
        reviews.answer(api.store, [one for one in found if one.connection == "a"], "rejected", "ann")
        return found

    monkeypatch.setattr(decisions, "_chosen", late)
    found = api.call("POST", "/changes/answers", body={"answer": "approved", "patterns": ["*note"]})
    assert found.json()["answered"] == 1
    assert {one.connection: one.status for one in api.store.reviews.find()} == {"a": "rejected", "b": "approved"}


def test_the_policies_that_a_key_sees(api: Api, watched: Any) -> None:
    looks = watched(objects, "used")
    headers = api.key("approver", "lake")
    for method, spec in (("PATCH", {"policy": "approve"}), ("PUT", {"source": "db", "destination": "lake"})):
        at = "/api/v1/connections/a/settings"
        found = api.client.request(method, at, json={"spec": spec}, headers=headers)
        assert found.status_code == 200, found.text
    assert looks == [False, False]
