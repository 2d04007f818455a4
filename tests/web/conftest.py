from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from watched_world import synced, watched
from web_world import CHROMIUM, Site, site

from instep.bootstrap import open_server
from instep.store.catalogs.reviews import DetectedChange

PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
policies: {strict: {preset: approve}}
connections:
  eu: {source: db, destination: lake, tags: [europe], policy: strict}
  us: {source: db, destination: lake, tags: [america]}
"""


def _added(name: str) -> DetectedChange:
    change = {"kind": "column.added", "table": ["main", "item"], "after": {"name": name, "type": "string"}}
    text, why = f"main.item.{name} is new", "waits for a review"
    place = ("main", "item")
    return DetectedChange(
        f"column.added {name}", "column.added", place, name, text, change | {"position": 1}, "review",
        "preset approve", why,
    )  # fmt: skip


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Site]:
    """The page over two connections, of which one has changes that wait."""
    tmp_path.joinpath("instep.yml").write_text(PROJECT)
    with open_server(tmp_path, insecure_dev=True) as app:
        found = [_added(name) for name in ("colour", "weight")]
        app.store.reviews.record("eu", found, "f")
        yield site(app)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def synced_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose connection was synced twice, for tests to copy."""
    folder = tmp_path_factory.mktemp("synced")
    synced(folder)
    return folder


@pytest.fixture
def shop(tmp_path: Path, synced_folder: Path) -> Iterator[Site]:
    """The page over a copy of what was synced."""
    copytree(synced_folder, tmp_path, dirs_exist_ok=True)
    with watched(tmp_path) as opened:
        yield opened
