"""What a row costs as a narrow table grows: a process on a standalone cluster of two workers, into Iceberg.

    python bench/scale.py --rows 1m,10m,100m [--only load,cursor] [--extra] [--upsert-rows 0]

The table has a bigint key, a small integer, a short text and a moment that moves with each change; the server makes it,
UNLOGGED. One process with one Spark session does all operations, after it has synced a small table. Printed are the
seconds on the clock, the CPU seconds of all processes but PostgreSQL's (also for a million rows, and beside those of
the number of rows before), and the peak memory (PSS) of the driver's Python processes, of its JVM and of all executors.
Results stay in .cache/bench/results/scale.json, so that sizes may be run one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import data
import places
import project
import server
from measure import descendants, machine_cpu, processes, proportional, tree, tree_cpu

sys.path.append(str(places.REPOSITORY / "tests" / "cluster"))

from spark_cluster import Standalone

Record = dict[str, Any]
RESULTS = places.RESULTS / "scale.json"
SAMPLE_SECONDS = 0.5
LONGEST_SECONDS = 7200
SHARED_BUFFERS = "512MB"
CREATE = (
    "create schema shop",
    "create unlogged table shop.narrow (id bigint not null, kind integer, note text, updated_at timestamptz not null)",
    """insert into shop.narrow
       select i, (i * 2654435761 % 4294967296 % 1000)::integer, 'n' || i * 2654435761 % 1000000,
         timestamptz '2023-01-01' + i * interval '1 second'
       from generate_series(1::bigint, {rows}) as i""",
    "alter table shop.narrow add primary key (id)",
    "create index on shop.narrow (updated_at)",
    "vacuum analyze shop.narrow",
    "checkpoint",
)
CHANGE = """
update shop.narrow set kind = kind + 1, updated_at = timestamptz '{year}-01-01' + id * interval '1 millisecond'
where id % 100 = {part}
"""


@dataclass(frozen=True)
class Operation:
    """What happens at the source, actions that are not measured, and the one that is (`scale_driver.ACTIONS`).

    `late` happens at the source after the first of those actions.
    """

    name: str
    source: Sequence[str]
    action: str
    before: Sequence[str] = ()
    late: Sequence[str] = ()


OPERATIONS = (
    Operation("load", CREATE, "sync"),
    Operation("cursor", (CHANGE.format(year=2100, part=0),), "sync"),
    Operation("compare", (CHANGE.format(year=2110, part=1),), "sync in full"),
    Operation(
        "column",
        (
            "alter table shop.narrow add column more integer",
            "alter table shop.narrow alter column more type integer using id % 977",
            "vacuum analyze shop.narrow",
        ),
        "backfill",
        ("sync",),
    ),
    Operation(
        "retype",
        ("alter table shop.narrow alter column kind type text", "vacuum analyze shop.narrow"),
        "apply",
        ("detect",),
    ),
    Operation("verify", (), "verify", ("sync",)),
)
EXTRA = (
    Operation(
        "promote",  # of two new columns one waits: its values are in `_instep_extra`, and the source drops it
        (
            "alter table shop.narrow add column seen integer, add column waits integer",
            "alter table shop.narrow alter column waits type integer using id % 911",
        ),
        "sync",
        ("sync in full", "sync", "approve"),
        ("alter table shop.narrow drop column waits",),
    ),
    Operation(
        "quarantine",  # the first count of a quarantine with a value of each row
        ("alter table shop.narrow alter column more type date using date '2000-01-01' + more", "vacuum analyze"),
        "count",
        ("sync in full",),
    ),
    Operation("count again", (), "count"),
)


class Peaks(threading.Thread):
    """Watches the memory of the driver's Python processes, of its JVM and of the executors until stopped."""

    def __init__(self, driver: int, workers: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self.driver, self.workers = driver, workers
        self.bytes = {"driver": 0, "jvm": 0, "executors": 0}
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(SAMPLE_SECONDS):
            self.look()

    def look(self) -> None:
        table = processes()
        driver = set(tree(self.driver, table))
        jvm = {pid for pid in driver if is_java(pid)}
        executors = {pid for root in self.workers for pid in descendants(root, table)}
        for name, pids in {"driver": driver - jvm, "jvm": jvm, "executors": executors}.items():
            self.bytes[name] = max(self.bytes[name], sum(map(proportional, pids)))

    def stop(self) -> dict[str, int]:
        """The peaks in MB."""
        self.stopping.set()
        self.join()
        self.look()
        return {f"{name}_mb": round(peak / 2**20) for name, peak in self.bytes.items()}


def is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name == "java"
    except OSError:
        return False


@dataclass(frozen=True)
class Bench:
    """The driver's process, and all that works for it."""

    driver: subprocess.Popen[str]
    database: server.Server
    cluster: Standalone
    rows: int
    log: Path

    def measure(self, operation: Operation) -> Record:
        self.change(operation.source)
        for number, action in enumerate(operation.before):
            self.perform(action)
            if number == 0:
                self.change(operation.late)
        workers = [worker.process.pid for worker in self.cluster.workers]
        roots = [self.driver.pid, self.cluster.master.process.pid, *workers]
        cpu, server_cpu, machine = sum(map(tree_cpu, roots)), tree_cpu(self.database.pid), machine_cpu()
        peaks = Peaks(self.driver.pid, workers)
        peaks.start()
        begun = time.monotonic()
        self.perform(operation.action)
        wall = time.monotonic() - begun
        memory = peaks.stop()
        cpu = sum(map(tree_cpu, roots)) - cpu
        server_cpu = tree_cpu(self.database.pid) - server_cpu
        others = (machine_cpu() - machine - cpu - server_cpu) / wall / (os.cpu_count() or 1)
        return {
            "operation": operation.name, "rows": self.rows, "wall": round(wall, 2), "cpu": round(cpu, 2),
            "server_cpu": round(server_cpu, 2), "busy_elsewhere": round(max(others, 0.0), 2), **memory,
        }  # fmt: skip

    def change(self, statements: Sequence[str]) -> None:
        with self.database.connect() as connection:
            for statement in statements:
                connection.execute(statement.format(rows=self.rows).encode())

    def perform(self, action: str) -> None:
        """Has the driver do it, and waits for the end."""
        assert self.driver.stdin is not None
        assert self.driver.stdout is not None
        late = threading.Timer(LONGEST_SECONDS, self.driver.kill)
        late.daemon = True
        late.start()
        self.driver.stdin.write(f"{action}\n")
        self.driver.stdin.flush()
        line = self.driver.stdout.readline()
        late.cancel()
        answer = json.loads(line or '{"error": "the driver has ended"}')
        print(f"bench: {action}: {answer}", file=sys.stderr, flush=True)
        if "error" in answer:
            raise SystemExit(f"bench: {action} failed ({self.log})")


@contextmanager
def opened(rows: int, workers: int, upsert_rows: int | None) -> Iterator[Bench]:
    """A server, a cluster, and a driver that has synced a small table; all of it ends."""
    log = places.LOGS / f"scale-{rows}.log"
    with (
        server.running() as database,
        tempfile.TemporaryDirectory(prefix="bench-scale-") as folder,
        Standalone(Path(folder) / "spark") as cluster,
        log.open("w") as errors,
    ):
        cluster.add_workers(*map(str, range(workers)), quick=False)
        data.generate_before(database)
        place = Path(folder) / "project"
        place.mkdir()
        write_project(place, database, cluster.url, upsert_rows)
        with driving(place, errors) as driver:
            bench = Bench(driver, database, cluster, rows, log)
            bench.perform("sync another")
            yield bench


def write_project(folder: Path, database: server.Server, url: str, upsert_rows: int | None) -> None:
    file = project.write(folder, database, data.Workload("scale", ("narrow",), 0, ()), by_cursor=True)
    text = f"{file.read_text()}    max_new_columns: 1\nspark: {{master: '{url}'}}\n"
    if upsert_rows is not None:
        text = text.replace("type: iceberg,", f"type: iceberg, upsert_rows: {upsert_rows},")
    file.write_text(text)


@contextmanager
def driving(folder: Path, errors: IO[str]) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "INSTEP_RESIDENT": "off"}
    command = [sys.executable, str(places.BENCH / "scale_driver.py"), str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
    ) as driver:
        try:
            yield driver
        finally:
            driver.terminate()


