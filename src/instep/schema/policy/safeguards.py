"""What one detection accepts at most, whatever policy says: floods of new columns, and types that go back and forth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from instep.schema.catalog.catalog import Catalog
from instep.schema.catalog.types import DataType
from instep.schema.changes.kinds import ColumnAdded, ColumnNarrowed, ColumnRetyped, ColumnWidened, Ref
from instep.schema.policy.policy import Decision

COLUMN_LIMIT = "new column limit"
FLAPPING = "type flapping"
MAX_NEW_COLUMNS = 100
RETYPES, WINDOW = 3, 10
"""A type that has changed three times within the last ten schemas of the source, back to one that it had before."""

Retype = ColumnWidened | ColumnNarrowed | ColumnRetyped


def limit_columns(decisions: Sequence[Decision], most: int, pending: Collection[int] = ()) -> tuple[Decision, ...]:
    """Return the decisions with new columns beyond the first `most` of a table waiting for a review.

    `pending` are the places of those that an earlier detection has held: they wait until they are answered and are not
    counted. What a person has accepted is not counted either.
    """
    total = Counter(d.change.table for d in decisions if _is_new(d) and isinstance(d.change, ColumnAdded))
    taken: Counter[Ref] = Counter()
    out = []
    for place, decision in enumerate(decisions):
        change = decision.change
        if not (_is_new(decision) and isinstance(change, ColumnAdded)):
            out.append(decision)
        elif place in pending or taken[change.table] >= most:
            out.append(_over(decision, total[change.table], most))
        else:
            taken[change.table] += 1
            out.append(decision)
    return tuple(out)


def _is_new(decision: Decision) -> bool:
    added = isinstance(decision.change, ColumnAdded)
    return added and decision.applied and not decision.by_person


def _over(decision: Decision, total: int, most: int) -> Decision:
    why = f"{total} columns of this table are new, {most} are accepted at once: approve it, or raise max_new_columns"
    return replace(decision, action="review", rule=COLUMN_LIMIT, effect="", why=why)


def retypes(decisions: Sequence[Decision]) -> bool:
    """Return whether a column's type is about to change."""
    return any(_retype(d) is not None for d in decisions)


def _retype(decision: Decision) -> Retype | None:
    change = decision.change
    automatic = decision.applied and not decision.by_person
    return change if automatic and isinstance(change, Retype) else None


def hold_flapping(decisions: Sequence[Decision], past: Sequence[Catalog]) -> tuple[Decision, ...]:
    """Return the decisions with type changes of a column whose type goes back and forth waiting for a review. `past`:
    the source's catalogs, oldest first."""
    return tuple(_flapping(d, past) for d in decisions)


def _flapping(decision: Decision, past: Sequence[Catalog]) -> Decision:
    change = _retype(decision)
    if change is None:
        return decision
    types = [*_types(change.table, change.before.name, past[-WINDOW:]), change.after.type]
    times = sum(a != b for a, b in pairwise(types))
    if times < RETYPES or change.after.type not in types[: _last_run(types)]:
        return decision
    names = " -> ".join(str(b) for a, b in pairwise([None, *types]) if a != b)
    why = f"its type goes back and forth ({names}): it keeps the accepted type until this is approved"
    return replace(decision, action="review", rule=FLAPPING, effect="", why=why)


def _types(ref: Ref, name: str, past: Sequence[Catalog]) -> list[DataType]:
    tables = (catalog.get(ref) for catalog in past)
    return [t.by_name[name].type for t in tables if t and name in t.by_name]


def _last_run(types: Sequence[DataType]) -> int:
    """Return where the last type began to be the current one."""
    at = len(types) - 1
    while at > 0 and types[at - 1] == types[-1]:
        at -= 1
    return at
