"""YAML that people type into forms, read by the same rules and bounds as the project file.

A parser of all of YAML makes dates, sets and texts without end of a few lines: nothing of that is JSON, and a page is
made of it before the API can refuse it.
"""

from __future__ import annotations

from typing import Any

from instep.project.text.references import Reference
from instep.project.text.tree import MAX_VALUES, parse
from instep.server.problems import ApiProblem

MOST_VALUES = 5_000
"""The values of a document that a page shows again."""
MOST_HIDDEN_VALUES = MAX_VALUES // 2
"""The values of a document that no page shows again."""


def read_yaml(text: str, complaint: str, most: int = MOST_VALUES) -> Any:
    """Return the value of a YAML text, which JSON can have; ApiProblem 422 with this complaint and its line for a text
    that is none, or has more values."""
    tree = parse(text, most)
    if tree.problems:
        line, why = tree.problems[0]
        raise ApiProblem(422, "invalid", f"{complaint} (line {line}: {why})", "correct it, then press again")
    return _as_json(tree.data)


def _as_json(value: Any) -> Any:
    """Return a value with its references as they were written."""
    if isinstance(value, dict):
        return {name: _as_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_as_json(one) for one in value]
    return str(value) if isinstance(value, Reference) else value
