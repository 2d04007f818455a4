"""explanation/what-becomes-of-each-change.md, made from outcomes and read again: equal results share a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from changes.outcome import Outcome
from changes.scenarios import SCENARIOS, SOURCES, TITLES, Scenario
from instep.schema.policy.presets import PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "what-becomes-of-each-change.md"
HEAD = ("source", "preset", "decision", "destination tables", "row 1, untouched", "row 2, updated", "row 3, deleted",
        "row 4, new", "events")  # fmt: skip
Cell = tuple[str, str, str]
"""(scenario, source, preset)"""
Results = Mapping[Cell, Outcome]
INTRO = """\
# What becomes of each change
The tests make this page: they ran every line, source by source and preset by preset, into a real destination.
`make test-slow` runs a part of them again and compares; `make test-all` runs all.

Each table starts as `t(id, a, b)` with the rows `1, 10, 100`, `2, 20, 200` and `3, 30, 300`, and is loaded. Then the
source makes the change, updates row 2, deletes row 3 and inserts row 4, and two syncs follow. (Removals that a catalog
cannot prove count from the second sync on.) `~` marks a column that stays after its removal at the source. A type is
shown where it differs from the one before. `deleted` is a row's mark. A cell is empty where the destination has no such
row. Presets with the same outcome share a line. Events of runs and loads are left out.
"""


def write(results: Results) -> str:
    """The whole page."""
    parts = [INTRO]
    for scenario in SCENARIOS:
        found = {cell: outcome for cell, outcome in results.items() if cell[0] == scenario.name}
        parts.append(f"## {scenario.name.capitalize()}\n{_statements(scenario)}\n{_table(found)}\n")
    return "\n".join(parts)


def _statements(scenario: Scenario) -> str:
    by_text: dict[str, list[str]] = {}
    for source, statements in scenario.change.items():
        by_text.setdefault("; ".join(statements) or _silent(scenario), []).append(TITLES[source])
    lines = [f"{', '.join(names)}: {_code(text)}  " for text, names in by_text.items()]
    return "\n".join([*([f"{scenario.note.capitalize()}."] if scenario.note else []), *lines]) + "\n"


def _code(text: str) -> str:
    return text if text.startswith("(") else f"`{text}`"


def _silent(scenario: Scenario) -> str:
    return (
        f"(the user may not read {scenario.denied} any more)"
        if scenario.denied
        else "(somebody drops column a at the destination)"
    )


def _table(found: Results) -> str:
    lines = [f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}"]
    for (sources, presets), outcome in _grouped(found):
        cells = (", ".join(TITLES[s] for s in sources), ", ".join(presets), *outcome.cells())
        lines.append(f"| {' | '.join(c.replace('|', chr(92) + '|') for c in cells)} |")
    return "\n".join(lines)


def _grouped(found: Results) -> Iterable[tuple[tuple[tuple[str, ...], tuple[str, ...]], Outcome]]:
    """Equal outcomes of one source share a line; sources whose lines are all equal share them."""
    lines: dict[str, list[tuple[tuple[str, ...], Outcome]]] = {}
    for source in SOURCES:
        by_outcome: dict[Outcome, list[str]] = {}
        for preset in PRESETS:
            if (cell := found.get(next(iter({(c[0], source, preset) for c in found}), ("", "", "")))) is not None:
                by_outcome.setdefault(cell, []).append(preset)
        if by_outcome:
            lines[source] = [(tuple(presets), outcome) for outcome, presets in by_outcome.items()]
    shared: list[tuple[list[str], tuple[str, ...], Outcome]] = []
    for source, own in lines.items():
        for presets, outcome in own:
            for known in shared:
                if known[1:] == (presets, outcome):
                    known[0].append(source)
                    break
            else:
                shared.append(([source], presets, outcome))
    for sources, presets, outcome in shared:
        yield (tuple(sources), presets), outcome


def read(text: str) -> dict[Cell, tuple[str, ...]]:
    """The cells of a page by scenario, source and preset."""
    names = {scenario.name.capitalize(): scenario.name for scenario in SCENARIOS}
    titles = {title: source for source, title in TITLES.items()}
    found: dict[Cell, tuple[str, ...]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        for line in rest.splitlines():
            if line.startswith("| ") and not line.startswith(("| source", "| ---")):
                sources, presets, *cells = (c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1])
                for source in sources.split(", "):
                    for preset in presets.split(", "):
                        found[names[head], titles[source], preset] = tuple(cells)
    return found
