"""`changes approve|reject|ignore|snooze`: what they show first, whom they mean, and approvals that became stale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_world import CHANGED, PROJECT, REMOVED, Shop

from events.shows import shows

ADDED = "column main.order.note added (string)"
APPROVE = PROJECT.replace("preset: PRESET", "preset: approve")


@pytest.fixture
def changed(shop: Shop) -> Shop:
    """Two changes of two tables wait."""
    shop.write(text=APPROVE)
    shop.applied()
    shop.sql(CHANGED)
    shop.ok("detect")
    return shop


def test_approving_shows_the_plan_s_lines_first(changed: Shop) -> None:
    said = changed.ok("changes", "approve", changed.changes()[ADDED])
    assert "approved" in said.out
    assert f"+ {ADDED}" in said.err
    assert "1 step at the destination" in said.err
    assert "city" not in said.err, "the plan's lines of these changes only"


def test_the_preview_is_part_of_the_document(changed: Shop) -> None:
    document = changed.json("changes", "approve", changed.changes()[ADDED])
    [step] = document["consequences"]["shop"]["steps"]
    assert "note" in step
    document = changed.json("changes", "reject", changed.changes()[REMOVED])
    assert document["consequences"]["shop"]["steps"] == []
    assert any("new rows have NULL" in line for line in document["consequences"]["shop"]["lines"])


FILTERS = [
    ("a kind", ("--kind", "column.added"), {ADDED}),
    ("a family", ("--kind", "column"), {ADDED, REMOVED}),
    ("a table", ("--table", "main.customer"), {REMOVED}),
    ("a table and a kind", ("--table", "main.order", "--kind", "column.added"), {ADDED}),
    ("a pattern and a table", ("--match", "*.city", "-t", "main.*"), {REMOVED}),
    ("a connection with a filter", ("-c", "shop", "--kind", "*.removed"), {REMOVED}),
    ("nothing fits", ("--table", "main.order", "--kind", "column.removed"), set()),
    ("a connection alone", ("-c", "shop"), set()),
]


@pytest.mark.sampled
@pytest.mark.parametrize("word", ["approve", "reject", "ignore"])
@pytest.mark.parametrize(("words", "wanted"), [f[1:] for f in FILTERS], ids=[f[0] for f in FILTERS])
def test_filters(changed: Shop, word: str, words: tuple[str, ...], wanted: set[str]) -> None:
    if not wanted:
        assert changed.run("changes", word, *words).code == 1
        return
    assert {c["summary"] for c in changed.json("changes", word, *words)["changes"]} == wanted


def test_ignored_changes_are_not_asked_again_and_it_says_so(changed: Shop) -> None:
    said = changed.ok("changes", "ignore", changed.changes()[REMOVED])
    assert "muted until the change itself changes" in said.out
    for _ in range(2):
        changed.ok("detect")
    assert list(changed.changes()) == [ADDED]
    [event] = [e for e in changed.json("history")["events"] if e["type"] == "change.ignored"]
    assert "until the change itself differs" in event["data"]["why"]


def test_an_ignored_change_that_differs_is_asked_again(changed: Shop) -> None:
    changed.ok("changes", "ignore", changed.changes()[ADDED])
    changed.sql('alter table "order" drop column note; alter table "order" add column note integer')
    changed.ok("detect")
    assert "column main.order.note added (int64)" in changed.changes()


def test_a_snoozed_change_is_open_and_not_listed(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    said = changed.ok("changes", "snooze", id, "--for", "3d")
    assert "not listed before" in said.out
    changed.ok("detect")
    assert list(changed.changes()) == [ADDED]
    assert changed.json("status")["connections"][0]["waiting_changes"] == 1
    shown = changed.json("changes", "show", id)
    assert (shown["status"], shown["seen"]) == ("open", 2)
    assert "snoozed" in changed.ok("changes", "show", id).out
    assert id not in changed.ok("plan").out.split("Waiting for you")[1]


def test_what_is_all_snoozed_calls_nobody(changed: Shop) -> None:
    assert changed.run("plan", "--exit-code").code == 2
    changed.ok("changes", "snooze", "--match", "*", "--for", "1h")
    assert changed.run("plan", "--exit-code").code == 0


def test_a_snooze_that_is_over_is_listed_again(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    with changed.store() as store:
        store.reviews.snooze_many([id], datetime.now(UTC) - timedelta(seconds=1))
    assert REMOVED in changed.changes()


def test_an_answer_ends_a_snooze(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    changed.ok("changes", "snooze", id, "--until", "2999-01-01")
    assert changed.json("changes", "approve", id)["changes"][0]["snoozed_until"] is None


@pytest.mark.sampled
@pytest.mark.parametrize(
    "words", [(), ("--for", "3x"), ("--for", "1d", "--until", "2999-01-01"), ("--until", "2001-01-01")]
)
def test_a_snooze_without_a_time_ahead_is_refused(changed: Shop, words: tuple[str, ...]) -> None:
    said = changed.run("changes", "snooze", changed.changes()[REMOVED], *words)
    assert (said.code, len(changed.changes())) == (1, 2)


def test_only_open_changes_are_snoozed(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    changed.ok("changes", "reject", id)
    said = changed.run("changes", "snooze", id, "--for", "3d")
    assert (said.code, "only open ones" in said.err) == (5, True)


def test_a_terminal_is_asked(changed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *words, **more: False)
    id = changed.changes()[REMOVED]
    said = changed.run("changes", "reject", id)
    assert (said.code, "no change was decided" in said.err) == (3, True)
    assert changed.ok("--yes", "changes", "reject", id).code == 0


MOVED = [
    ("the table gained a column", "alter table customer add column zip text", "source"),
    ("the same kind of change elsewhere", 'alter table "order" add column zip text', ""),
]


@pytest.mark.parametrize(("script", "side"), [m[1:] for m in MOVED], ids=[m[0] for m in MOVED])
@shows(event=71)
def test_approving_what_has_moved_is_refused_once(changed: Shop, script: str, side: str) -> None:
    id = changed.changes()[REMOVED]
    changed.sql(script)
    said = changed.run("changes", "approve", id)
    if not side:
        assert said.code == 0, said
        return
    assert (said.code, "main.customer has changed" in said.err, side in said.err) == (5, True, True)
    assert changed.json("changes", "show", id)["status"] == "open"
    assert changed.run("changes", "approve", id).code == 0, "it was looked at again"


def test_approving_what_the_source_took_back_is_refused(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    changed.sql("alter table customer add column city text")
    said = changed.run("changes", "approve", id)
    assert (said.code, "no longer at the source" in said.err) == (5, True)


def test_what_is_applied_beside_a_change_makes_its_approval_no_less_good(changed: Shop) -> None:
    changed.sql("alter table customer add column zip text")
    changed.ok("detect")
    first, second = (changed.changes()[s] for s in (REMOVED, "column main.customer.zip added (string)"))
    changed.ok("changes", "approve", first)
    changed.ok("apply", "--yes")
    with changed.store() as store:
        assert store.reviews.get(second).status == "open"
    changed.ok("changes", "approve", second)
    changed.ok("apply", "--yes")
    with changed.store() as store:
        assert store.reviews.get(second).status == "applied"


def test_applying_an_approval_whose_table_has_moved_is_refused(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    changed.ok("changes", "approve", id)
    changed.sql("alter table customer add column zip text")
    said = changed.run("apply", "--yes")
    assert (said.code, f"instep changes show {id}" in said.err) == (5, True)
    assert id in changed.changes().values(), "it waits again"
    [event] = [e for e in changed.json("history")["events"] if e["type"] == "change.reopened"]
    assert event["data"]["change"] == id
    assert changed.run("apply", "--yes").code == 0
    assert changed.json("changes", "show", id)["status"] == "open", "an old approval never comes back by itself"


@shows(event=71)
def test_a_plan_file_with_a_stale_approval_is_refused(changed: Shop, tmp_path: Path) -> None:
    file = str(tmp_path / "plan.json")
    changed.ok("changes", "approve", changed.changes()[REMOVED])
    changed.ok("plan", "-o", file)
    changed.sql("alter table customer add column zip text")
    said = changed.run("apply", file, "--yes")
    assert (said.code, "approve it again" in said.err) == (5, True)


def test_an_approval_of_what_policy_leaves_out_waits_again_when_it_is_stale(shop: Shop) -> None:
    shop.write(preset="block_all")
    shop.applied()
    shop.sql('alter table "order" add column note text')
    shop.ok("detect")
    assert shop.changes() == {}
    id = shop.changes("--all")[ADDED]
    shop.ok("changes", "approve", id)
    shop.sql('alter table "order" add column more text')
    for _ in range(2):
        shop.ok("detect")
        assert shop.changes() == {ADDED: id}


def test_another_policy_decides_anew_what_is_pending(changed: Shop) -> None:
    changed.write(preset="allow_all")
    changed.ok("detect")
    assert list(changed.changes()) == [REMOVED], "the policy's own rule holds it"
    assert changed.json("changes", "show", changed.changes("--all")[ADDED])["action"] == "apply"
    changed.write(preset="block_all")
    changed.ok("detect")
    assert changed.json("changes", "show", changed.changes("--all")[ADDED])["action"] == "ignore"


def test_a_snooze_ends_when_policy_decides_otherwise(changed: Shop) -> None:
    id = changed.changes()[ADDED]
    changed.ok("changes", "snooze", id, "--for", "3d")
    changed.write(text=APPROVE.replace("preset: approve", "preset: stop"))
    changed.ok("detect")
    assert changed.changes()[ADDED] == id


def test_people_comment_on_a_change_and_name_who_looks_after_it(changed: Shop) -> None:
    id = changed.changes()[ADDED]
    assert changed.ok("changes", "comment", id[:5], "wait for Monday").out.strip() == f"commented on {id}"
    assert changed.json("changes", "assign", id[:5], "--to", "ann")["changes"][0]["assignee"] == "ann"
    [comment] = changed.json("changes", "show", id)["comments"]
    assert comment["text"] == "wait for Monday"
    assert "wait for Monday" in changed.ok("changes", "show", id).out
    assert [one["id"] for one in changed.json("changes", "list", "--assignee", "ann")["changes"]] == [id]
    assert "nobody" in changed.ok("changes", "assign", id, "--to", "").out
    changed.ok("changes", "assign", "--kind", "column", "--to", "bob")
    assert {one["id"] for one in changed.json("changes", "list", "--assignee", "bob")["changes"]} >= {id}
    assert changed.run("changes", "comment", id, " ").code == 1


@pytest.mark.parametrize(
    ("words", "found"),
    [(("--search", "NOTE"), {ADDED}), (("--search", r"re:main\.customer\..*"), {REMOVED}), (("--tag", "none"), set())],
)
def test_changes_are_listed_by_name(changed: Shop, words: tuple[str, ...], found: set[str]) -> None:
    assert {one["summary"] for one in changed.json("changes", "list", *words)["changes"]} == found


def test_a_search_that_may_be_slow_is_refused(changed: Shop) -> None:
    assert "repeats a group" in changed.run("changes", "list", "--search", "re:(a+)+").err
