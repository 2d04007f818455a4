"""`instep queue` and `instep detector`: what waits, and switching detection on again."""

from __future__ import annotations

import pytest
from cli_world import Shop

from instep.model import Job


def asked(shop: Shop, kind: str = "sync", status: str = "queued") -> Job:
    with shop.store() as store:
        job, _ = store.jobs.enqueue("shop", kind, options={"full": True}, who="ann", why="asked for")  # type: ignore[arg-type]
        if status == "queued":
            return job
        claimed = store.jobs.claim("w-1")
        assert claimed is not None
        return (
            store.jobs.fail(claimed, "no route to the host\nline 2", retryable=status == "dead")
            if status != "running"
            else claimed
        )


def test_an_empty_queue(shop: Shop) -> None:
    assert "no jobs; 0 worker(s) alive" in shop.ok("queue", "list").out


def test_jobs_are_listed_with_their_state(shop: Shop) -> None:
    failed, waits = asked(shop, status="failed"), asked(shop, "detect")
    said = shop.ok("queue", "list").out
    assert failed.id in said
    assert waits.id in said
    assert "no route" in said
    document = shop.json("queue", "list", "--status", "queued", "--connection", "shop")
    assert [j["id"] for j in document["jobs"]] == [waits.id]
    assert document["counts"] == {"failed": 1, "queued": 1}
    assert shop.run("queue", "list", "--status", "lost").code == 64


def test_one_job_in_full(shop: Shop) -> None:
    failed = asked(shop, status="failed")
    said = shop.ok("queue", "show", failed.id).out
    for text in ("sync of shop: failed", "by ann", "attempt: 1 of 5", "full=True", "line 2"):
        assert text in said
    assert shop.json("queue", "show", failed.id)["job"]["status"] == "failed"
    assert shop.run("queue", "show", "nothing").code == 1


def test_cancel_and_retry(shop: Shop) -> None:
    waits = asked(shop)
    assert "is cancelled" in shop.ok("queue", "cancel", waits.id).out
    assert shop.run("queue", "cancel", waits.id).code == 5
    assert "waits" in shop.ok("queue", "retry", waits.id).out
    assert shop.run("queue", "retry", waits.id).code == 5
    running = asked(shop, status="running")
    assert running.id == waits.id
    assert "is asked to stop" in shop.ok("queue", "cancel", running.id).out


def test_the_detector(shop: Shop) -> None:
    assert "shop: scheduled, every 3,600 s" in shop.ok("detector", "status").out
    assert "had not disabled itself" in shop.ok("detector", "enable").out
    with shop.store() as store:
        store.detectors.disable("shop", "table box removed")
        store.pauses.pause("shop", "table box removed")
    said = shop.ok("detector", "status").out
    assert "internal_disabled" in said
    assert "table box removed" in said
    assert shop.json("detector", "status")["detector"]["internal_disabled_detect_schema_changes"] is True
    assert shop.run("detector", "enable").code == 3
    shop.ok("resume", "shop")
    assert "is enabled again" in shop.ok("detector", "enable", "shop").out
    assert shop.json("detector", "status")["detector"]["internal_disabled"] is False


@pytest.mark.parametrize("words", [("worker", "--lanes", "0"), ("queue", "show"), ("worker", "--grace", "-1")])
def test_what_is_not_understood(shop: Shop, words: tuple[str, ...]) -> None:
    assert shop.run(*words).code == 64
