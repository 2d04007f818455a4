"""One job over all chunks: right rows, once, whatever happens to its workers."""

from __future__ import annotations

import pickle
import secrets
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_world import RangeReader, ids, table_spec

from instep.errors import StageError
from instep.spark.extract import ExtractTask, RunningJob, _payload, extract
from instep.spark.payload import THRESHOLD, packed
from instep.stage.files.place import keep_only
from instep.stage.spec import Chunk, ChunkResult, SourceLimits, pack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def chunks(table: str, *queries: str, lane: str = "") -> list[Chunk]:
    return [Chunk(table, at, query, lane=lane) for at, query in enumerate(queries)]


def of(results: list[ChunkResult], table: str) -> list[ChunkResult]:
    return [r for r in results if r.table == table]


def test_all_tables_in_one_job(spark_session: SparkSession, tmp_path: Path) -> None:
    wanted = [c for n in range(20) for c in chunks(f"t{n}", f"rows 0 {n * 100}", f"rows {n * 100} {n * 200}")]
    specs = [table_spec(f"t{n}", tmp_path) for n in range(20)]
    before = len(spark_session.sparkContext.statusTracker().getJobIdsForGroup(None))
    results = extract(spark_session, RangeReader(str(tmp_path)), specs, wanted)
    assert {(r.table, r.chunk) for r in results} == {(c.table, c.number) for c in wanted}
    assert len(results) == len(wanted)
    for n in range(20):
        assert ids(of(results, f"t{n}")) == list(range(n * 200))
    assert len(spark_session.sparkContext.statusTracker().getJobIdsForGroup(None)) == before + 1


def test_no_chunks_no_job(spark_session: SparkSession, tmp_path: Path) -> None:
    assert extract(spark_session, RangeReader(str(tmp_path)), [], []) == []


def test_one_small_chunk(spark_session: SparkSession, tmp_path: Path) -> None:
    (result,) = extract(spark_session, RangeReader(""), [table_spec("t", tmp_path)], chunks("t", "rows 0 3"), tasks=1)
    assert (result.read, ids([result]), result.files[0].rows) == (3, [0, 1, 2], 3)
    assert result.files[0].footer


def test_a_killed_worker_is_retried_and_only_finished_work_counts(spark_session: SparkSession, tmp_path: Path) -> None:
    """The task's first chunk is written before the worker dies: its file stays, and is not in the result."""
    work = chunks("t", "rows 0 500", "die once 500 900", lane="t")
    results = extract(spark_session, RangeReader(str(tmp_path)), [table_spec("t", tmp_path)], work, tasks=1)
    assert (tmp_path / "once").exists()
    assert ids(results) == list(range(900))
    assert all("-1-0-" in f.path for r in results for f in r.files)
    assert len(list((tmp_path / "t").iterdir())) > sum(len(r.files) for r in results)


