"""`instep quarantine`: counts, one entry, replay, discard and erase, for people and as JSON; no JVM."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_world import Shop

from instep.destinations.base import Commit
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.model import TableRun
from instep.schema.catalog.types import parse
from instep.stage.conform import QuarantinedValue
from instep.stage.quarantine import QuarantineFile
from instep.stage.spec import StageColumn, StageSpec, SystemColumns
from lake import stage

REF = ("shop", "customer")
NOTE = '{"changes":[{"field":"city","change":"nulled","reason":"not a number"}]}'


@pytest.fixture
def held(shop: Shop) -> Shop:
    """Two values of customers 1 and 2 are held, the row of the second has moved on, and a row without a key."""
    shop.applied()
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(shop.folder / "lake")))
    with shop.store() as store:
        run = store.runs.claim("shop", "sync")
        store.runs.record_tables(TableRun(run.id, ("main", "customer"), "done", invalid_values=3))
        store.runs.finish(run, "done")
    lake.write.claim(REF, run.fence)
    rows = [{"id": 1, "name": "Ann", "_instep_meta": NOTE}, {"id": 2, "name": "Bo", "city": "Rome"}]
    lake.write.append(REF, [stage(lake, REF, rows)], Commit(run.id, run.fence))
    target = lake.write.target(REF)
    columns = tuple(
        StageColumn(n, parse(k), parse(k), n, key=p)
        for n, k, p in (("id", "int64", 1), ("name", "string", 0), ("city", "string", 0))
    )
    spec = StageSpec(
        "0", columns, SystemColumns(), target.schema, target.location, target.quarantine, run.id,
        int(run.started.timestamp() * 1e6), path="main.customer", holds={"city": ("c-77", "rule 1")},
    )  # fmt: skip
    file = QuarantineFile(spec, 0, 0)
    file.add(
        [
            QuarantinedValue('{"id":"1"}', "city", "Oslo\x1b", "not a number"),
            QuarantinedValue('{"id":"2"}', "city", "Bergen", "too long"),
        ]
    )
    file.add([QuarantinedValue('{"id":null}', "", '{"id":null,"name":"Cy"}', "NULL in the key (id)")])
    file.close()
    return shop


def ids(shop: Shop) -> dict[Any, str]:
    """The text of a value, or None for a row, to its id."""
    entries = shop.json("quarantine", "list", "--limit", "9", "--all")["entries"]
    return {e["original"] if isinstance(e["original"], str) else None: e["id"] for e in entries}


def test_counts_and_entries(held: Shop) -> None:
    found = held.json("quarantine", "list")
    groups = {(g["table"], g["column"], g["reason"], g["change"], g["count"]) for g in found["groups"]}
    assert (found["total"], found["entries"]) == (3, [])
    assert groups == {
        ("main.customer", "", "NULL in the key (id)", "", 1),
        ("main.customer", "city", "not a number", "c-77", 1),
        ("main.customer", "city", "too long", "c-77", 1),
    }
    said = held.ok("quarantine", "list", "main.customer", "--column", "city", "--limit", "1").out
    assert len(said.splitlines()) == 4
    assert "\x1b" not in held.ok("quarantine", "list", "--limit", "9").out
    assert held.json("quarantine", "list", "main.order")["total"] == 0
    assert held.json("quarantine", "list", "--run", "r-1")["total"] == 0
    assert "main.customer: 3 value(s) or rows in quarantine" in held.ok("status").out
    assert held.json("status")["connections"][0]["quarantine"] == {"main.customer": 3}


def test_one_entry(held: Shop) -> None:
    id = ids(held)["Bergen"]
    found = held.json("quarantine", "show", id[:9])
    assert {n: found[n] for n in ("key", "original", "reason", "change", "rule", "status")} == {
        "key": {"id": "2"}, "original": "Bergen", "reason": "too long", "change": "c-77", "rule": "rule 1",
        "status": "held",
    }  # fmt: skip
    said = held.ok("quarantine", "show", id).out
    assert all(text in said for text in ("Bergen", "c-77", "too long", "main.customer.city", "waiting"))


def test_replay(held: Shop) -> None:
    before = held.json("query", "select id, city from shop.customer order by id")["rows"]
    said = held.ok("quarantine", "replay", "--dry-run").out
    assert "1 would be replayed, 1 superseded by newer values, 1 still quarantined" in said
    assert held.json("query", "select id, city from shop.customer order by id")["rows"] == before
    [done] = held.json("quarantine", "replay", "main.customer")["tables"]
    assert {n: done[n] for n in ("replayed", "superseded", "held", "updated", "inserted")} == {
        "replayed": 1, "superseded": 1, "held": 1, "updated": 1, "inserted": 0,
    }  # fmt: skip
    assert done["reasons"] == [{"column": "", "reason": "NULL in the key", "count": 1}]
    rows = held.json("query", "select id, city, _instep_meta as m from shop.customer order by id")["rows"]
    assert rows == [{"id": 1, "city": "Oslo\x1b", "m": None}, {"id": 2, "city": "Rome", "m": None}]
    assert "0 replayed, 0 superseded" in held.ok("quarantine", "replay").out
    assert held.json("status")["connections"][0]["last_run"]["kind"] == "replay"


def test_a_table_that_cannot_be_replayed_is_told_by_the_exit_code(held: Shop) -> None:
    held.ok("pause", "--table", "main.customer", "--reason", "later")
    said = held.run("quarantine", "replay")
    assert (said.code, "main.customer: failed: main.customer is paused: later" in said.out) == (1, True)


def test_discard_asks_and_names(held: Shop) -> None:
    id = ids(held)["Bergen"]
    refused = held.run("quarantine", "discard", id)
    assert (refused.code, "nothing was discarded" in refused.err) == (3, True)
    assert held.json("quarantine", "discard", id, "--yes")["ids"] == [id]
    assert held.json("quarantine", "list")["total"] == 2
    assert held.json("quarantine", "show", id)["original"] is None
    assert held.json("quarantine", "discard", "main.customer", "--yes")["discarded"] == 2
    assert held.ok("quarantine", "list").out.strip() == "the quarantine is empty"
    assert held.json("quarantine", "discard", "main.customer", "--yes")["discarded"] == 0
    assert "quarantine" not in held.ok("status").out


def test_a_row_is_erased(held: Shop) -> None:
    words = ("quarantine", "discard", "main.customer", "--key", json.dumps({"id": 1}))
    assert held.run(*words).code == 3
    assert held.json(*words, "--yes")["erased"] == 1
    assert "Oslo\x1b" not in ids(held)


WRONG = [
    ("no key", ("discard", "main.customer", "--key", "7"), "not an object of columns"),
    ("no JSON", ("discard", "main.customer", "--key", "{id: 7}"), "not JSON"),
    ("a key without a table", ("discard", "q-1", "--key", '{"id": 7}'), "needs exactly one table"),
    ("a key of two tables", ("discard", "a.b", "c.d", "--key", '{"id": 7}'), "needs exactly one table"),
    ("no such id", ("show", "q-zzz"), "no entry in quarantine: q-zzz"),
    ("several ids", ("show", "q-"), "3 entries in quarantine"),
    ("no such table", ("replay", "main.nothing"), "main.nothing"),
    ("no table to list", ("list", "main.nothing"), "main.nothing"),
    ("another table was meant", ("list", "main.custmer"), "did you mean main.customer?"),
    ("no table to discard", ("discard", "main.nothing", "--yes"), "main.nothing"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "told"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_is_wrong_is_told_and_changes_nothing(held: Shop, words: tuple[str, ...], told: str) -> None:
    said = held.run("quarantine", *words, "--yes")
    assert (said.code, told in said.err) == (1, True), said
    assert held.json("quarantine", "list")["total"] == 3


def test_before_the_first_sync(shop: Shop) -> None:
    assert shop.ok("quarantine", "list").out.strip() == "the quarantine is empty"
    assert shop.json("quarantine", "replay") == {"format_version": 1, "dry_run": False, "tables": []}
    assert shop.json("status")["connections"][0]["quarantine"] == {}
