"""Schema change management for connectors: every row of its tables as a case, and the page that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airbyte_world import INTEGER, TEXT, Line, Message, record, records, state, status, stream

ORDERS = stream("orders")
USERS: Mapping[str, Any] = {"name": TEXT, "age": INTEGER}
SETTINGS = ("Propagate field changes only", "Propagate all field and stream changes", "Approve all changes myself",
            "Stop future syncs")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """`columns` and `rows` of users at the destination, its `tables`, what `waits` for a person."""

    columns: str
    rows: str
    tables: str = "orders, users"
    waits: tuple[str, ...] = ()
    paused: bool = False


@dataclass(frozen=True)
class Change:
    """`streams` are what the connector offers afterwards, `lines` what it sends in the two syncs that follow. One
    outcome for each of SETTINGS. `row`: what the document says; `why`: where instep differs on purpose."""

    title: str
    row: str
    streams: list[Message]
    lines: list[Line]
    outcomes: tuple[Outcome, Outcome, Outcome, Outcome]
    why: str = ""


def users(*rows: Message, at: int = 9) -> list[Line]:
    return [*rows, state(at, len(rows)), status()]


QUIET: list[Line] = [state(1, 0, "orders"), status(name="orders")]


LOADED: list[Line] = [
    *users(*(record(id=i, name=f"n{i}", age=i * 10) for i in (1, 2)), at=2),
    *records(1, 1, "orders"), state(1, 1, "orders"), status(name="orders"),
]  # fmt: skip
USUAL = users(record(id=2, name="m2", age=21), record(id=3, name="n3", age=30))
FIRST, NEXT = "id, name, age", "1 n1 10; 2 m2 21; 3 n3 30"
BEFORE = "1 n1 10; 2 n2 20"
DAY = {"type": "string", "format": "date"}


def stopped(*waits: str) -> Outcome:
    return Outcome(FIRST, BEFORE, waits=waits, paused=True)


def _key_gone() -> tuple[Outcome, Outcome, Outcome, Outcome]:
    waits = stopped("primary key of users changed from (id) to (_instep_id)")
    return waits, waits, waits, waits


CITY, GONE, AGE = "column userscity added (string)", "column usersname removed (string)", "column usersage"
DAYS = f"{AGE} retyped from int64 to date"
WITH_CITY = Outcome("id, name, age, city", "1 n1 10 -; 2 m2 21 Rome; 3 n3 30 -")
WITHOUT_NAME = Outcome("id, age", "1 10; 2 21; 3 30")
WIDER = Outcome(FIRST, "1 n1 10; 2 m2 old; 3 n3 30")
NO_DAY = Outcome(FIRST, "1 n1 10; 2 m2 -; 3 n3 -")
CHANGES = [
    Change(
        "a new column", "The column is created; rows that are updated have its values.",
        [stream(**USERS, city=TEXT), ORDERS],
        [*users(record(id=2, name="m2", age=21, city="Rome"), record(id=3, name="n3", age=30)), *QUIET],
        (WITH_CITY, WITH_CITY, Outcome(FIRST, NEXT, waits=(CITY,)), stopped(CITY)),
    ),
    Change(
        "a column is gone", "The column is removed at the destination.",
        [stream(age=INTEGER), ORDERS], [*users(record(id=2, age=21), record(id=3, age=30)), *QUIET],
        (WITHOUT_NAME, WITHOUT_NAME, Outcome(FIRST, "1 n1 10; 2 n2 21; 3 - 30", waits=(GONE,)), stopped(GONE)),
        "It can be undone for `undo_days`. Without a decision a row keeps the value that it had.",
    ),
    Change(
        "a new stream", "With stream changes, the next sync creates it and loads all of it.",
        [stream(**USERS), ORDERS, stream("bags")],
        [*USUAL, *QUIET, *records(1, 2, "bags"), state(2, 2, "bags"), status(name="bags")],
        (Outcome(FIRST, NEXT), Outcome(FIRST, NEXT, "bags, orders, users"),
         Outcome(FIRST, NEXT, waits=("table bags added (1 column)",)), stopped("table bags added (1 column)")),
        "Under fields only it is listed as switched off, so that it can be switched on by name.",
    ),
    Change(
        "a stream is gone", "It is not updated any more; the rows that are there stay.",
        [stream(**USERS)], USUAL,
        (Outcome(FIRST, NEXT), Outcome(FIRST, NEXT), Outcome(FIRST, NEXT, waits=("table orders removed (1 column)",)),
         stopped("table orders removed (1 column)")),
    ),
    Change(
        "a type that does not take the old values",
        "The type at the destination stays; a value that does not fit is an error noted in its row.",
        [stream(name=TEXT, age=DAY), ORDERS],
        [*users(record(id=2, name="m2", age="2026-01-31"), record(id=3, name="n3", age="2026-02-01")), *QUIET],
        (NO_DAY, NO_DAY, replace(NO_DAY, waits=(DAYS,)), stopped(DAYS)),
        "The value is quarantined, too, and comes back once the column takes it.",
    ),
    Change(
        "a wider type", "As above: the type at the destination stays.",
        [stream(name=TEXT, age=TEXT), ORDERS],
        [*users(record(id=2, name="m2", age="old"), record(id=3, name="n3", age="30")), *QUIET],
        (WIDER, WIDER, Outcome(FIRST, "1 n1 10; 2 m2 -; 3 n3 30", waits=(f"{AGE} widened from int64 to string",)),
         stopped(f"{AGE} widened from int64 to string")),
        "A type that takes all old values is applied: nothing is lost and nothing has to be loaded again.",
    ),
    Change(
        "the primary key is gone", "Breaking: the connection is paused under every setting.",
        [stream(key=(), **USERS), ORDERS], [*USUAL, *QUIET], _key_gone(),
        "The review names the old and the new key; `instep table set-key` chooses one.",
    ),
]  # fmt: skip
INTRO = """\
# Schema changes of Airbyte connectors
What becomes of each change that Airbyte's schema settings know, for sources of `type: airbyte`. The tests execute every
line: a connector loads `users(id, name, age)` with the rows `1 n1 10` and `2 n2 20` and `orders(id)` with the row `1`.
Then its catalog changes, it sends row 2 changed and row 3 new, and two syncs follow. `-` is NULL. Rows of `orders` stay
in every case.
"""


OUTRO = """\
## The cursor is gone
Airbyte: Breaking: the connection is paused under every setting.

