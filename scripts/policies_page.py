"""Writes the table of presets in docs/guides/policies.md, between its marks, from `instep.schema.policy.presets`.

python scripts/policies_page.py          writes it
python scripts/policies_page.py --check  exits 1 if it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from types_page import table

from instep.schema.policy.presets import DEFAULT_PRESET, PRESETS, SUSPECTED, TABLE_OF_PRESETS, PresetCell, effect_of

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "policies.md"
BEGIN, END = "<!-- made by python scripts/policies_page.py -->\n", "<!-- end -->"
WORDS: Mapping[str, str] = {
    "off": "listed off", "pending": "listed off, pending", "missing": "skipped as missing", "kept": "type kept",
    "nullable": "as nullable", "generation": "new generation", "recorded": "recorded", "error": "table in error",
}  # fmt: skip
"""The effects as the table says them; the page explains them below it."""


def presets() -> str:
    """One row for each row of the table in the code, one column for each preset."""
    head = ["change", *(f"{name} (default)" if name == DEFAULT_PRESET else name for name in PRESETS)]
    rows = ([_kinds(kinds), *(_cell(kinds, choice) for choice in row)] for kinds, row in TABLE_OF_PRESETS.items())
    return "\n".join(table(head, rows))


def _kinds(kinds: str) -> str:
    return "suspected rename" if kinds == SUSPECTED else ", ".join(kinds.split())


def _cell(kinds: str, choice: PresetCell) -> str:
    effect = choice.effect or effect_of(kinds.split()[0], choice.action)
    parts = [*([WORDS[effect]] if effect else []), *choice.modifiers.values()]
    return f"{choice.action}{': ' if parts else ''}{', '.join(parts)}"


def page(text: str) -> str:
    """The page with its table made anew; ValueError if it has lost its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} has no marks for the table of presets")
    return f"{before}{BEGIN}{presets()}\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in arguments:
        return 0 if text == page(text) else 1
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
