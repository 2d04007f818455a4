"""What somebody has changed at a destination table manually: against how it was left, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.promotion import widens

What = Literal["gone", "added", "renamed", "replaced", "widened", "retyped", "required", "table gone"]
_BACK = "it is restored, with its values where they are kept, and the table is read again"
LOADABLE = ("added", "widened")
"""The table can go on being loaded as it is: nothing has to be put back."""


@dataclass(frozen=True)
class Difference:
    """`column` is as the destination was left with it ("" for the table), `text` what is found, `repair` what
    approving it does."""

    what: What
    column: str
    text: str
    repair: str


def differences(left: Table, found: Table | None, prefix: str) -> tuple[Difference, ...]:
    """Return how `found` differs from the table as it was `left`; columns that bear the system `prefix` do not count,
    nor do order and comments. Columns pair by the source column recorded beside them, then by name."""
    if found is None:
        gone = Difference("table gone", "", "the table is gone", "it is created again and reloaded")
        return (gone,)
    return tuple(_columns(left, found, prefix))


def _columns(left: Table, found: Table, prefix: str) -> Iterator[Difference]:
    here = [c for c in found.columns if not c.name.startswith(prefix)]
    recorded = {c.alias: c for c in here if c.alias}
    named = {c.name: c for c in here if not c.alias}
    for old in left.columns:
        if old.name.startswith(prefix):
            continue
        new = recorded.pop(old.alias, None) if old.alias else None
        if new is not None:
            yield from _same(old, new)
        elif (other := named.pop(old.name, None)) is None:
            yield Difference("gone", old.name, f"column {old.name} is gone", _BACK)
        elif old.alias:
            yield Difference(
                "replaced",
                old.name,
                f"column {old.name} was dropped and recreated as {other.type}",
                f"it is taken as {old.name} {old.type}, and the table is read again",
            )
        else:
            yield from _same(old, other)
    for new in (*recorded.values(), *named.values()):
        must = " (it takes no NULL: make it optional first)" if not new.nullable else ""
        yield Difference(
            "required" if must else "added",
            new.name,
            f"column {new.name} {new.type} was added{must}",
            "it stays, and its new rows have NULL in it",
        )


def _same(old: Column, new: Column) -> Iterator[Difference]:
    if old.name != new.name:
        yield Difference(
            "renamed", old.name, f"column {old.name} is called {new.name}", f"it is called {old.name} again"
        )
    if old.type != new.type and widens(old.type, new.type):
        yield Difference(
            "widened", old.name, f"column {old.name} is {new.type} instead of {old.type}", "the wider type stays"
        )
    elif old.type != new.type:
        yield Difference(
            "retyped",
            old.name,
            f"column {old.name} is {new.type} instead of {old.type}",
            f"its values are cast to {old.type}, and the table is read again",
        )
    if old.nullable and not new.nullable:
        yield Difference("required", old.name, f"column {old.name} no longer accepts NULL", "it accepts NULL again")


def detail(found: tuple[Difference, ...]) -> str:
    """Return what differs and what each answer does, in one line."""
    what = "; ".join(d.text for d in found)
    repairs = "; ".join(dict.fromkeys(d.repair for d in found))
    if all(d.what in LOADABLE for d in found):
        return f"{what} (approve: {repairs}; reject: the same, without another review)"
    return f"{what} (approve: {repairs}; reject: this table is not loaded, the others continue)"
