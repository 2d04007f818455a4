"""`instep repair`: the same at a project and over the server of one that is alike, but for keys of rows."""

from __future__ import annotations

from remote_world import Twins

JSON = ("--output", "json")
DAMAGE = "update item set name = 'z' where id = 1; delete from item where id = 2; insert into item values (9, 'x');"
ALLOWED = ("--allow-destructive", "main.item", "--yes")


def test_a_table_is_repaired_by_a_worker(twins: Twins) -> None:
    twins.both("apply", "--yes", *JSON)
    twins.both("sync", *JSON)
    twins.sql(DAMAGE)
    words = ("repair", "main.item")
    here, there = (run(*words, "--dry-run", *JSON).json for run in (twins.near.here, twins.far.there))
    assert (here.pop("examples") != {}, there.pop("examples")) == (True, {})
    assert here == there
    twins.both(*words, "--yes", code=3)
    _, done = twins.both(*words, *ALLOWED, *JSON)
    assert [done.json[name] for name in ("inserted", "updated", "deleted")] == [1, 1, 1]
    assert done.json["verdict"]["equal"] is True
    twins.both("verify")
    twins.both(*words)
    twins.both("repair", "main.itm", code=1)
    with twins.far.store() as store:
        jobs = [job for job in store.jobs.find(connection="shop") if job.kind == "repair"]
        audit = [one for one in store.audit.page() if one.action == "connection.repair"]
        assert all("9" not in str(job.result.get("detail")) for job in jobs)
    assert {job.options.get("preview", False) for job in jobs} == {True, False}
    assert len(audit) == len(jobs)
