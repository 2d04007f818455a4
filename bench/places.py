"""Where the benchmark keeps things: all of it under .cache/bench/, nothing in Git."""

from __future__ import annotations

from pathlib import Path

BENCH = Path(__file__).resolve().parent
REPOSITORY = BENCH.parent
CACHE = REPOSITORY / ".cache" / "bench"
VENVS = CACHE / "venvs"
LOCKS = BENCH / "locks"
OUT = CACHE / "out"
LOGS = CACHE / "logs"
TRUTH = CACHE / "truth"
RESULTS = CACHE / "results"
PAGE = REPOSITORY / "docs" / "reference" / "benchmarks.md"


def make_places() -> None:
    for place in (VENVS, OUT, LOGS, TRUTH, RESULTS):
        place.mkdir(parents=True, exist_ok=True)
