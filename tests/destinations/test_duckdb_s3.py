"""Tables of one run whose files are staged in an object store, by a real S3 server, and loaded at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from instep.destinations.base import Commit, Merge
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.schema.catalog.catalog import Table
from lake import ID, column, create, rows_of, stage, table
from s3_server import Bucket

TABLES = [table(ID, column("name", "string"), name=f"t{number}") for number in range(6)]
ROWS = [{"id": number, "name": "a" * 50} for number in range(500)]


def destination(folder: Path, bucket: Bucket) -> DuckDbDestination:
    config = DuckDbConfig.resolved(
        name="lake", path=str(folder / "shop.duckdb"), staging=f"{bucket.uri}/staging", properties=bucket.io
    )
    made = DuckDbDestination(config)
    for wanted in TABLES:
        create(made, wanted)
    return made


def brought(folder: Path) -> list[Path]:
    """Return the folders of what is on this machine of staged files."""
    return list((folder / "shop.duckdb.files").glob("staged-*"))


def test_what_a_load_of_another_table_has_brought_stays(tmp_path: Path, bucket: Bucket) -> None:
    to, commit = destination(tmp_path, bucket), Commit("r2", 2)
    one, other = TABLES[0].ref, TABLES[1].ref
    record = to.database.known(one, commit)
    with to.database.staging(record, commit) as staging:
        staging.add("rows", record.names, [stage(to, one, ROWS)])
        assert to.write.append(other, [stage(to, other, ROWS)], commit).inserted == len(ROWS)
        with staging.loading() as (session, found):
            assert staging.insert(session, found, "rows") == len(ROWS)


def test_what_dead_runs_have_brought_here_is_removed(tmp_path: Path, bucket: Bucket) -> None:
    to, ref = destination(tmp_path, bucket), TABLES[0].ref
    for fence in (2, 3):
        commit = Commit(f"r{fence}", fence)
        staging = to.database.staging(to.database.known(ref, commit), commit)
        staging.add("rows", ["id"], [stage(to, ref, ROWS)])
    assert len(brought(tmp_path)) == 2
    to.lifecycle.remove_uncommitted_files(TABLES[1].ref, {"r2": 2, "r3": 3})
    assert len(brought(tmp_path)) == 2
    to.lifecycle.remove_uncommitted_files(ref, {"r2": 2})
    [left] = brought(tmp_path)
    assert left.name.startswith("staged-3-")


def test_tables_of_one_run_are_loaded_at_once(tmp_path: Path, bucket: Bucket) -> None:
    to = destination(tmp_path, bucket)

    def load(wanted: Table) -> tuple[int, int, int]:
        ref = wanted.ref
        whole = to.write.overwrite(ref, [stage(to, ref, ROWS)], Commit("r2", 2))
        more = to.write.append(ref, [stage(to, ref, [{"id": 1000}])], Commit("r2", 2))
        merged = to.write.merge(None, ref, [stage(to, ref, [{"id": 1, "name": "b"}])], Merge(("id",)), Commit("r2", 2))
        return whole.inserted, more.inserted, merged.updated

    with to.lifecycle.session(), ThreadPoolExecutor(len(TABLES)) as pool:
        assert list(pool.map(load, TABLES)) == [(len(ROWS), 1, 1)] * len(TABLES)
    assert {len(rows_of(to, wanted.ref)) for wanted in TABLES} == {len(ROWS) + 1}
    assert brought(tmp_path) == []
