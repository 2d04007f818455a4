"""What a table costs by itself: detection, a first sync and a sync without changes, of many tables without a JVM.

python bench/many.py [--tables 500,2000]

Each table has 8 columns and 10 rows. Seconds of one process after its imports, of wall time and of its own CPU (which
other work on the machine hardly moves); the tables' cost is the slope between two numbers of tables.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import data
import project
import server
from instep.bootstrap import open_project
from instep.sync.run import RunScope, sync
from instep.sync.schema_changes.evolve import preview

STEPS = ("detection before", "first sync", "detection", "sync without changes")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="seconds by number of tables")
    parser.add_argument("--tables", default="500,2000")
    counts = [int(part) for part in parser.parse_args(arguments).tables.split(",")]
    found = {}
    with server.running() as database, tempfile.TemporaryDirectory(prefix="bench-many-") as folder:
        for count in counts:
            data.generate(database, data.small_tables("many", count, 10))
            found[count] = measured(database, Path(folder) / str(count), count)
            for step, (wall, own) in zip(STEPS, found[count], strict=True):
                print(f"{count} tables: {step}: {wall:.2f} s, CPU {own:.2f} s", flush=True)
    low, high = min(found), max(found)
    for step, before, after in zip(STEPS, found[low], found[high], strict=True):
        wall, own = ((b - a) / (high - low) * 1000 for a, b in zip(before, after, strict=True))
        print(f"a table more: {step}: {wall:.2f} ms, CPU {own:.2f} ms")
    return 0


def measured(database: server.Server, folder: Path, count: int) -> list[tuple[float, float]]:
    folder.mkdir()
    project.write(folder, database, data.small_tables("many", count, 10), by_cursor=False)
    with open_project(folder) as app:
        context, engine = app.sync_context(project.CONNECTION), app.engine(project.CONNECTION)
        look = lambda: preview(context)  # noqa: E731
        return [took(step) for step in (look, lambda: sync(context, RunScope(), engine=engine)) * 2]


def took(step: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the clock, seconds of this process's CPU."""
    begun, used = time.monotonic(), time.process_time()
    step()
    return time.monotonic() - begun, time.process_time() - used


if __name__ == "__main__":
    sys.exit(main())
