"""The project file is written while workers and servers run: taken in, or told and left."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from worker_world import Shop, job, until

from instep.bootstrap import open_project, open_server
from instep.cli.commands.serve import server
from instep.cli.commands.serve.server import FileFollower
from instep.project.text.references import Reference

SYNCED = "tags: [late], schedule: {sync: every 2h}"


def broken(shop: Shop) -> None:
    shop.put("connections: [")


@pytest.mark.slow
def test_a_worker_takes_it_in_and_leaves_what_is_wrong(shop: Shop) -> None:
    with shop.working(lanes=1) as worker, shop.store() as store:
        until(lambda: {s.kind for s in store.schedules.all()} == {"detect"})
        worker._scheduled = float("-inf")
        shop.write(SYNCED)
        warm = store.jobs.enqueue("shop", "test_connection", options={"source": "shop_db"})[0]
        until(lambda: {s.kind for s in store.schedules.all()} == {"detect", "sync"})
        until(lambda: store.jobs.get(warm.id).over)
        broken(shop)
        until(lambda: any("holds on" in said for said in shop.said))
        sync = store.jobs.enqueue("shop", "sync")[0]
        until(lambda: store.jobs.get(sync.id).over)
        assert store.jobs.get(sync.id).status == "done", "the lane goes on with what it has"
        shop.write("tags: []")
        until(lambda: {s.kind for s in store.schedules.all()} == {"detect"})
    told = [said for said in shop.said if "holds on" in said]
    assert len(told) == 1, "once for each text"
    assert "instep.yml" in told[0]


@pytest.mark.slow
def test_a_lane_that_begins_meanwhile_gives_its_jobs_back(shop: Shop) -> None:
    with shop.working(lanes=1), shop.store() as store:
        until(lambda: store.workers.live())
        broken(shop)
        asked = store.jobs.enqueue("shop", "sync", attempts=1)[0]
        until(lambda: "instep.yml" in store.jobs.get(asked.id).error)
        assert (store.jobs.get(asked.id).status, store.jobs.get(asked.id).attempt) == ("queued", 0)
        shop.write("tags: []")
        until(lambda: store.jobs.get(asked.id).over)
    assert (job(shop, asked.id).status, job(shop, asked.id).attempt) == ("done", 1)


def emptied(shop: Shop) -> None:
    (shop.folder / "instep.yml").write_text("")


def moved_store(shop: Shop) -> None:
    file = shop.folder / "instep.yml"
    file.write_text(f"store: sqlite:///.instep/other.db\n{file.read_text()}")


def gone(shop: Shop) -> None:
    (shop.folder / "instep.yml").unlink()


WRONG: list[tuple[str, Callable[[Shop], None], str]] = [
    ("no YAML", broken, "instep.yml:"),
    ("empty", emptied, "instep.yml is empty"),
    ("another store", moved_store, "taken in by a new start only"),
    ("gone", gone, "does not exist"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("what", "spoil", "said"), WRONG, ids=[w[0] for w in WRONG])
def test_what_is_not_taken_in(shop: Shop, what: str, spoil: Callable[[Shop], None], said: str) -> None:
    with open_project(shop.folder) as app:
        before = app.project
        assert app.refresh() == ""
        assert app.project is before
        spoil(shop)
        assert said in app.refresh(), what
        assert app.refresh() == "", "told once"
        assert app.project is before
        shop.write("tags: [mended]")
        assert app.refresh() == ""
        assert app.project.connection("shop").tags == ("mended",)


@pytest.mark.parametrize("with_file", [True, False])
def test_values_beside_it_are_taken_in_too(shop: Shop, monkeypatch: pytest.MonkeyPatch, with_file: bool) -> None:
    """Also by a server that has no instep.yml at all."""
    monkeypatch.delenv("SHOP_WORD", raising=False)
    if not with_file:
        gone(shop)
    word = Reference("${env:SHOP_WORD:-none}")
    secrets = shop.folder / ".env"
    with open_server(shop.folder, insecure_dev=True) as app:

        def current() -> tuple[str, str]:
            return app.refresh(), app.project.environment.resolve(word, "here")

        assert current() == ("", "none")
        secrets.write_text("SHOP_WORD=one\n")
        assert current() == ("", "one")
        secrets.write_text("SHOP_WORD=one\nno value\n")
        assert ".env:2: not of the form NAME=value" in app.refresh()
        assert current() == ("", "one")
        secrets.write_text("SHOP_WORD=two\n")
        assert current() == ("", "two")
        secrets.unlink()
        assert current() == ("", "none")


def test_a_server_looks_by_itself(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "LOOK", 0.02)
    with caplog.at_level(logging.INFO, "instep"), open_project(shop.folder) as app, FileFollower(app):
        shop.write("tags: [late]")
        until(lambda: app.project.connection("shop").tags)
        broken(shop)
        until(lambda: "holds on" in caplog.text)
        assert app.project.connection("shop").tags
        shop.write("tags: []")
        until(lambda: not app.project.connection("shop").tags)
    assert caplog.text.count("holds on") == 1
