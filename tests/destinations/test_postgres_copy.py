# ruff: noqa: F811, S608 - the imported `spark` is a fixture, names are ours
"""Tasks of Spark that copy staged rows: each file once, whatever becomes of tasks."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from postgres_world import Warehouse, config_of, database, shared  # noqa: F401

from instep.destinations.base import LoadOutcome, Merge
from instep.destinations.postgres import copy_task, staging
from instep.destinations.postgres.copy_task import CopyTask, copy_files
from instep.errors import ConnectError, InstepError, StageError
from instep.project.sections.reach import Tls
from instep.sources.postgres.connect import conninfo
from lake import PREFIX, REF, spark, stage, with_spark  # noqa: F401
from postgres_server import Database

pytestmark = pytest.mark.server
META = f"{PREFIX}meta"
LEFT = "SELECT relname FROM pg_class WHERE relnamespace = '_instep'::regnamespace AND relkind = 'r' ORDER BY 1"
OURS = [("dropped",), ("tables",)]


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Warehouse:
    return Warehouse(database, tmp_path, copy_rows=0)


def files(shop: Warehouse, first: int, count: int = 40) -> list[Any]:
    """Staged files of five rows each."""
    return [stage(shop.to, REF, [{"id": first + 5 * n + i} for i in range(5)], chunk=n) for n in range(count)]


def ids(shop: Warehouse) -> list[int]:
    return [i for (i,) in shop.sql("SELECT id FROM shop.orders ORDER BY id")]


@with_spark
def test_no_row_passes_through_the_driver(shop: Warehouse, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "copy_by_threads", lambda *_: pytest.fail("rows came to this process"))
    write, start = shop.to.write, lambda: spark
    assert write.overwrite(REF, files(shop, 0), shop.commit(), start) == LoadOutcome(inserted=200)
    assert write.append(REF, files(shop, 200, 3), shop.commit(), start) == LoadOutcome(inserted=15)
    outcome = write.merge(start, REF, files(shop, 210), Merge(("id",), complete=True, deletes="hard"), shop.commit())
    assert (outcome.inserted, outcome.deleted) == (195, 210)
    assert ids(shop) == list(range(210, 410))
    assert shop.sql(LEFT) == OURS
    assert shop.to.server.config.password not in str(spark.sparkContext.getConf().getAll())


def work_of(shop: Warehouse, made: staging.PostgresStaging, numbers: Any) -> CopyTask:
    schema = made._schema(made.record, made.record.names)
    config, area = shop.to.server.config, shop.to.server.area
    return CopyTask(config, area, made.bare("next"), schema, False, numbers, made.bare("nextparts"))


def test_a_file_comes_once_whatever_attempts_there_are(shop: Warehouse) -> None:
    commit, staged = shop.commit(), tuple(enumerate(files(shop, 0)))
    server = shop.to.server
    with staging.PostgresStaging(server, server.known(REF, commit), commit) as made:
        made.make("next", server.dialect.definitions(made.record.table), 200)
        made.make("nextparts", {"part": "bigint PRIMARY KEY"}, 40)
        work = work_of(shop, made, staged)
        again = replace(work, files=staged[::-1])
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda w: copy_files(pickle.loads(pickle.dumps(w)), 0, None), [work, again, work]))
        with made.loading() as (session, _):
            assert session.count(f"SELECT count(*) FROM {made.table('next')}") == 200
    assert shop.sql(LEFT) == OURS


@with_spark
def test_a_worker_that_dies_amid_its_copy_doubles_nothing(
    shop: Warehouse, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session at the server waits for a lock, and may outlive it."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'instep'"
    copy = copy_task.copy_by_tasks

    def gated(session: Any, work: CopyTask) -> None:
        with psycopg.connect(conninfo(shop.database.config)) as holder:
            holder.execute(f'LOCK TABLE _instep."{work.table}" IN ACCESS EXCLUSIVE MODE'.encode())
            killer = threading.Thread(target=kill, args=[holder])
            killer.start()
            copy(session, work)
            killer.join()

    def kill(holder: psycopg.Connection[Any]) -> None:
        while shop.sql(waits)[0][0] == 0:
            pass
        java = next(p for p in psutil.Process().children(recursive=True) if "java" in p.name())
        for worker in [w for daemon in java.children() for w in daemon.children()]:
            worker.kill()
        holder.rollback()

    monkeypatch.setattr(staging, "copy_by_tasks", gated)
    assert shop.to.write.overwrite(REF, files(shop, 0), shop.commit(), lambda: spark).inserted == 200
    assert ids(shop) == list(range(200))
    assert shop.sql(LEFT) == OURS


@with_spark
def test_what_a_task_cannot_do_is_told_without_the_password(shop: Warehouse, spark: Any, tmp_path: Path) -> None:
    wrong = shop.to.server.config.model_copy(update={"port": 1, "password": "not in any message"})
    with pytest.raises(ConnectError, match="refused") as error:
        copy_task.copy_by_tasks(
            spark, CopyTask(wrong, shop.to.server.area, "t", staging.pa.schema([]), False, [(0, files(shop, 0, 1)[0])])
        )
    assert "not in any message" not in str(error.value)
    assert "not in any message" not in repr(wrong)


def test_files_that_tasks_do_not_see_are_copied_here(
    shop: Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rows of a connector are staged by the driver, maybe on a disk of its own; those that nobody sees are gone."""
    staged = files(shop, 0)

    def elsewhere(_: Any, work: CopyTask) -> Any:
        hidden = [(n, replace(f, path=f.path.replace("staging", "hidden"))) for n, f in work.files[::2]]
        unseen = copy_files(replace(work, files=[*hidden, *work.files[1::2]]), 0, None)
        assert list(unseen) == hidden
        return work.files[::2]

    monkeypatch.setattr(staging, "copy_by_tasks", elsewhere)
    assert shop.to.write.overwrite(REF, staged, shop.commit(), lambda: object()).inserted == 200  # type: ignore[arg-type, return-value]
    assert ids(shop) == list(range(200))
    with pytest.raises(StageError, match="is gone: nothing was written"):
        shop.to.write.overwrite(REF, staged, shop.commit())
    assert shop.sql(LEFT) == OURS


def test_certificates_go_along_as_texts(shop: Warehouse, tmp_path: Path) -> None:
    """Tasks may run where their files are not."""
    text = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
    path = tmp_path / "ca.pem"
    path.write_text(text)
    tls = Tls.resolved(mode="verify-full", ca=str(path), cert=str(path), key="k")
    there = pickle.loads(pickle.dumps(shop.to.server.config.model_copy(update={"tls": tls})))
    assert (there.tls.ca, there.tls.cert) == (text, text)


def test_staging_of_an_attempt_that_is_still_at_it_is_removed(shop: Warehouse) -> None:
    """Tasks of a driver that was killed: they are ended, and their tables go."""
    server, commit = shop.to.server, shop.commit()
    made = staging.PostgresStaging(server, server.known(REF, commit), commit)
    made.make("next", {"id": "bigint"}, 0)
    with ExitStack() as stack:
        arrow = stack.enter_context(server.arrow())
        with arrow.connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {made.table('next')} IN ACCESS EXCLUSIVE MODE")
        shop.commit("later")
        shop.to.lifecycle.remove_uncommitted_files(REF, {"another": 0})
        assert shop.sql(LEFT) == OURS
        with pytest.raises(InstepError, match=r"no connection|terminating|closed"):
            stack.close()
