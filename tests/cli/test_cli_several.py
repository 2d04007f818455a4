"""Commands for several connections: one after another, and one that fails stops no other."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

from instep.cli.context import PARTIAL

CONNECTIONS = """\
connections:
  shop: {source: db, destination: lake, policy: careful, tags: [eu]}
  archive: {source: db, destination: lake, policy: careful, namespace: archive, tags: [eu, cold]}
  away: {source: gone, destination: lake, policy: careful, namespace: away, tags: [us]}
"""


@pytest.fixture
def fleet(shop: Shop) -> Shop:
    """Two connections that can be read, and one whose source is not there."""
    text = PROJECT.partition("connections:")[0].replace("sources:", "sources:\n  gone: {type: sqlite, path: gone.db}")
    shop.write(text=text + CONNECTIONS)
    return shop


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--tag", "eu"), ["archive", "shop"]),
        (("--tag", "cold", "--tag", "us"), ["archive", "away"]),
        (("--match", "a*"), ["archive", "away"]),
        (("--match", "re:s.*|away"), ["away", "shop"]),
        (("--match", "*"), ["archive", "away", "shop"]),
        (("--tag", "eu", "--match", "a*"), ["archive"]),
    ],
)
def test_options_choose_connections(fleet: Shop, words: tuple[str, ...], names: list[str]) -> None:
    document = fleet.run("sync", *words, "--output", "json").json
    assert [one["connection"] for one in document["connections"]] == names


def test_a_sync_of_several_loads_each(fleet: Shop) -> None:
    said = fleet.ok("sync", "--tag", "eu")
    assert said.out.index("archive") < said.out.index("shop\n")
    assert "2 connection(s) ended: 2 with exit code 0" in said.err
    verified = fleet.json("verify", "--tag", "eu")["connections"]
    assert [[table["equal"] for table in one["tables"]] for one in verified] == [[True, True], [True, True]]


def test_one_that_fails_stops_no_other(fleet: Shop) -> None:
    said = fleet.run("sync", "--match", "*")
    assert said.code == 4
    assert "gone.db" in said.err.partition("error: ")[2]
    assert "  away: exit code 4" in said.err
    documents = {
        one["connection"]: one for one in fleet.run("sync", "--match", "*", "--output", "json").json["connections"]
    }
    assert {name: one["exit_code"] for name, one in documents.items()} == {"archive": 0, "away": 4, "shop": 0}
    assert documents["shop"]["status"] == "done"
    assert documents["away"]["type"] == "urn:instep:ConnectError"


@pytest.mark.parametrize("option", ["--exit-code", "--check"])
def test_several_plans_end_with_the_code_that_all_others_share(fleet: Shop, option: str) -> None:
    assert fleet.run("plan", "--tag", "eu", option).code == 2
    assert fleet.run("plan", "--match", "*", option).code == PARTIAL


def test_detection_of_several_tells_of_each(fleet: Shop) -> None:
    documents = fleet.json("detect", "--tag", "eu")["connections"]
    assert [len(one["changes"]) for one in documents] == [3, 3]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sync", "shop", "--tag", "eu"), "shop is named beside --tag or --match"),
        (("sync", "--tag", "asia"), "no connection fits: with tag asia"),
        (("plan", "--match", "*", "--out", "plan.json"), "a plan file is that of one connection"),
        (("sync",), "this project has 3 connections: choose one"),
    ],
)
def test_what_cannot_be_chosen_is_said(fleet: Shop, words: tuple[str, ...], why: str) -> None:
    said = fleet.run(*words)
    assert (said.code, why in said.err) == (1, True), said


def test_a_fleet_is_not_listed_whole_in_errors(shop: Shop) -> None:
    """Nor are the problems of its file: what a thousand lines say alike is said a few times."""
    head = PROJECT.partition("connections:")[0] + "connections:\n"
    entries = [f"  c{number}: {{source: db, destination: lake, namespace: n{number}}}\n" for number in range(100)]
    shop.write(text=head + "".join(entries))
    said = shop.run("sync")
    assert "this project has 100 connections: choose one" in said.err
    assert "c9 and 90 more\n" in said.err
    shop.write(text=head + "".join(entries).replace("namespace", "nmespace"))
    said = shop.run("sync")
    assert said.err.count("unknown key, did you mean 'namespace'?") == 30
    assert "and 70 more problems" in said.err


def test_status_asks_for_tables_only_where_one_was_not_loaded(fleet: Shop) -> None:
    fleet.ok("sync", "--tag", "eu")
    fleet.sql('drop table "order"; alter table customer add column since text')
    fleet.run("sync", "archive")
    said = fleet.ok("status").out
    documents = {one["connection"]: one for one in fleet.json("status")["connections"]}
    assert [table["status"] for table in documents["shop"]["tables"]] == ["done", "done"]
    assert documents["away"]["tables"] == []
    assert "away  schema version 0, 0 tables, never run" in said
    assert "archive  schema version 2 (1.1), 2 tables, last sync " in said
    assert "  main.order: missing: " in said
    assert "shop  schema version 1 (1.0), 2 tables, last sync done" in said
