"""`changes ...`, `pause`, `resume`."""

from __future__ import annotations

import pytest
from cli_world import CHANGED, REMOVED, Shop

ADDED = "column main.order.note added (string)"
REKEYED = """
    create table new (id integer not null, name varchar(30) not null primary key, city text);
    insert into new select * from customer;
    drop table customer;
    alter table new rename to customer;
"""


@pytest.fixture
def changed(shop: Shop) -> Shop:
    """One change waits, one is let in; nothing of either is applied yet."""
    shop.applied()
    shop.sql(CHANGED)
    shop.ok("detect")
    return shop


def test_list_shows_what_waits(changed: Shop) -> None:
    assert list(changed.changes()) == [REMOVED]
    assert {REMOVED, ADDED} < set(changed.changes("--all"))
    line = changed.ok("changes", "list").out.splitlines()[1]
    assert line.split("  ")[0] == changed.changes()[REMOVED]
    assert all(text in line for text in (REMOVED, "review", "rule 1 of policy careful", "open"))
    assert changed.ok("changes", "list", "shop").out == changed.ok("changes", "list").out


def test_list_without_changes(shop: Shop) -> None:
    assert shop.ok("changes", "list").out == "no changes\n"
    assert shop.json("changes", "list")["changes"] == []


def test_an_unknown_connection_is_no_empty_list(changed: Shop) -> None:
    said = changed.run("changes", "list", "shopp")
    assert (said.code, "did you mean 'shop'?" in said.err) == (1, True)


