"""The project file is written while a server runs: both APIs say and do what it says now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_world import Compat

from instep.events import Paused

FILE = """\
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations: {{lake: {{type: duckdb, path: lake.duckdb}}}}
connections: {{{}}}
server_url: https://instep.example.org
"""
CHANNEL = """\
channels: {hook: {type: webhook, url: "${env:URL}", secret: "${env:HOOK}"}}
notify: [{on: [paused], to: hook}]
"""
ONE = FILE.format("shop: {tags: [eu]}")
TWO = FILE.format("shop: {tags: [us]}, box: {}") + CHANNEL
"""With another tag, another connection, and somebody to tell."""
KEPT = "sources: {kept_db: {type: sqlite, path: shop.db}}\nconnections: {kept: {source: kept_db, destination: lake}}"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compat]:
    monkeypatch.setenv("HOOK", "whsec_" + "c2VjcmV0LW9mLTMyLWJ5dGVzLWZvci10aGUtdGVzdHM=")
    monkeypatch.setenv("URL", "https://hooks.example.org/x")
    made = Compat(tmp_path, KEPT, ONE)
    yield made
    made.close()


def names(served: Compat) -> tuple[list[str], list[str]]:
    """Connections, as the server's own API and the compatible one have them."""
    own = served.client.get("/api/v1/connections", headers=bearer(served)).json()
    theirs = served.client.get("/v1/connections").json()
    return [c["name"] for c in own["items"]], [c["id"] for c in theirs["data"]["items"]]


def bearer(served: Compat) -> dict[str, str]:
    return {"Authorization": f"Bearer {served.pair[1]}"}


def test_what_is_new_and_what_is_gone(served: Compat) -> None:
    assert [set(found) for found in names(served)] == [{"shop", "kept"}] * 2
    (served.folder / "instep.yml").write_text("engine: local\nshelves: [.]\n" + TWO)
    assert served.app.refresh() == ""
    assert [set(found) for found in names(served)] == [{"shop", "box", "kept"}] * 2
    shown = served.client.get("/api/v1/connections/shop", headers=bearer(served)).json()
    assert shown["tags"] == ["us"]
    asked = served.client.post("/api/v1/connections/box/detect", json={}, headers=bearer(served))
    assert asked.status_code == 202, "the queue knows it, too"
    (served.folder / "instep.yml").write_text("engine: local\nshelves: [.]\n" + ONE)
    assert served.app.refresh() == ""
    assert [set(found) for found in names(served)] == [{"shop", "kept"}] * 2


def test_events_are_told_by_what_the_file_says_now(served: Compat) -> None:
    served.store.events.add(Paused("shop", "manually"))
    assert served.store.outbox.gather() == 0
    (served.folder / "instep.yml").write_text("engine: local\nshelves: [.]\n" + TWO)
    assert served.app.refresh() == ""
    served.store.events.add(Paused("shop", "manually"))
    assert served.store.outbox.gather() == 1


def test_a_file_that_is_wrong_or_gone_changes_nothing(served: Compat) -> None:
    file = served.folder / "instep.yml"
    for spoil in (lambda: file.write_text("connections: ["), file.unlink):
        spoil()
        assert "holds on" in served.app.refresh()
        assert [set(found) for found in names(served)] == [{"shop", "kept"}] * 2
