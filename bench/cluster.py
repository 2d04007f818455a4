"""One table through a standalone Spark cluster of one worker and of two, each with one core: how reading scales.

python bench/cluster.py [--rows 5000000] [--rounds 2]

Workers, master, driver and PostgreSQL share this machine, so that two workers can only be faster where it has cores for
two and for the server's own processes. A round prints the seconds of one warm sync: the session's start and a first
small table are left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import data
import project
import server

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "cluster"))

from spark_cluster import Standalone  # noqa: E402 - it is the tests' own

WORKERS = (1, 2)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="reading one table with one worker and with two")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args(arguments)
    workload = data.orders("scale", chosen.rows)
    seconds: dict[int, list[float]] = {count: [] for count in WORKERS}
    with server.running() as database, tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
        data.generate(database, workload)
        data.generate_before(database)
        for number in range(chosen.rounds):
            for count in WORKERS:
                took = one(database, workload, Path(folder) / f"{number}-{count}", count)
                seconds[count].append(took)
                print(f"round {number + 1}: {count} worker(s): {took:.2f} s", flush=True)
    medians = {count: statistics.median(found) for count, found in seconds.items()}
    rates = ", ".join(f"{chosen.rows / medians[count]:,.0f} rows/s with {count}" for count in WORKERS)
    print(f"{rates}; {medians[1] / medians[2]:.2f} times as fast with two")
    return 0


def one(database: server.Server, workload: data.Workload, folder: Path, workers: int) -> float:
    """Seconds of one sync of the table, in a cluster and a lake of its own."""
    place = folder / "project"
    place.mkdir(parents=True)
    with Standalone(folder / "spark") as cluster:
        cluster.add_workers(*map(str, range(workers)))
        file = project.write(place, database, workload, by_cursor=False)
        file.write_text(f"{file.read_text()}spark: {{master: '{cluster.url}'}}\n")
        taken = folder / "seconds"
        subprocess.run(
            [sys.executable, Path(__file__).with_name("warm.py"), place, taken],
            check=True, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        return float(taken.read_text())


if __name__ == "__main__":
    sys.exit(main())
