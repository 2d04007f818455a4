"""Work and decisions over a server: done by a worker, answered as at the project; what cannot be done is said first."""

from __future__ import annotations

import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext

import pytest
from remote_world import PROJECT, World

from airbyte_world import PLAYER, records, state, status, stream, trace
from command_runs import every_command
from instep.backends.calls import ROUNDS, erase_row
from instep.backends.http.client import Client
from instep.backends.http.credentials import ApiKeySecret
from instep.backends.remote import RemoteBackend, RemoteOperations
from instep.backends.remote_jobs import Follower, RemoteJobs
from instep.bootstrap import open_project
from instep.cli.backend import LOCAL_COMMANDS, REMOTE, WHY, is_remote
from instep.cli.main import main
from instep.errors import Conflict
from instep.operations.everyday.sync import SyncRequest
from instep.operations.immediate.decisions import SwitchSelectionRequest
from instep.sync.progress import Silent
from instep.sync.run import RunScope, sync


def test_a_sync_a_detection_and_a_decision(world: World) -> None:
    with world.working() as done:
        report = world.ok("sync", "--output", "json").json
        assert [(t["table"], t["read"], t["status"]) for t in report["tables"]] == [(["main", "item"], 2, "done")]
        world.sql("alter table item add column price numeric")
        found = world.there("detect", "--exit-code", "--output", "json")
        assert found.code == 2
        [change] = [c for c in found.json["changes"] if c["status"] == "open"]
        assert (change["column"], found.json["counts"]["columns"]["new"]) == ("price", 1)
        assert "snoozed until" in world.ok("changes", "snooze", change["id"], "--for", "3d").out
        assert world.there("changes", "approve", "c-nothing").code == 1
        answered = world.ok("changes", "approve", change["id"][:5], "--output", "json").json["changes"]
        assert [(c["status"], c["decided_by"].split()[0]) for c in answered] == [("approved", "canary")]
        applied = world.ok("sync", "--output", "json").json["applied"]
        assert len(applied) == 1
    assert [job.kind for job in done] == ["sync", "detect", "sync"]
    world.ok("pause", "shop", "--reason", "from afar")
    assert "is already paused" in world.ok("pause", "shop").out
    assert world.there("pause", "shop", "--table", "main.items").err == world.here("pause", "--table", "main.items").err
    assert "resumed shop" in world.ok("resume", "shop").out
    queued = world.ok("sync", "--no-wait", "--output", "json").json["job"]
    assert queued["status"] == "queued"
    assert world.ok("queue", "cancel", queued["id"], "--output", "json").json["job"]["status"] == "cancelled"
    assert world.here("sync", "--no-wait").code == 1


def test_answers_are_given_to_all_changes_or_to_none(world: World) -> None:
    assert world.here("apply", "--yes").code == 0
    world.sql("alter table item add column price numeric; alter table item add column size integer")
    assert world.here("detect").code == 0
    with world.store() as store:
        ids = {r.column: r.id for r in store.reviews.find("shop", ("open",))}
        store.reviews.applied([ids["size"]])
    said = [run("changes", "approve", ids["price"], ids["size"]) for run in (world.here, world.there)]
    assert [one.code for one in said] == [5, 5], said
    assert said[0].err == said[1].err
    assert f"change {ids['size']} is already applied" in said[0].err
    snoozed = [run("changes", "snooze", ids["price"], ids["size"], "--for", "3d") for run in (world.here, world.there)]
    assert [one.code for one in snoozed] == [5, 5], snoozed
    with world.store() as store:
        price = store.reviews.get(ids["price"])
        assert (price.status, price.snoozed_until) == ("open", None)


def _loads(world: World, *values: str) -> None:
    """The next load of the item, whose number is none."""
    for value in values:
        world.sql("update item set name = 'VALUE', size = 'VALUE' where id = 1".replace("VALUE", value))
        with open_project(world.folder) as app:
            assert sync(app.sync_context("shop"), RunScope(), engine=app.engine("shop")).status == "done"


ERASING = ("quarantine", "discard", "main.item", "--key", '{"id": 1}', "--yes")


@pytest.mark.slow
@pytest.mark.parametrize("more", [1, ROUNDS])
def test_what_a_run_holds_of_a_row_meanwhile_is_erased_too(world: World, more: int) -> None:
    world.sql("alter table item add column size integer")
    assert world.here("apply", "--yes").code == 0
    _loads(world, "small")
    values = iter([f"size {number}" for number in range(more)])

    def watch() -> AbstractContextManager[Silent]:
        """A sync comes between the look and the job."""
        _loads(world, *(value for value in [next(values, "")] if value))
        world.work()
        return nullcontext(Silent())

    client = Client(world.url, ApiKeySecret(world.key), "0.1.0")
    backend = RemoteBackend(client, Follower(client, watch, str), str, world.folder)
    if more == ROUNDS:
        with pytest.raises(Conflict, match=f"{ROUNDS} entries of this row were erased, and 1 more are quarantined"):
            erase_row(backend, "shop", "main.item", {"id": "1"})
    else:
        assert erase_row(backend, "shop", "main.item", {"id": "1"}) == 1 + more
        assert world.ok("quarantine", "list", "--all", "--output", "json").json["total"] == 0


class Received(Silent):
    """What was shown as received, by table."""

    def __init__(self) -> None:
        self.rows: dict[str, set[tuple[int, int]]] = {}

    def received(self, path: str, rows: int, expected: int) -> None:
        self.rows.setdefault(path, set()).add((rows, expected))