def results() -> dict[str, dict[str, Record]]:
    """Records by setting and number of rows, then by operation."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def remember(record: Record, setting: str) -> None:
    found = results()
    found.setdefault(f"{setting}/{record['rows']}", {})[record["operation"]] = record
    RESULTS.write_text(json.dumps(found, indent=1))


HEAD = (
    "| rows | operation | wall s | CPU s | CPU s a million rows | server CPU s | driver MB | its JVM MB | executors MB "
    "| others | CPU a row |\n| --- | --- |" + " ---: |" * 9
)


def as_line(record: Record, setting: str) -> str:
    """One line of the table; its end is the CPU of a row beside that of the next smaller size."""
    rows, millions = record["rows"], record["rows"] / 1e6
    same = (found.get(record["operation"]) for name, found in results().items() if name.startswith(f"{setting}/"))
    smaller = [other for other in same if other and other["rows"] < rows]
    ratio = ""
    if smaller:
        before = max(smaller, key=lambda other: int(other["rows"]))
        ratio = f"{record['cpu'] / rows / (before['cpu'] / before['rows']):.2f} x of {before['rows'] / 1e6:g}M"
    cells = [
        f"{millions:g}M", record["operation"], f"{record['wall']:.1f}", f"{record['cpu']:.1f}",
        f"{record['cpu'] / millions:.2f}", f"{record['server_cpu']:.1f}",
        *(f"{record[name]:,}" for name in ("driver_mb", "jvm_mb", "executors_mb")),
        f"{record['busy_elsewhere']:.0%}", ratio,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="what a row costs as a table grows")
    parser.add_argument("--rows", default="1m,10m", help="such as 1m,10m,100m")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="operations, such as load,verify; the load is always done")
    parser.add_argument("--extra", action="store_true", help="promote and the quarantine, too")
    parser.add_argument("--upsert-rows", type=int, help="of the destination; 0 has Spark do everything")
    chosen = parser.parse_args(arguments)
    setting = "default" if chosen.upsert_rows is None else f"upsert_rows {chosen.upsert_rows}"
    operations = OPERATIONS + EXTRA * chosen.extra
    if only := {*filter(None, chosen.only.split(","))}:
        operations = tuple(one for one in operations if one.name in only | {"load"})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: terminated"))  # what was started ends as well
    places.make_places()
    server.SETTINGS["shared_buffers"] = SHARED_BUFFERS
    print(HEAD, flush=True)
    for rows in sorted(int(part.replace("m", "000000")) for part in chosen.rows.split(",")):
        with opened(rows, chosen.workers, chosen.upsert_rows) as bench:
            for operation in operations:
                record = bench.measure(operation)
                remember(record, setting)
                print(as_line(record, setting), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
