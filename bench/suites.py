"""The suites and how they are run: interleaved (A B C, A B C, ...), each run checked against the source."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from check import Verdict, check
from data import Workload, churn, generate, generate_before, orders, record_truth, small_tables, wide
from lines import Line, Task
from places import BENCH, LOGS, OUT
from server import Server

LONGEST_SECONDS = 1800
Record = dict[str, Any]


@dataclass(frozen=True)
class Suite:
    """A workload; `second` says that the sync after the first one is what counts, `fill` that a column is filled."""

    name: str
    workload: Workload
    second: bool = False
    fill: bool = False


def all_suites(*, quick: bool) -> dict[str, Suite]:
    """The same suites with a twentieth of the rows when `quick`."""
    part = 20 if quick else 1
    suites = (
        Suite("1m", orders("1m", 1_000_000 // part)),
        Suite("5m", orders("5m", 5_000_000 // part)),
        Suite("10m", wide("10m", 10_000_000 // part, 10)),
        Suite("many", small_tables("many", 200 // part, 1_000)),
        Suite("second", orders("second", 1_000_000 // part), second=True),
    )
    return {suite.name: suite for suite in suites}


def file_name(*parts: object) -> str:
    return "-".join(str(part) for part in parts).replace(" -> ", "-").replace(" ", "_")


def new_task(suite: Suite, line: Line, server: Server) -> Task:
    folder = OUT / file_name(suite.name, line.label)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    task = Task(suite.workload, server, folder, merge=suite.second or suite.fill)
    line.prepare(task)
    return task


def measured(command: Sequence[str | Path], environment: dict[str, str], log: Path, server: Server) -> Record:
    """What measure.py says of one command; `error` holds the end of its output when it failed."""
    result = log.with_suffix(".json")
    wrapper = [sys.executable, BENCH / "measure.py", result, log, server.pid, LONGEST_SECONDS, "--", *command]
    subprocess.run([str(part) for part in wrapper], env=environment, check=True, cwd=log.parent)
    record: Record = json.loads(result.read_text())
    result.unlink()
    if record["exit_code"]:
        record["error"] = log.read_text(errors="replace")[-1500:]
    return record


def run_once(suite: Suite, line: Line, task: Task, phase: str, number: int) -> Record:
    os.sync()  # nobody pays for what the one before has left to be written
    log = LOGS / f"{file_name(suite.name, line.label, phase, number)}.log"
    command = line.follow_up(task) if phase == "backfill" else line.command(task)
    record = {"label": line.label, "peer": line.is_peer, "phase": phase, "round": number}
    record |= line.adjusted(task, measured(command, line.environment(task), log, task.server))
    tell(suite, record)
    return record


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
        task = new_task(suite, line, server)
        run_once(suite, line, task, "warm-up", 0)
        shutil.rmtree(task.folder, ignore_errors=True)


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
            task = new_task(suite, line, server)
            yield checked(run_once(suite, line, task, "first", number), line, task, truth)
            shutil.rmtree(task.folder, ignore_errors=True)


def second_round(suite: Suite, lines: Sequence[Line], server: Server, number: int) -> Iterator[Record]:
    """First syncs, then the source changes, then second syncs; a tool that failed at first is left out afterwards."""
    generate(server, suite.workload)
    server.empty_destination()
    going: list[tuple[Line, Task]] = []
    for line in lines:
        task = new_task(suite, line, server)
        record = run_once(suite, line, task, "first", number)
        yield record
        if record["exit_code"] == 0:
            going.append((line, task))
    churned = churn(server, suite.workload)
    truth = record_truth(server, churned)
    for line, task in going:
        again = replace(task, workload=churned, again=True)
        record = checked(run_once(suite, line, again, "second", number), line, again, truth)
        yield record
        if line.follow_up(again) and record["exit_code"] == 0:
            yield checked(run_once(suite, line, again, "backfill", number), line, again, truth)
        shutil.rmtree(task.folder, ignore_errors=True)
