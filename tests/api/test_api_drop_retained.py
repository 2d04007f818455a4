"""A sync that lets go of columns which the source has dropped: who may ask for it, and who for another try."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, serve

from instep.bootstrap import open_server
from instep.control.resources import api_keys
from instep.server.access import CONSENTS, retry_role
from instep.sync.run import RunScope, sync
from instep.worker.perform import JobEnd, perform

FILE = """\
engine: local
four_eyes: {on}
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations: {{lake: {{type: iceberg}}}}
connections: {{shop: {{source: db, destination: lake, policy: allow_all}}}}
"""
BODY = {"full": True, "drop_retained": True}
BODIES = pytest.mark.parametrize("body", [BODY, {"drop_columns": ["main.t.old"]}], ids=["retained", "by name"])


def made(folder: Path, on: bool) -> Iterator[Api]:
    """A table without a key that has kept a column."""
    folder.joinpath("instep.yml").write_text(FILE.format(on=str(on).lower()))
    with open_server(folder, insecure_dev=True) as app:
        api = serve(app)
        syncs(api, "create table t (a text, old text); insert into t values ('x', 'y')")
        syncs(api, "alter table t drop column old", "")
        yield api


def syncs(api: Api, *scripts: str) -> None:
    """After each of them; a removal counts when it is seen twice."""
    for script in scripts:
        with closing(sqlite3.connect(api.app.project.root / "shop.db")) as connection:
            connection.executescript(script)
        sync(api.app.sync_context("shop"), RunScope(), engine=api.app.engine("shop"))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    yield from made(tmp_path, False)


@pytest.fixture
def eyes(tmp_path: Path) -> Iterator[Api]:
    yield from made(tmp_path, True)


def asks(
    api: Api, who: str, role: str = "approver", token: str = "", body: dict[str, Any] = BODY, **params: Any
) -> Any:
    if who not in api.secrets:
        api.secrets[who] = api_keys.create(api.store, who, role, "test").secret  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {api.secrets[who]}", **({"Idempotency-Key": token} if token else {})}
    return api.call("POST", "/connections/shop/sync", body=body, headers=headers, params=params)


def works(api: Api) -> JobEnd:
    job = api.store.jobs.claim("test")
    assert job is not None
    return perform(api.app, job)


def columns(api: Api) -> list[str]:
    [table] = api.store.accepted.catalog("shop").tables
    return [column.name for column in table.columns]


@BODIES
def test_it_takes_an_approver(api: Api, body: dict[str, Any]) -> None:
    refused = asks(api, "op", "operator", body=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert f"`{list(body)[-1]}` decides what is dropped, which needs the role approver" in refused.json()["detail"]
    assert api.store.jobs.counts() == {}
    assert asks(api, "ann", body=body).status_code == 202
    assert (works(api).error, columns(api)) == ("", ["a"])


@pytest.mark.parametrize("option", CONSENTS)
def test_another_try_takes_one_too(api: Api, option: str) -> None:
    job, _ = api.store.jobs.enqueue("shop", "sync", options={option: ["x"]}, who="ann")
    api.store.jobs.cancel(job.id, "bo")
    assert retry_role(api.store.jobs.get(job.id)) == "approver"
    assert api.call("POST", f"/queue/{job.id}/retry", "operator").status_code == 403
    assert api.call("POST", f"/queue/{job.id}/retry", "approver").status_code == 200


@BODIES
def test_four_eyes_want_two_people(eyes: Api, body: dict[str, Any]) -> None:
    assert asks(eyes, "ann", body=body, dry_run="true").status_code == 409
    assert eyes.store.events.latest(types=("operation.requested",)) == []
    for _ in range(2):
        refused = asks(eyes, "ann", body=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "blocked")
        assert "drop columns: main.t.old: with four_eyes this takes two people" in refused.json()["detail"]
    assert eyes.store.jobs.counts() == {}
    assert [e.action for e in eyes.store.audit.page()] == ["connection.sync.requested"] * 2
    assert asks(eyes, "bob", body=body).status_code == 202
    assert (works(eyes).error, columns(eyes)) == ("", ["a"])
    assert asks(eyes, "ann", body=body).status_code == 202, "there is nothing left to drop"


@BODIES
def test_a_job_cannot_get_around_it(eyes: Api, body: dict[str, Any]) -> None:
    eyes.store.jobs.enqueue("shop", "sync", options=body, who="mallory")
    ended = works(eyes)
    assert "only mallory has asked for it" in ended.error
    assert not ended.transient
    assert columns(eyes) == ["a", "old"]


def test_the_same_request_again_asks_for_nothing_new(eyes: Api) -> None:
    assert [asks(eyes, who, token="one").status_code for who in ("ann", "bob")] == [409, 202]
    assert works(eyes).error == ""
    syncs(eyes, "alter table t add column old text", "alter table t drop column old", "")
    again = [asks(eyes, who, token="one") for who in ("ann", "bob")]
    assert [found.status_code for found in again] == [409, 202]
    assert all(found.headers["Idempotent-Replayed"] == "true" for found in again)
    asked = eyes.store.events.latest(types=("operation.requested",))
    assert ["ann" in event.data["who"] for event in asked] == [True], "it is answered as before, and nobody has asked"
