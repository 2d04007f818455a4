"""The commands, over real sources and a real destination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_fleet import RealFleet

from instep.sync.runs import InProcess, measures

Make = Callable[[int], RealFleet]


@pytest.fixture
def real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Make]:
    """Connections that are loaded, and whose sources have changed since."""

    def make(count: int) -> RealFleet:
        fleet = RealFleet(tmp_path, count, capsys)
        for name in fleet.names:
            assert fleet.run("sync", name).code == 0
        fleet.change()
        return fleet

    return make


ON = ("rollout", "create", "--on", "main.refunds", "--tag", "shard")


def test_a_table_reaches_all_wave_by_wave_and_leaves_a_wave_again(real: Make) -> None:
    fleet = real(4)
    drafted = fleet.json(*ON, "--detect", "--dry-run", "--waves", "1,25%")
    assert drafted["fits"] == {"applies": 4}
    assert [c["wave"] for c in drafted["connections"]] == [1, 2, 3, 3]
    made = fleet.json(*ON, "--waves", "1,25%")["rollout"]
    assert (made["status"], made["of"]) == ("ready", 3)
    said = fleet.run("rollout", "advance")
    assert (said.code, said.err) == (0, "wave 1: c000 done\n")
    assert fleet.rows("c000", "refunds") is not None
    assert fleet.rows("c001", "refunds") is None
    fleet.break_("c001")
    halted = fleet.json("rollout", "advance", "--all", code=3)
    assert halted["rollout"]["status"] == "halted"
    assert "c001.db does not exist" in halted["connections"][0]["error"]
    assert fleet.run("rollout", "advance").code == 5
    fleet.mend("c001")
    done = fleet.json("rollout", "resume", "--all")
    assert (done["rollout"]["status"], done["counts"]) == ("done", {"done": 4})
    assert all(fleet.rows(name, "refunds") for name in fleet.names)
    back = fleet.json("rollout", "rollback", "--wave", "3", "--yes")
    assert back["counts"] == {"done": 2, "rolled_back": 2}
    states = [fleet.json("selection", "show", name)["schemas"]["main"]["tables"] for name in fleet.names]
    assert [tables["refunds"]["enabled"] for tables in states] == [True, True, False, False]


def test_a_change_is_approved_applied_and_undone(real: Make) -> None:
    fleet = real(3)
    create = ("rollout", "create", "--approve", "column.added:main.orders.currency", "--match", "c*")
    assert "none of 3 connections" in fleet.run(*create).err
    assert fleet.json(*create, "--detect", "--waves", "1")["counts"] == {"waiting": 3}
    assert fleet.json("rollout", "advance")["counts"] == {"done": 1, "waiting": 2}
    columns = fleet.json("query", "select * from c000.orders")["columns"]
    assert "currency" in columns
    back = fleet.json("rollout", "rollback", "--yes")
    assert back["counts"] == {"waiting": 2, "rolled_back": 1}
    assert any(c["summary"].endswith("currency added (string)") and c["status"] == "rejected"
               for c in fleet.json("changes", "list", "--all")["changes"])  # fmt: skip
    assert fleet.json("rollout", "resume", "--all")["counts"] == {"done": 2, "rolled_back": 1}


NEAR = "did you mean column.added:main.orders.currency?"
CHECK_FIRST = "check their sources first: --detect"
CHECKED = "(their sources were checked just now)"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("path", "detect", "told", "not_told"),
    [
        ("main.orders.curency", False, CHECK_FIRST, CHECKED),
        ("main.orders.curency", True, f"{CHECKED} {NEAR} `instep changes list` shows the open changes", CHECK_FIRST),
        ("main.orders.curency", None, f"{NEAR} `instep changes list` shows the open changes; {CHECK_FIRST}", CHECKED),
    ],
    ids=["before they were checked", "while they are", "after that"],
)
def test_a_change_that_nobody_has_names_the_nearest(
    real: Make, path: str, detect: bool | None, told: str, not_told: str
) -> None:
    fleet = real(2)
    if detect is None:
        for name in fleet.names:
            fleet.run("detect", name)
    create = ("rollout", "create", "--approve", f"column.added:{path}", "--match", "c*")
    for more in ((), ("--dry-run",)):
        said = fleet.run(*create, *more, *(["--detect"] if detect else []))
        err = " ".join(said.err.split())
        assert (said.code, f"none of 2 connections has a change column.added of {path}" in err) == (1, True), err
        assert told in err
        assert not_told not in err


def test_failures_within_the_gate_are_listed_and_exit_with_6(real: Make) -> None:
    fleet = real(4)
    for name in fleet.names:
        fleet.run("detect", name)
    fleet.break_("c002")
    fleet.json(*ON, "--waves", "rest", "--gate", "failed=25%")
    partial = fleet.json("rollout", "advance", code=6)
    assert (partial["rollout"]["status"], partial["counts"]) == ("partial", {"done": 3, "failed": 1})
    assert [c["connection"] for c in partial["connections"]] == ["c002"]
    assert "c002" in fleet.run("rollout", "status").out
    fleet.json("rollout", "skip", "c002", "--reason", "it is gone for good")
    assert fleet.json("rollout", "resume")["rollout"]["status"] == "done"
    assert fleet.json("rollout", "status", "--all")["connections"][2]["why"] == "it is gone for good"


def test_what_is_asked_wrongly(real: Make) -> None:
    fleet = real(1)
    for words, error in (
        ((*ON[:2], "--tag", "shard"), "a rollout rolls out one thing"),
        ((*ON, "--preset", "approve"), "a rollout rolls out one thing"),
        (ON[:4], "which connections?"),
        ((*ON, "--waves", "some"), "is not a size of a wave"),
        ((*ON, "--gate", "rows"), "is not a gate"),
        (("rollout", "advance"), "several rollouts are active: choose one"),
        (("rollout", "status", "w-1"), "no rollout 'w-1'"),
    ):
        said = fleet.run(*words)
        assert said.code == 1, words
        assert error in said.err
    assert "no rollouts" in fleet.run("rollout", "status").out


def test_health_is_measured_at_the_destination(real: Make) -> None:
    fleet = real(1)
    fleet.sql("c000", "delete from orders where id > 2; update orders set note = null where id = 1;")
    with fleet.open() as app:
        runs = InProcess(app.sync_context, app.engine)
        outcome = runs.sync("c000", "k", measured=True)
        health = outcome.tables["main.orders"]
        assert health.before is not None
        assert health.after is not None
        assert (outcome.ok, health.before.rows, health.before.nulls) == (True, 4, {"id": 0, "note": 0})
        assert health.after.nulls["note"] == 1
        assert measures(app.sync_context("c000"), nulls=False)["main.orders"].nulls == {}
        fleet.break_("c000")
        assert "does not exist" in runs.sync("c000", "k", measured=True).error
        assert not runs.undo("c000", "c-000000", "k").ok


def test_each_end_names_the_next_step(real: Make) -> None:
    fleet = real(2)
    made = fleet.run("rollout", "create", "--on", "main.orders.gone", "--match", "*")
    assert "rollout resume" in made.err
    assert "rollout advance" not in made.err  # no wave has a connection
    assert fleet.run("rollout", "advance").code == 6
    left = fleet.run("rollout", "resume")
    assert left.code == 6
    assert "rollout skip" in left.err
    assert left.out.splitlines()[-1] == "partial: 2 does not fit"
