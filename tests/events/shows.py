"""Which tests show which trap and which schema event: `@shows(trap=5)`, `@shows(event=(43, 44))` above a test.

Traps are numbered 1 to 18, events 41 to 72, as `TRAPS` and `EVENTS` name them; `test_every_number` finds the marks in
the text of the tests and fails for a number that nothing shows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

TESTS = Path(__file__).parents[1]
Test = TypeVar("Test", bound=Callable[..., Any])
Numbers = int | tuple[int, ...]

TRAPS: Mapping[int, str] = {
    1: "a cast that loses something never passes in silence",
    2: "tables do not take any schema: columns come by explicit changes",
    3: "a merge never drops unknown columns without a word",
    4: "a new NOT NULL column on a table with rows comes as nullable",
    5: "a rename followed by an upsert keeps the old values",
    6: "a failed load leaves no newer schema version recorded than the destination has",
    7: "names that meet after mapping, in a row and between tables; reserved words; too long names",
    8: "a cursor column dropped, renamed or retyped is a named event and a paused table",
    9: "a changed key never mixes keys; duplicates are counted beforehand",
    10: "an empty new table is created",
    11: "a swap by an online schema change tool is an alter of the same table",
    12: "a hashed column that is renamed stays hashed",
    13: "changes that undo or cross each other between two looks",
    14: "types that go back and forth, floods of new columns",
    15: "a destination edited manually",
    16: "fewer tables because of a lost permission are no dropped tables",
    17: "updates between the first sight of a column and its approval arrive",
    18: "nested values: element types, scalars that become lists and back",
}
EVENTS: Mapping[int, str] = {
    41: "column added: nullable, with a default, NOT NULL",
    42: "column dropped",
    43: "column dropped and added again with another type between two looks",
    44: "column renamed",
    45: "two column names swapped at once",
    46: "a chain of renames",
    47: "type widened, narrowed, incompatible",
    48: "primary key dropped, added, reordered, changed",
    49: "table dropped; dropped and made again",
    50: "table swapped by renames",
    51: "schema renamed, table moved to another schema",
    52: "only the order of columns changed",
    53: "only nullability, default, comment, collation or charset changed",
    54: "enum label added, removed, renamed",
    55: "generated and identity columns",
    56: "partitioned table: attach, detach, another order of columns",
    57: "inherited columns",
    58: "views, materialised views, foreign tables",
    59: "as many columns as PostgreSQL can have",
    60: "as many columns as MariaDB can have",
    61: "10,000 tables",
    62: "a schema change while reading",
    63: "a lock or a long transaction in the way",
    64: "a permission revoked on a table or column",
    65: "a source that is empty by mistake",
    66: "another server: an older schema appears again",
    67: "row security hides rows",
    68: "a destination changed manually",
    69: "something at the destination depends on an altered column",
    70: "two runs on one table, two detections at once",
    71: "a change approved, and the source changes again before it is applied",
    72: "a rollout over many connections of which some fail",
}
LATER: Mapping[int, str] = {
    72: "rollouts over several connections come with the control plane (groups and rollouts)",
}
"""Events that nothing can show yet, and with what they come."""
PARTLY: Mapping[str, str] = {
    "trap 13": "the order of changes within one poll is known from a log only, which comes with log capture",
    "trap 18": "a field renamed inside a struct has a path of its own with the record streams of connectors; here a "
    "nested value changes with its whole type",
    "event 60": "a limit of the destination's columns comes with PostgreSQL as a destination; Iceberg has none",
    "event 66": "a replica that is behind is told from a newer schema by its position in the log, with log capture",
    "event 69": "views and foreign keys that refuse an ALTER come with PostgreSQL as a destination",
}
"""What is shown as far as today's sources and the Iceberg destination go, and what is left for later."""


def shows(*, trap: Numbers = (), event: Numbers = ()) -> Callable[[Test], Test]:
    """Marks a test as showing these numbers; ValueError for one that does not exist."""
    for what, numbers, known in (("trap", trap, TRAPS), ("event", event, EVENTS)):
        if unknown := [n for n in _all(numbers) if n not in known]:
            raise ValueError(f"there is no {what} {unknown[0]}")
    return lambda test: test


def _all(numbers: Numbers) -> tuple[int, ...]:
    return (numbers,) if isinstance(numbers, int) else numbers


def marks(folder: Path = TESTS) -> Iterator[tuple[str, int, str]]:
    """(trap or event, number, file and test) of every mark in the tests."""
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "@shows(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for what, number in _marks_of(node):
                    yield what, number, f"{path.relative_to(folder)}::{node.name}"


def _marks_of(test: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "shows":
            for word in mark.keywords:
                for number in _all(ast.literal_eval(word.value)):
                    yield str(word.arg), number