def test_a_retried_task_sees_the_driver_s_folder_after_a_table_is_committed(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit sweeps the folder of its run while other tables are still read."""
    monkeypatch.setattr("instep.spark.extract.elsewhere", lambda _: True)
    specs = [table_spec(f"lake/{name}/data/run", tmp_path) for name in ("a", "b")]
    first, second = (spec.table for spec in specs)
    work = [*chunks(first, "rows 0 9", lane="l"), *chunks(second, "slow 0 3000", "die once 3000 3500", lane="l")]
    swept: list[object] = []

    def sweep(_: object) -> None:
        if not swept and Path(specs[0].location).exists():
            swept.append(keep_only(specs[0].location, {}, []))

    results = extract(spark_session, RangeReader(str(tmp_path)), specs, work, tasks=1, progress=sweep)
    assert swept
    assert ids(of(results, second)) == list(range(3500))


def test_a_failed_table_leaves_the_others(spark_session: SparkSession, tmp_path: Path) -> None:
    specs = [table_spec(t, tmp_path) for t in ("a", "b", "c", "d")]
    work = [*chunks("a", "lost"), *chunks("b", "rows 0 10"), *chunks("c", "gone"), *chunks("d", "odd")]
    results = extract(spark_session, RangeReader(str(tmp_path)), specs, work, tasks=1)
    assert {r.table: r.error.split("\n")[0] for r in results} == {
        "a": "a: no right to read",
        "b": "",
        "c": "c: the server is gone",
        "d": "d: reading failed in chunk 0: odd",
    }


def test_a_worker_that_always_dies_is_told_plainly(spark_session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="a Python worker ended without a word") as caught:
        extract(spark_session, RangeReader(""), [table_spec("t", tmp_path)], chunks("t", "vanish"), tasks=1)
    assert "memory" in caught.value.hint
    assert len(str(caught.value).splitlines()) == 2


def test_progress_is_told_while_tasks_run(spark_session: SparkSession, tmp_path: Path) -> None:
    told: list[dict[str, tuple[int, int]]] = []

    def hear(counts: Mapping[str, tuple[int, int]]) -> None:
        told.append(dict(counts))
        if "t" in counts:
            (tmp_path / "heard").touch()

    work = chunks("t", "until heard 0 4000", "rows 4000 5000")
    results = extract(spark_session, RangeReader(str(tmp_path)), [table_spec("t", tmp_path)], work, progress=hear)
    rows = [counts["t"][0] for counts in told if "t" in counts]
    assert rows == sorted(rows)
    assert any(0 < n < 5000 for n in rows)
    assert told[-1]["t"] == (5000, sum(f.bytes for r in results for f in r.files))


def test_a_failure_to_tell_progress_cancels_the_job(spark_session: SparkSession, tmp_path: Path) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        extract(
            spark_session, RangeReader(""), [table_spec("t", tmp_path)], chunks("t", "slow 0 9000000"), progress=stop
        )
    tracker = spark_session.sparkContext.statusTracker()
    while tracker.getActiveJobsIds() and time.monotonic() - begun < 300:
        time.sleep(0.1)
    assert tracker.getActiveJobsIds() == []


def test_connect_reads_the_same_by_sql(spark_session: SparkSession, tmp_path: Path) -> None:
    parts = [chunks("t", "rows 0 500")], [chunks("t", "rows 500 900")]
    specs = {"t": table_spec("t", tmp_path)}
    work = tuple(_payload(RangeReader(""), specs, part) for (part,) in parts)
    job = RunningJob(spark_session, ExtractTask(work, ""))
    results = [result for row in job._arrow() for result in pickle.loads(row)]
    assert ids(results) == list(range(900))


def test_the_task_shows_no_reader(tmp_path: Path) -> None:
    task = ExtractTask((packed("hush"), b"hush"), "")
    assert "hush" not in repr(task)


def large(table: str) -> list[Chunk]:
    """Work that has more than 2 MB however it is compressed."""
    return chunks(table, f"rows 0 3 {secrets.token_hex(1 << 21)}")


def files_of(spark: SparkSession) -> set[Path]:
    """Where pyspark puts what it does not keep in memory."""
    return set(Path(spark.sparkContext._temp_dir).rglob("*"))  # type: ignore[arg-type]


def test_what_tasks_are_told_is_not_written_to_a_file(spark_session: SparkSession, tmp_path: Path) -> None:
    before = files_of(spark_session)
    results = extract(spark_session, RangeReader("hush"), [table_spec("t", tmp_path)], large("t"))
    assert ids(results) == [0, 1, 2]
    assert files_of(spark_session) == before


def test_a_session_that_would_write_it_is_refused(spark_session: SparkSession, tmp_path: Path) -> None:
    """Such as one that a notebook has started."""
    before, conf = files_of(spark_session), spark_session.sparkContext._jsc.sc().conf()
    own = conf.get(THRESHOLD)
    conf.set(THRESHOLD, "1m")
    try:
        with pytest.raises(StageError, match="with passwords in it") as caught:
            extract(spark_session, RangeReader("hush"), [table_spec("t", tmp_path)], large("t"))
        assert len(extract(spark_session, RangeReader(""), [table_spec("u", tmp_path)], chunks("u", "rows 0 3"))) == 1
    finally:
        conf.set(THRESHOLD, own)
    assert THRESHOLD in caught.value.hint
    assert files_of(spark_session) == before


def test_many_chunks_are_told_in_few_bytes(tmp_path: Path) -> None:
    columns = ", ".join(f'"column_{at}"::text AS "column_{at}"' for at in range(50))
    work = chunks("t", *(f'{columns} WHERE "id" >= {at * 999_983} AND "id" < {at + 1}' for at in range(20_000)))
    specs = {"t": table_spec("t", tmp_path)}
    parts = [_payload(RangeReader(""), specs, part) for part in pack(work, 8)]
    assert sum(map(len, parts)) < 2 << 20


INTERRUPTED = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, sys.argv[2])
    from pathlib import Path
    from spark_world import RangeReader, table_spec
    from instep.spark.extract import extract
    from instep.spark.session import start
    from instep.spark.settings import SparkSettings
    from instep.stage.spec import Chunk
    spark = start(SparkSettings(master="local[1]", driver_memory="512m"))
    try:
        print("ready", flush=True)
        extract(spark, RangeReader(""), [table_spec("t", Path(sys.argv[1]))], [Chunk("t", 0, "slow 0 9000000")])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        print(spark.range(3).count(), flush=True)
    """
)


@pytest.mark.slow
def test_ctrl_c_stops_the_job_and_not_the_session(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().split() == ["interrupted", "3"]
    assert process.returncode == 0


@dataclass(frozen=True)
class Bounded(RangeReader):
    limits: SourceLimits = field(default_factory=SourceLimits)


@pytest.mark.sampled
@pytest.mark.parametrize(("limits", "most", "least"), [(SourceLimits(2), 1, 0.0), (SourceLimits(0, 400), 2, 1.5)])
def test_limits_of_the_source_hold_over_all_tasks(
    spark_session: SparkSession, tmp_path: Path, limits: SourceLimits, most: int, least: float
) -> None:
    work = chunks("t", *(f"rows {at * 100} {at * 100 + 100}" for at in range(8)))
    reader, began = Bounded(str(tmp_path), limits=limits), time.monotonic()
    results = extract(spark_session, reader, [table_spec("t", tmp_path)], work)
    assert ids(results) == list(range(800))
    assert time.monotonic() - began >= least
    tracker = spark_session.sparkContext.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(None)))
    assert job is not None
    stage = tracker.getStageInfo(job.stageIds[0])
    assert stage is not None
    assert stage.numTasks <= most