def test_show_tells_everything(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    out = changed.ok("changes", "show", id).out
    assert out.startswith(f"{id}  {REMOVED}\n")
    assert "review, by rule 1 of policy careful" in out
    found = changed.json("changes", "show", id)
    assert (found["kind"], found["table"], found["column"]) == ("column.removed", ["main", "customer"], "city")
    assert found["first_seen"][10] == "T"


def test_ids_may_be_shortened(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    for short in (id, id[:5], id.removeprefix("c-"), id[2:5]):
        assert changed.json("changes", "show", short)["id"] == id
    assert changed.json("changes", "approve", id[2:5])["changes"][0]["status"] == "approved"


@pytest.mark.parametrize("word", ["show", "approve", "reject"])
def test_unknown_and_ambiguous_ids(changed: Shop, word: str) -> None:
    said = changed.run("changes", word, "zzz")
    assert (said.code, "no change 'zzz' is known" in said.err) == (1, True)
    said = changed.run("changes", word, "c-")
    assert (said.code, "fits several changes" in said.err) == (1, True)
    assert list(changed.changes()) == [REMOVED]


def test_approved_changes_are_applied_next(changed: Shop) -> None:
    said = changed.ok("changes", "approve", changed.changes()[REMOVED])
    assert "approved" in said.out
    assert changed.changes() == {}
    assert "Not applied" not in changed.ok("plan").out
    changed.ok("apply", "--yes")
    statuses = {c["summary"]: c["status"] for c in changed.json("changes", "list", "--all")["changes"]}
    assert (statuses[REMOVED], statuses[ADDED]) == ("applied", "applied")
    columns = changed.json("query", "select * from shop.customer")["columns"]
    assert "city" in columns, "allow_all retains it"


def test_what_is_done_cannot_be_answered_again(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    changed.ok("changes", "approve", id)
    changed.ok("apply", "--yes")
    said = changed.run("changes", "reject", id)
    assert (said.code, "already applied" in said.err) == (5, True)


def test_rejected_changes_stay_out_and_are_not_asked_again(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    changed.ok("changes", "reject", id)
    changed.ok("detect")
    assert changed.changes() == {}
    assert changed.json("changes", "show", id)["status"] == "rejected"
    changed.ok("changes", "approve", id)
    assert changed.json("changes", "show", id)["status"] == "approved"


def test_an_answer_is_taken_back_by_id_or_by_filter(changed: Shop) -> None:
    id = changed.changes()[REMOVED]
    changed.ok("changes", "reject", id)
    said = changed.ok("changes", "reopen", id)
    assert "open again" in said.out
    assert changed.changes()[REMOVED] == id
    changed.ok("changes", "ignore", id)
    changed.ok("changes", "reopen", "--kind", "column.removed")
    assert changed.json("changes", "show", id)["status"] == "open"
    changed.ok("changes", "approve", id)
    changed.ok("apply", "--yes")
    said = changed.run("changes", "reopen", id)
    assert (said.code, "already applied" in said.err) == (5, True)


def test_several_ids_in_one_answer(changed: Shop) -> None:
    ids = [changed.changes("--all")[summary] for summary in (REMOVED, ADDED)]
    done = changed.json("changes", "reject", *ids)["changes"]
    assert {c["id"]: c["status"] for c in done} == dict.fromkeys(ids, "rejected")
    assert changed.ok("plan").out.startswith("Not applied")


MATCHES = [
    ("a column", "main.customer.city", {REMOVED}),
    ("all of a table", "main.customer.*", {REMOVED}),
    ("a kind", "column.removed", {REMOVED}),
    ("a family", "column.*", {REMOVED, ADDED}),
    ("everything", "*", {REMOVED, ADDED}),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("pattern", "wanted"), [m[1:] for m in MATCHES], ids=[m[0] for m in MATCHES])
def test_changes_can_be_matched(changed: Shop, pattern: str, wanted: set[str]) -> None:
    done = changed.json("changes", "approve", "--match", pattern)["changes"]
    assert {c["summary"] for c in done} == wanted


def test_a_match_of_nothing_is_an_error(changed: Shop) -> None:
    for words in (("--match", "nothing.*"), (), ("--match", "*", "--connection", "twin")):
        said = changed.run("changes", "approve", *words)
        assert said.code == 1, words
    assert list(changed.changes()) == [REMOVED]


def test_a_match_can_be_kept_to_one_connection(changed: Shop) -> None:
    file = changed.folder / "instep.yml"
    file.write_text(file.read_text() + "  twin: {source: db, destination: lake, policy: careful}\n")
    changed.ok("apply", "twin", "--yes")
    changed.sql("alter table customer add column zip text")
    for name in ("shop", "twin"):
        changed.ok("detect", name)
    done = changed.json("changes", "reject", "--match", "column.added", "-c", "twin")["changes"]
    assert [(c["connection"], c["summary"]) for c in done] == [("twin", "column main.customer.zip added (string)")]


def test_who_answered_is_recorded(changed: Shop) -> None:
    changed.ok("changes", "approve", changed.changes()[REMOVED])
    event = changed.json("history", "-n", "1")["events"][0]
    assert event["type"] == "change.approved"
    assert event["data"]["who"]


def test_pausing_a_connection_stops_its_runs(shop: Shop) -> None:
    assert shop.ok("pause", "--reason", "migration").out == "paused shop\n"
    assert shop.ok("pause").out == "shop is already paused\n"
    refused = shop.run("sync")
    assert (refused.code, refused.err.splitlines()[-1]) == (3, "  `instep resume shop` ends it")
    said = shop.run("apply", "--yes")
    assert (said.code, "migration" in said.err, "instep resume shop" in said.err) == (3, True, True)
    assert "paused: the connection: migration" in shop.ok("status").out
    assert shop.ok("resume").out == "resumed shop\n"
    assert shop.ok("resume").out == "shop is not paused\n"
    assert shop.run("apply", "--yes").code == 0


def test_pausing_a_table(shop: Shop) -> None:
    shop.applied()
    assert shop.json("pause", "-t", "main.order")["changed"] is True
    [pause] = shop.json("status")["connections"][0]["pauses"]
    assert (pause["table"], pause["reason"]) == (["main", "order"], "paused by a person")
    assert shop.json("resume", "shop") == {
        "format_version": 1, "connection": "shop", "table": None, "paused": False, "changed": False,
    }  # fmt: skip
    assert shop.json("resume", "--table", "main.order")["changed"] is True


def test_pausing_a_table_that_is_not_there(shop: Shop) -> None:
    said = shop.run("pause", "--table", "main.nothing")
    assert (said.code, "has no table main.nothing" in said.err) == (1, True)


def test_a_breaking_change_pauses_its_table_until_it_is_decided(shop: Shop) -> None:
    shop.applied()
    shop.sql(REKEYED)
    shop.ok("detect")
    [id] = shop.changes().values()
    assert shop.json("changes", "show", id)["kind"] == "key.changed"
    said = shop.run("resume", "--table", "main.customer")
    assert (said.code, f"instep changes approve {id}" in said.err) == (3, True)
    assert shop.json("status")["connections"][0]["pauses"][0]["change"] == id
    shop.ok("changes", "reject", id)
    assert shop.ok("resume", "--table", "main.customer").out == "resumed main.customer\n"


def test_a_table_s_breaking_change_does_not_keep_the_connection_paused(shop: Shop) -> None:
    shop.applied()
    shop.ok("pause")
    shop.sql(REKEYED)
    shop.ok("detect")
    assert shop.ok("resume").out == "resumed shop\n"
    assert [p["table"] for p in shop.json("status")["connections"][0]["pauses"]] == [["main", "customer"]]


def test_a_breaking_change_pauses_the_connection_where_policy_says_so(shop: Shop) -> None:
    shop.write(preset="propagate_all")
    shop.applied()
    shop.sql(REKEYED)
    shop.ok("detect")
    [id] = shop.changes().values()
    for word in ("sync", "resume"):
        said = shop.run(word)
        assert (said.code, id in said.err) == (3, True)
    shop.ok("changes", "approve", id)
    shop.ok("resume")
    assert shop.run("apply", "--yes").code == 0


def test_a_policy_that_was_changed_decides_anew_when_a_connection_is_resumed(shop: Shop) -> None:
    shop.write(preset="stop")
    shop.applied()
    shop.sql("alter table customer add column phone text")
    assert shop.run("detect", "--exit-code").code == 2
    assert shop.run("resume").code == 3
    shop.write()
    assert shop.ok("resume").out == "resumed shop\n"
    assert shop.json("changes", "list")["changes"] == []
    assert shop.run("apply", "--yes").code == 0
