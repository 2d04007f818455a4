"""The product beside dlt, ingestr and sling on the same PostgreSQL.

    python bench/run.py [--sizes 1m,second,...] [--runs 3] [--only TOOL] [--quick] [--render]

Whole suites with all tools go into docs/reference/benchmarks.md; `--only` and `--quick` runs are printed only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import peers
from data import orders, wide
from facts import machine_facts
from fills import run_fills
from lines import LINES, Line
from places import RESULTS, make_places
from report import markdown, write_page
from server import running
from suites import Suite, all_suites, run_suite, warm_up

LATEST = RESULTS / "latest.json"


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmarks instep beside dlt, ingestr and sling.")
    parser.add_argument(
        "--sizes", default="1m,5m,10m,many,second,unchanged,large,whole,fill,wide", help="suites, separated by commas"
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds; the medians are shown")
    parser.add_argument("--only", action="append", default=[], metavar="TOOL", help="only this tool (repeatable)")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows, one round: does it all work?")
    parser.add_argument("--render", action="store_true", help="write the page from the last results")
    return parser.parse_args(argv)


def fill_suites(*, quick: bool) -> dict[str, Suite]:
    part = 20 if quick else 1
    found = (
        Suite("fill", orders("fill", 1_000_000 // part), fill=True),
        Suite("wide", wide("wide", 200_000 // part, 30), fill=True),
    )
    return {suite.name: suite for suite in found}


def chosen_suites(sizes: str, *, quick: bool) -> list[Suite]:
    suites = all_suites(quick=quick) | fill_suites(quick=quick)
    if unknown := set(sizes.split(",")) - set(suites):
        raise SystemExit(f"bench: no suite {', '.join(sorted(unknown))}: there are {', '.join(suites)}")
    return [suites[name] for name in sizes.split(",")]


def chosen_lines(only: Sequence[str]) -> list[Line]:
    tools = {line.tool for line in LINES}
    if unknown := set(only) - tools:
        raise SystemExit(f"bench: no tool {', '.join(sorted(unknown))}: there are {', '.join(sorted(tools))}")
    return [line for line in LINES if not only or line.tool in only]


def measure(suites: Sequence[Suite], lines: Sequence[Line], runs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(suite, {facts, tables, rows, records}), one record per run of a line."""
    with running() as server:
        facts = machine_facts(server)
        warm_up([line for line in lines if any(suite.name in line.suites for suite in suites)], server)
        for suite in suites:
            found = {
                "facts": facts,
                "tables": len(suite.workload.tables),
                "rows": suite.workload.rows,
                "records": list((run_fills if suite.fill else run_suite)(suite, lines, server, runs)),
            }
            yield suite.name, found


def load_latest() -> dict[str, Any]:
    return dict(json.loads(LATEST.read_text())) if LATEST.exists() else {}


def main(argv: Sequence[str]) -> None:
    options = arguments(argv)
    make_places()
    if options.render:
        write_page(load_latest())
        return
    suites, lines = chosen_suites(options.sizes, quick=options.quick), chosen_lines(options.only)
    for tool in sorted({line.tool for line in lines if line.is_peer}):
        peers.install(tool)
    results: dict[str, Any] = {}
    file = RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}.json"
    for name, found in measure(suites, lines, 1 if options.quick else options.runs):
        results[name] = found
        file.write_text(json.dumps(results, indent=1))
        if not options.only and not options.quick:
            LATEST.write_text(json.dumps(latest := load_latest() | {name: found}, indent=1))
            write_page(latest)
    print(markdown(results))


if __name__ == "__main__":
    main(sys.argv[1:])