def test_what_a_connector_sends_is_shown_while_it_sends(world: World) -> None:
    player, gate = world.folder / "player.py", world.folder / "gate"
    player.write_text(PLAYER)
    expected = trace("ESTIMATE", type="STREAM", name="users", row_estimate=4)
    lines = [expected, *records(1, 3), ["wait", str(gate)], *records(4, 4), state(4, 4), status()]
    script = {"specification": {}, "streams": [stream()], "after": [stream()], "lines": lines}
    (world.folder / "script.json").write_text(json.dumps(script))
    command = json.dumps([sys.executable, str(player)])
    project = PROJECT.replace("{type: sqlite, path: shop.db}", f"{{type: airbyte, command: {command}}}")
    (world.folder / "instep.yml").write_text(project)
    shown = Received()

    def watch() -> AbstractContextManager[Silent]:
        return nullcontext(shown)

    def sleep(seconds: float) -> None:
        if shown.rows:
            gate.touch()
        time.sleep(seconds)

    assert world.here("detect").code == 0
    assert world.here("apply", "--yes").code == 0
    client = Client(world.url, ApiKeySecret(world.key), "0.1.0")
    backend = RemoteBackend(client, Follower(client, watch, str, sleep=sleep), str, world.folder)
    with world.working():
        report = backend.operations.run("shop", SyncRequest())
    assert [(t.table, t.read, t.status) for t in report.tables] == [(("", "users"), 4, "done")]
    assert (3, 4) in shown.rows[""] & shown.rows["users"]


def test_while_a_run_is_alive_nobody_says_that_nothing_is_held(world: World) -> None:
    world.sql("alter table item add column size integer")
    assert world.here("apply", "--yes").code == 0
    _loads(world, "small")
    with world.store() as store:
        run = store.runs.claim("shop", "sync")
        here, there = world.here(*ERASING), world.there(*ERASING)
        assert here.code == there.code == 5
        assert "a sync is running" in there.err
        assert there.err.rpartition("error: ")[2] == here.err.rpartition("error: ")[2]
        store.runs.finish(run, "done", "")
    with world.working():
        assert world.ok(*ERASING).out == "erased 1\n"


def test_what_is_switched_is_what_was_shown(world: World) -> None:
    """A column that comes in before the answer fits the pattern, but nobody has seen it."""
    assert world.here("detect").code == 0
    client = Client(world.url, ApiKeySecret(world.key), "0.1.0")
    operations = RemoteOperations(RemoteJobs(client, Follower(client, lambda: nullcontext(Silent()), print), print))
    made = operations.rehearse(SwitchSelectionRequest("shop", "off", matching=("*.item.name*",)))
    world.sql("alter table item add column name_of_owner text")
    assert world.here("detect").code == 0
    operations.perform_all(made.again("shop"))
    with world.store() as store:
        assert [s.path for s in store.switches.of("shop")] == ["main.item.name"]


def test_keys_are_made_and_ended(world: World) -> None:
    made = world.ok("keys", "create", "ci", "--role", "viewer", "--output", "json").json
    assert made["secret"].startswith("instep_sk_")
    admin, world.key = world.key, made["secret"]
    refused = world.there("keys", "list")
    assert (refused.code, "needs the role admin" in refused.err) == (4, True)
    assert world.ok("status").code == 0
    world.key = admin
    world.ok("keys", "rotate", made["key"]["id"], "--overlap-hours", "0")
    world.ok("keys", "revoke", made["key"]["id"], "--yes")
    world.key = made["secret"]
    assert world.there("status").code == 4
    assert made["secret"] not in world.there("status").err


REFUSED = [
    (("contract", "export"), "it reads and writes files"),
    (("migration", "check", "x.sql"), "it reads files"),
    (("policy", "import", "x.json"), "keys for the instep.yml"),
    (("server",), "on this machine"),
    (("query", "select 1"), "do not pass"),
    (("source", "test"), "does not"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "why"), REFUSED, ids=[w[0][0] for w in REFUSED])
def test_what_has_no_remote_way_says_so_before_anything(
    words: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INSTEP_SERVER", "http://127.0.0.1:1")
    assert main(["--no-color", *words]) == 1
    said = capsys.readouterr().err
    assert why in said
    assert "without --server" in said
    assert main([*words, "--help"]) == 0


def test_each_command_works_over_a_server_or_says_why() -> None:
    every = {" ".join(path) for path in every_command()}
    assert every >= REMOTE
    mute = {
        name
        for name in every - LOCAL_COMMANDS
        if not is_remote(name) and name not in WHY and name.partition(" ")[0] not in WHY
    }
    assert mute == set()
    families = {name.partition(" ")[0] for name in every}
    assert {name for name in WHY if name not in every | families} == set(), "reasons for what there is not"


def test_who_stops_waiting_leaves_the_job(world: World) -> None:
    left: list[str] = []

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    client = Client(world.url, ApiKeySecret(world.key), "0.1.0")
    job = world.ok("sync", "--no-wait", "--output", "json").json["job"]["id"]
    with pytest.raises(KeyboardInterrupt):
        Follower(client, lambda: nullcontext(Silent()), left.append, sleep=stop).wait_until_over(job)
    assert left == [job]
    with world.store() as store:
        assert store.jobs.get(job).status == "queued"
