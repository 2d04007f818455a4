"""Writes the pattern tables of docs/guides/selection.md, between their marks, from `instep.schema.selection.pii`.

python scripts/selection_page.py          writes them
python scripts/selection_page.py --check  exits 1 if they are not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from instep.schema.selection.pii import NAMES, VALUES

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "selection.md"


def names() -> list[str]:
    return ["| looks like | words in the name |", "| --- | --- |", *(f"| {k} | {text} |" for k, text in NAMES.items())]


def values() -> list[str]:
    """A column with fewer values than `least` needs all of them to be of the form."""
    few = [f", {f.least} or more" if f.least > 1 else "" for f in VALUES]
    head = ["| looks like | values | reviewed from |", "| --- | --- | --- |"]
    return head + [f"| {f.kind} | {f.says} | {f.share:.0%}{more} |" for f, more in zip(VALUES, few, strict=True)]


def page(text: str) -> str:
    """The page with its tables made anew; ValueError if it has lost its marks."""
    for name, rows in (("names", names()), ("values", values())):
        begin, end = f"<!-- {name} made by python scripts/selection_page.py -->\n", f"<!-- {name} end -->"
        before, found, rest = text.partition(begin)
        _, last, after = rest.partition(end)
        if not (found and last):
            raise ValueError(f"{PAGE} has no marks for the table of {name}")
        text = f"{before}{begin}{chr(10).join(rows)}\n{end}{after}"
    return text


def main(arguments: Sequence[str]) -> int:
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in arguments:
        return 0 if text == page(text) else 1
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
