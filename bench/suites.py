"""The suites and how they are run: interleaved (A B C, A B C, ...), each run checked against the source."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from check import Verdict, check
from data import Workload, churn, generate, generate_before, large, orders, record_truth, small_tables, wide
from lines import Line, Task
from measure import machine_cpu
from places import BENCH, LOGS, OUT
from server import Server

LONGEST_SECONDS = 1800
QUIET_WITHIN = 20.0
NOISY = 0.1
"""The share of the machine that others may use when a run begins."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Suite:
    """A workload; `second` says that the sync after the first one counts, `fill` that a column is filled, `unchanged`
    that commands count after which nothing is another. `by_cursor` is how a second sync finds what has changed; `load`
    is the phase of a first sync that is measured as well."""

    name: str
    workload: Workload
    second: bool = False
    fill: bool = False
    unchanged: bool = False
    by_cursor: bool = False
    load: str = "first"


def all_suites(*, quick: bool) -> dict[str, Suite]:
    """The same suites with a twentieth of the rows when `quick`."""
    part = 20 if quick else 1
    suites = (
        Suite("1m", orders("1m", 1_000_000 // part)),
        Suite("5m", orders("5m", 5_000_000 // part)),
        Suite("10m", wide("10m", 10_000_000 // part, 10)),
        Suite("many", small_tables("many", 200 // part, 1_000)),
        Suite("second", orders("second", 1_000_000 // part), second=True, by_cursor=True),
        Suite("unchanged", small_tables("unchanged", 200 // part, 1_000), unchanged=True),
        Suite("large", large("large", 8_000_000 // part), second=True, by_cursor=True, load="load"),
        Suite("whole", large("whole", 8_000_000 // part), second=True, load="load"),
    )
    return {suite.name: suite for suite in suites}


def file_name(*parts: object) -> str:
    return "-".join(str(part) for part in parts).replace(" -> ", "-").replace(" ", "_")


@contextmanager
def new_task(suite: Suite, line: Line, server: Server) -> Iterator[Task]:
    """A task in a folder of its own, which is removed at the end with what the line has started."""
    folder = OUT / file_name(suite.name, line.label)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    task = Task(suite.workload, server, folder, by_cursor=suite.by_cursor or suite.fill)
    line.prepare(task)
    try:
        yield task
    finally:
        line.finish(task)
        shutil.rmtree(folder, ignore_errors=True)


def measured(line: Line, task: Task, command: Sequence[str | Path], log: Path) -> Record:
    """What measure.py says of one command; `error` holds the end of its output when it failed."""
    result = log.with_suffix(".json")
    options = [result, log, task.server.pid, LONGEST_SECONDS, line.engine(task)]
    wrapper = [sys.executable, BENCH / "measure.py", *options, "--", *command]
    subprocess.run([str(part) for part in wrapper], env=line.environment(task), check=True, cwd=task.folder)
    record: Record = json.loads(result.read_text())
    result.unlink()
    if record["exit_code"]:
        record["error"] = log.read_text(errors="replace")[-1500:]
    return record


def run_once(
    suite: Suite, line: Line, task: Task, phase: str, number: int, command: Sequence[str | Path] = ()
) -> Record:
    """Runs the line's command, or the given one, and measures it."""
    os.sync()  # nobody pays for what the one before has left to be written
    wait_until_quiet()
    log = LOGS / f"{file_name(suite.name, line.label, phase, number)}.log"
    record = {"label": line.label, "peer": line.is_peer, "phase": phase, "round": number}
    record |= measured(line, task, command or line.command(task), log)
    tell(suite, record)
    return record


def wait_until_quiet() -> None:
    """Returns once nothing else uses the machine; after a while all the same."""
    end = time.monotonic() + QUIET_WITHIN
    while time.monotonic() < end:
        before = machine_cpu()
        time.sleep(1)
        if machine_cpu() - before < NOISY * (os.cpu_count() or 1):
            return


def tell(suite: Suite, record: Record) -> None:
    state = "" if record["exit_code"] == 0 else f"  FAILED with exit code {record['exit_code']}"
    print(
        f"bench: {suite.name:7} {record['round']} {record['label']:24} {record['phase']:8} {record['wall']:8.2f} s"
        f" {record['cpu']:8.2f} CPU s {record['peak_mb']:6} MB{state}",
        file=sys.stderr,
    )
    if last := record.get("error", "").strip().splitlines()[-1:]:
        print(f"bench:         {last[0][:160]}", file=sys.stderr)


def checked(record: Record, line: Line, task: Task, truth: Path) -> Record:
    if line.format == "none" or record["exit_code"]:
        return record
    verdict: Verdict = check(line, task, truth)
    for fault, count in verdict.faults.items():
        print(f"bench:         wrong: {fault}: {count:,}", file=sys.stderr)
    return {**record, "verdict": verdict.as_json()}


def warm_up(lines: Sequence[Line], server: Server) -> None:
    """Each tool once over a small table, so that no one pays for a cold disk or for what it makes once."""
    suite = Suite("warm-up", orders("warm-up", 1_000))
    generate(server, suite.workload)
    generate_before(server)
    server.empty_destination()
    for line in lines:
        with new_task(suite, line, server) as task:
            run_once(suite, line, task, "warm-up", 0)


def run_suite(suite: Suite, lines: Sequence[Line], server: Server, runs: int) -> Iterator[Record]:
    chosen = [line for line in lines if suite.name in line.suites]
    if suite.second:
        for number in range(1, runs + 1):
            yield from second_round(suite, chosen, server, number)
        return
    generate(server, suite.workload)
    truth = record_truth(server, suite.workload)
    for number in range(1, runs + 1):
        for line in chosen:
            if line.format == "postgres":
                server.empty_destination()
            with new_task(suite, line, server) as task:
                yield checked(run_once(suite, line, task, "first", number), line, task, truth)
                if suite.unchanged:
                    yield from everyday(suite, line, task, number, truth)


def everyday(suite: Suite, line: Line, task: Task, number: int, truth: Path) -> Iterator[Record]:
    for phase, command in line.everyday(task).items():
        record = run_once(suite, line, task, phase, number, command)
        yield checked(record, line, task, truth) if phase == "unchanged" else record


def second_round(suite: Suite, lines: Sequence[Line], server: Server, number: int) -> Iterator[Record]:
    """First syncs, then the source changes, then second syncs; a tool that failed at first is left out afterwards."""
    generate(server, suite.workload)
    server.empty_destination()
    going: list[tuple[Line, Task]] = []
    with ExitStack() as tasks:
        for line in lines:
            task = tasks.enter_context(new_task(suite, line, server))
            record = run_once(suite, line, task, suite.load, number)
            yield record
            if record["exit_code"] == 0:
                going.append((line, task))
        churned = churn(server, suite.workload)
        truth = record_truth(server, churned)
        for line, task in going:
            again = replace(task, workload=churned, again=True)
            record = checked(run_once(suite, line, again, "second", number), line, again, truth)
            yield record
            command = line.follow_up(again)
            if command and record["exit_code"] == 0 and churned != suite.workload:
                yield checked(run_once(suite, line, again, "backfill", number, command), line, again, truth)