The same here, under all four settings: the change is `cursor.removed`, and the stream is not read until it is decided.
On purpose: the presets of instep's own (`allow_all`, `allow_columns`, `block_all`) pause the table alone, and other
streams are read. If it is approved, the stream is read as a whole from then on; if `cursor` of the table names another
property, by that, from the first row. A cursor that comes back ends the pause of a table, and the read goes on from its
state. A default cursor that nobody configured counts as one that is; what the source defines is its own affair.

## Backfill
Airbyte: if it is on, a new column lets its whole stream be read again, in a sync that finds the change by itself.

`backfill: enabled` does the same under the two settings that propagate. On purpose: it follows the decision, whoever
has made it, so that an approved column gets its old values, too.

## Breaking changes of a version
Airbyte: five kinds, of which the connection warns until its cut-off date, and then is paused.

On purpose: `instep source upgrade NAME --dry-run` finds them itself, from both versions, besides what is announced
([upgrades](../guides/airbyte.md#upgrades)).

| kind there | kind here | example |
| --- | --- | --- |
| configuration | `spec` | a new required field |
| schema | `schema` | a column of another type |
| stream or property removal | `removal` | a stream that is not offered any more |
| format at the destination | `format` | another primary key |
| state | `state` | another cursor |
"""


def page_file() -> Path:
    return Path(__file__).parents[2] / "docs" / "reference" / "airbyte-changes.md"


def page() -> str:
    """The page of all cases; settings with the same outcome share a line."""
    parts = [INTRO]
    for change in CHANGES:
        by_outcome: dict[Outcome, list[str]] = {}
        for setting, found in zip(SETTINGS, change.outcomes, strict=True):
            by_outcome.setdefault(found, []).append(setting)
        lines = [f"## {change.title.capitalize()}", f"Airbyte: {change.row}"]
        lines += [f"\nOn purpose: {change.why}"] if change.why else []
        lines += ["", "| setting | columns of users | rows of users | tables | waits for a person | connection |"]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        for found, settings in by_outcome.items():
            cells = (", ".join(settings), found.columns, found.rows, found.tables, ", ".join(found.waits),
                     "paused" if found.paused else "goes on")  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join([*parts, OUTRO])


if __name__ == "__main__":
    page_file().write_text(page())
