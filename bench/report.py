"""Renders results as Markdown into docs/reference/benchmarks.md, between its markers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from places import PAGE

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
NOISY = 0.2
Record = Mapping[str, Any]
TITLES = {
    "1m": "First load of one table",
    "5m": "First load of a larger table",
    "10m": "First load of a large table with 20 columns: the memory that it takes",
    "many": "First load of many small tables",
    "fill": "A column that came later, of a table with 11 columns",
    "wide": "A column that came later, of a table with 41 columns",
    "second": "Second sync: 1 % updated, 1 % inserted, a column with a default added",
    "unchanged": "Commands in a project in which nothing has changed",
    "large": "A large table with 5 columns, 1 % of it updated, along a cursor",
    "whole": "The same table compared as a whole, 1 % of it updated",
}
PHASES = {
    "first": "",
    "second": "",
    "load": ", first load",
    "backfill": ", then backfill",
    "unchanged": ", sync",
    "status": ", status",
    "plan": ", plan",
    "changes": ", changes list",
    "column": ", one column filled",
    "table": ", whole table read again",
}
PREPARED = ("second", "column", "table", "unchanged")
"""Phases that a first sync only prepares."""
HEADER = "| line | wall s | x best peer | x COPY | CPU s | server CPU s | peak MB | equal to the source |"


class Summary:
    """The runs of one line in one phase: medians of those that worked and were not disturbed, and every fault.

    Where all were disturbed, all count.
    """

    def __init__(self, name: str, runs: Sequence[Record]) -> None:
        self.name = name
        self.runs = runs
        self.worked = [run for run in runs if run["exit_code"] == 0]
        self.good = [run for run in self.worked if run["busy_elsewhere"] <= NOISY] or self.worked
        self.peer = bool(runs[0]["peer"])
        self.is_load = runs[0]["phase"] == "load"

    def middle(self, field: str) -> float:
        return float(median(run[field] for run in self.good))

    def failures(self) -> list[str]:
        bad = len(self.runs) - len(self.worked)
        return [f"{bad} of {len(self.runs)} failed"] if bad else []

    @property
    def faults(self) -> dict[str, int]:
        """Every fault of any run, at its worst."""
        worst: dict[str, int] = {}
        for run in self.worked:
            for fault, count in run.get("verdict", {}).get("faults", {}).items():
                worst[fault] = max(count, worst.get(fault, 0))
        return worst

    @property
    def lost_types(self) -> dict[str, str]:
        return {name: kind for run in self.worked for name, kind in run.get("verdict", {}).get("types", {}).items()}

    @property
    def was_checked(self) -> bool:
        return any("verdict" in run for run in self.worked)


def summaries(records: Sequence[Record]) -> list[Summary]:
    """Where first syncs only prepare, they are left out."""
    later = any(record["phase"] in PREPARED for record in records)
    counted = [record for record in records if not (record["phase"] == "first" and later)]
    failed_first = [record for record in records if record not in counted and record["exit_code"]]
    groups: dict[str, list[Record]] = {}
    for record in [*counted, *failed_first]:
        groups.setdefault(record["label"] + PHASES[record["phase"]], []).append(record)
    found = [Summary(name, runs) for name, runs in groups.items()]
    return sorted(found, key=lambda item: item.middle("wall") if item.good else float("inf"))


def row(item: Summary, best_peer: float | None, copy: float | None) -> str:
    if not item.good:
        return f"| {item.name} | failed (exit code {item.runs[0]['exit_code']}) | | | | | | |"
    wall = item.middle("wall")
    noise = " (noisy)" if item.middle("busy_elsewhere") > NOISY else ""
    cells = [
        item.name,
        ", ".join([f"{wall:.2f}{noise}", *item.failures()]),
        ratio(wall, best_peer),
        ratio(wall, copy),
        f"{item.middle('cpu'):.1f}",
        f"{item.middle('server_cpu'):.1f}",
        f"{item.middle('peak_mb'):,.0f}",
        equality(item),
    ]
    return f"| {' | '.join(cells)} |"


def ratio(wall: float, base: float | None) -> str:
    return f"{wall / base:.2f}" if base else ""


def equality(item: Summary) -> str:
    if not item.was_checked:
        return ""
    return "no" if item.faults else "yes"


def suite_table(name: str, result: Mapping[str, Any]) -> Iterator[str]:
    items = summaries(result["records"])
    peers = [item for item in items if item.peer and item.good]
    copies = [item for item in items if item.name.startswith("COPY") and item.good]
    runs = max((len(item.runs) for item in items), default=0)
    size = f"{result['tables']} x {result['rows']:,} rows" if result["tables"] > 1 else f"{result['rows']:,} rows"
    yield f"### {TITLES[name]} ({size}; median of {runs})"
    yield ""
    yield HEADER
    yield "| --- |" + " ---: |" * 6 + " --- |"
    yield from (row(item, fastest(item, peers), fastest(item, copies)) for item in items)
    yield ""
    yield from notes(items)
    yield from wire_line(items)


def fastest(item: Summary, others: Sequence[Summary]) -> float | None:
    """The seconds of the fastest of others that did the same: a first load, or what came after it."""
    return min((other.middle("wall") for other in others if other.is_load == item.is_load), default=None)


def wire_line(items: Sequence[Summary]) -> Iterator[str]:
    """What the source has sent, where it was counted."""
    sent = {item.name: item.middle("wire") for item in items if item.good and "wire" in item.good[0]}
    if not sent:
        return
    most = max(sent.values())
    said = (f"{name}: {size / 2**20:,.1f} MB ({size / most:.2f}x)" for name, size in sent.items())
    yield f"Sent by the source: {'; '.join(said)}."
    yield ""


def notes(items: Sequence[Summary]) -> Iterator[str]:
    lines = [f"- {item.name}: {fault}: {count:,} rows" for item in items for fault, count in item.faults.items()]
    lines += [
        f"- {item.name}: {column} is stored as {kind}" for item in items for column, kind in item.lost_types.items()
    ]
    if lines:
        yield "Not as in the source:"
        yield ""
        yield from [*lines, ""]


def facts_line(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def markdown(results: Mapping[str, Any]) -> str:
    lines: list[str] = []
    shown = ""
    for name in TITLES:
        if name not in results:
            continue
        facts = facts_line(results[name]["facts"])
        if facts != shown:
            lines += [f"Measured with: {facts}.", ""]
            shown = facts
        lines += suite_table(name, results[name])
    return "\n".join(lines).rstrip() + "\n"


def write_page(results: Mapping[str, Any]) -> None:
    """Replaces what stands between the markers; the text around them stays."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    PAGE.write_text(f"{before}{BEGIN}\n{markdown(results)}{END}{after}")
