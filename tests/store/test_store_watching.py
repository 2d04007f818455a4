"""What pages about the past read: loads of runs, filtered events, plans of a run, catalogs as documents."""

from __future__ import annotations

from datetime import timedelta

from instep.events import ChangeApproved, RunEnded, TableLoaded
from instep.model import TableRun
from instep.schema.catalog.catalog import Catalog, Column, Table, catalog_to_dict
from instep.schema.catalog.types import parse
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.store import Store


def test_loads_are_those_of_one_table_or_of_all_together(any_url: str) -> None:
    with Store(any_url) as store:
        for number in (1, 2):
            run = store.runs.claim("eu", "sync")
            store.runs.record_tables(
                TableRun(run.id, ("main", "a"), "done", "upsert", 10 * number, number, 0, 0, 0, 100, 0.5),
                TableRun(run.id, ("", "b"), "failed" if number == 2 else "done", "upsert", 1, 1, 1, 1, 1, 1, 0.25),
            )
            store.runs.finish(run, "done")
        (_, last), (_, first) = store.runs.loads("eu", None, None, 10)
        assert (last.read, last.inserted, last.bytes, last.seconds, last.status) == (21, 3, 101, 0.75, "failed")
        assert (first.read, first.status) == (11, "done")
        [(run, one)] = store.runs.loads("eu", "main.a", 2, 10)
        assert (run.fence, one.read, one.status) == (1, 10, "done")
        assert [one.deleted for _, one in store.runs.loads("eu", "b", None, 1)] == [1]
        assert store.runs.loads("eu", "a", None, 10) == []
        assert store.runs.loads("us", None, None, 10) == []


def test_events_are_found_by_their_values_and_times(any_url: str) -> None:
    with Store(any_url) as store:
        store.events.add(
            RunEnded("eu", "r-1", "sync", "failed", "away"),
            TableLoaded("eu", "r-1", "main.a", "upsert", 1, 1, 0, 0, 0),
            ChangeApproved("eu", "c-1", "ann"),
        )
        now = store.events.latest()[0].at
        for data, types in (
            ({"run": "r-1"}, ["table.loaded", "run.ended"]),
            ({"run": "r-1", "status": "failed"}, ["run.ended"]),
            ({"who": "ann"}, ["change.approved"]),
            ({"who": "'ann"}, []),
        ):
            assert [one.type for one in store.events.latest(data=data)] == types, data
        assert len(store.events.latest(since=now - timedelta(hours=1), until=now + timedelta(hours=1))) == 3
        assert store.events.latest(until=now - timedelta(hours=1)) == []
        assert store.events.latest(since=now + timedelta(hours=1)) == []


def test_plans_are_those_of_their_run(any_url: str) -> None:
    with Store(any_url) as store:
        for name, run in (("p-1", "r-1"), ("p-2", "r-2"), ("p-3", "r-1")):
            store.plans.open("eu", name, {}, [], base_accepted="", base_destination="", run=run)
        assert [one.id for one in store.plans.of_run("eu", "r-1")] == ["p-1", "p-3"]
        assert store.plans.of_run("us", "r-1") == []


def test_catalogs_are_documents(any_url: str) -> None:
    catalog = Catalog.of([Table("main", "a", (Column("id", parse("int64"), key=1),))])
    with Store(any_url) as store:
        assert store.discoveries.document("eu") == store.accepted.document("eu", 1) == {}
        assert store.discoveries.without_catalog("eu") is None
        store.discoveries.save("eu", CachedDiscovery(catalog, "f", identity="x"))
        store.accepted.add("eu", catalog, who="ann", why="")
        store.schemas.add("eu", "destination", catalog)
        document = catalog_to_dict(catalog)
        assert store.discoveries.document("eu") == store.accepted.document("eu", 1) == document
        assert store.schemas.document("eu", "destination", 1) == document
        seen = store.discoveries.without_catalog("eu")
        assert seen is not None
        assert (seen.fingerprint, seen.identity, seen.catalog) == ("f", "x", Catalog())
