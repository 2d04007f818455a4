"""Names that meet at the destination are a change of their own: what would come in under another name waits for what is
decided about that, alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRenamed,
    NameCollided,
    Ref,
    TableAdded,
    TableRenamed,
    TableReplaced,
    key,
    table_of,
)
from instep.schema.planning.accept import accept
from instep.schema.planning.naming import Collision, Naming, collisions
from instep.schema.policy.policy import Decision, is_by_policy

SYSTEM = "system columns"
"""Decides about columns that bear the name of a system column: they are prefixed, which needs no question."""
NEW = ColumnAdded | ColumnRenamed | TableAdded | TableRenamed | TableReplaced


@dataclass(frozen=True)
class Collided:
    """The decisions with a `name.collided` for each new name that meets another's, last; `about` is, by the key of each
    of these, the key of the change that brings the name."""

    decisions: tuple[Decision, ...]
    about: Mapping[str, str] = field(default_factory=dict)

    def block_names(self, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
        """Return `decisions` with a name blocked wherever the object that would bear it is not accepted."""
        applied = {key(d.change) for d in decisions if d.applied}

        def block(decision: Decision) -> Decision:
            bearer = self.about.get(key(decision.change))
            if bearer is None or bearer in applied or not decision.applied:
                return decision
            return replace(decision, action="ignore", effect="waiting", why="waits for the object with that name")

        return tuple(map(block, decisions))


def collide(
    decisions: Sequence[Decision],
    accepted: Catalog,
    source: Catalog,
    naming: Naming,
    decide: Callable[[NameCollided], Decision],
    requested: Iterable[NameCollided] = (),
) -> Collided:
    """Decide about names that collide; `decide` answers what becomes of one. Those in `requested` are open reviews
    and stay open until they are answered, whatever the policy says by then. What is not accepted is left out if it
    is new, and keeps its old name if it was renamed; a column of a new table is left out of it, unless the table
    needs it. Accepting a name accepts the object that bears it."""
    open_names = {(fact.table, fact.names[0]) for fact in requested}
    entering = [_entering(d, open_names) for d in decisions]
    if not any(d.applied and isinstance(d.change, NEW) for d in entering):
        return Collided(tuple(decisions))
    edit = _Edit(list(decisions), _bearers(entering))
    for collision in collisions(accept(entering, accepted, source), naming):
        edit.add(collision, decide)
    return Collided((*edit.all(), *edit.facts), edit.about)


def _entering(decision: Decision, open_names: Collection[tuple[Ref, str]]) -> Decision:
    """Return the decision as if what waits had come in."""
    change = decision.change
    is_known = isinstance(change, ColumnAdded) and (change.table, change.after.name) in open_names
    waits = isinstance(change, NEW) and (decision.needs_review or (is_known and not decision.by_person))
    return replace(decision, action="apply") if waits else decision


def _bearers(entering: Sequence[Decision]) -> dict[tuple[Ref, str], int]:
    """Return the positions of the decisions that bring names, by the accepted (table, column) that they lead to; ""
    for all of a new table."""
    renamed = {c.after.ref: c.before.ref for d in entering if isinstance(c := d.change, TableRenamed) and not d.applied}
    collisions_by_column = {}
    for place, decision in enumerate(entering):
        change = decision.change
        if decision.applied and isinstance(change, NEW):
            ref = table_of(change) or ("", "")
            column = change.after.name if isinstance(change, ColumnAdded | ColumnRenamed) else ""
            collisions_by_column[renamed.get(ref, ref), column] = place
    return collisions_by_column


@dataclass
class _Edit:
    """Decisions with changed columns of new tables."""

    decisions: list[Decision]
    bearers: Mapping[tuple[Ref, str], int]
    facts: list[Decision] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    left: dict[int, list[Decision]] = field(default_factory=dict)
    """The columns that new tables come in without, by the place of their table."""

    def all(self) -> Iterator[Decision]:
        for place, decision in enumerate(self.decisions):
            columns = self.left.get(place, [])
            names = {d.change.after.name for d in columns if isinstance(d.change, ColumnAdded)}
            change = decision.change
            if isinstance(change, TableAdded) and names:
                remaining = tuple(c for c in change.after.columns if c.name not in names)
                decision = replace(decision, change=TableAdded(replace(change.after, columns=remaining)))
            yield from (decision, *columns)

    def add(self, collision: Collision, decide: Callable[[NameCollided], Decision]) -> None:
        name = collision.column.name if collision.column else ""
        place = self.bearers.get((collision.table.ref, name), self.bearers.get((collision.table.ref, "")))
        if place is None:
            return
        bearer = self.decisions[place]
        fact = _fact(collision, bearer.change)
        decision = _prefixed(fact) if collision.system else decide(fact)
        self.facts.append(decision)
        self.about[key(fact)] = key(bearer.change)
        is_of_column = not name or isinstance(bearer.change, ColumnAdded | ColumnRenamed)
        if decision.applied:
            self.decisions[place] = _with_approved_name(bearer, decision) if is_of_column else bearer
        elif is_of_column or not isinstance(bearer.change, TableAdded) or _is_needed(collision):
            self.decisions[place] = _left(bearer, decision)
        elif bearer.applied:
            self.left.setdefault(place, []).append(_without(bearer.change.after, name, decision))


def _fact(collision: Collision, bearer: Change) -> NameCollided:
    ref, alias = table_of(bearer) or ("", ""), collision.alias
    own_name = collision.column.name if collision.column else ".".join(filter(None, ref))
    detail = f"{own_name} is stored as {alias}" if collision.system else f"{own_name} would be stored as {alias}"
    return NameCollided(ref, (own_name, collision.other), detail)


def _prefixed(fact: NameCollided) -> Decision:
    return Decision(fact, "apply", SYSTEM, f"{fact.detail}: the name is reserved by the destination")


def _is_needed(collision: Collision) -> bool:
    """Return whether the column is the cursor or part of the key: rows are identified and found by those."""
    return collision.column is not None and bool(
        collision.column.key or collision.column.name == collision.table.cursor
    )


def _with_approved_name(bearer: Decision, fact: Decision) -> Decision:
    """Return the decision about what bears the name; accepting the name accepts it, if policy alone was holding it
    up."""
    waits = bearer.action in ("review", "ignore") and is_by_policy(bearer.why) and not bearer.by_person
    if fact.rule != "review" or not waits:
        return bearer
    return replace(
        bearer, action="apply", rule=NameCollided.kind, effect="", why="its name at the destination was approved"
    )


def _left(bearer: Decision, fact: Decision) -> Decision:
    if not bearer.applied:
        return bearer
    why = "left out, because its name is" if fact.action == "ignore" else "waits for name.collided"
    return replace(bearer, action="ignore", rule=fact.rule, effect="waiting", why=why)


def _without(table: Table, name: str, fact: Decision) -> Decision:
    position, column = next((i, c) for i, c in enumerate(table.columns) if c.name == name)
    return _left(Decision(ColumnAdded(table.ref, column, position), "apply", fact.rule, ""), fact)
