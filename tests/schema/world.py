"""Builders for tests: tables from short texts, a destination in memory, one detection from end to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import Change, ColumnRenamed, TableReplaced, apply
from instep.schema.changes.diff import diff
from instep.schema.planning.accept import accept, defer_blocked
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.naming import Naming, assign
from instep.schema.planning.plan import Plan, StepGroup, desired, plan
from instep.schema.planning.step import RecordIdentity, RewriteColumn, StepChange
from instep.schema.policy.policy import Decision, Explicit, Policy
from instep.schema.policy.removal import decide_all
from instep.schema.policy.similarity import RenameInference

ICEBERG = Capabilities(
    "iceberg",
    frozenset(
        {("int32", "int64"), ("float32", "float64"), ("decimal(p,s)", "decimal(p+,s)"), ("string(n)", "string(n+)")}
    ),
    nested=True,
    undo_by_id=True,
    simultaneous_renames=True,
    keys=True,
)
PLAIN = Capabilities("plain", frozenset({("int32", "int64")}))
Answer = Callable[[Change], Explicit | None]
NAMING = Naming("lake", default_schema="s")


def column(text: str, **more: object) -> Column:
    """`a`, `a:int32`, `a:int32#3` with an id, `a:int32#3!` in the key."""
    keyed = text.endswith("!")
    name, _, rest = text.removesuffix("!").partition(":")
    kind, _, number = rest.partition("#")
    made = Column(name, parse(kind or "int32"), id=number or None, key=int(keyed))
    return replace(made, **more)  # type: ignore[arg-type]


def table(name: str, *columns: str | Column, oid: str | None = None, **more: object) -> Table:
    made = tuple(column(c) if isinstance(c, str) else c for c in columns)
    return replace(Table("s", name, made, id=oid), **more)  # type: ignore[arg-type]


def catalog(*tables: Table) -> Catalog:
    return Catalog.of(tables)


@dataclass
class World:
    """One connection: what is accepted and what the destination holds. There, `native` is a stamp given to a column
    when it is made: it shows where values went."""

    capabilities: Capabilities = ICEBERG
    policy: Policy = field(default_factory=Policy)
    accepted: Catalog = field(default_factory=Catalog)
    there: Catalog = field(default_factory=Catalog)
    decisions: tuple[Decision, ...] = ()
    proposals: tuple[RenameInference, ...] = ()

    def plan(self, source: Catalog, explicit: Answer = lambda change: None) -> Plan:
        decisions, self.proposals = decide_all(diff(self.accepted, source), self.policy, explicit=explicit)
        self.decisions = defer_blocked(decisions, self.accepted)
        after = assign(accept(self.decisions, self.accepted, source), NAMING)
        return plan(self.decisions, self.accepted, after, self.there, desired(after, NAMING), self.capabilities)

    def sync(self, source: Catalog, explicit: Answer = lambda change: None) -> Plan:
        made = self.plan(source, explicit)
        for group in made.groups():
            self.there = execute(self.there, group, self.capabilities)
        self.accepted = made.after
        return made

    def columns(self, name: str = "t") -> dict[str, str]:
        """Destination column to its type, system columns left out."""
        return {c.name: str(c.type) for c in self.there.by_ref["lake", name].columns if c.alias}

    def values(self, name: str = "t") -> dict[str, str]:
        """Destination column to the name under which its values were first written."""
        return {c.name: c.native for c in self.there.by_ref["lake", name].columns if c.alias}


def execute(there: Catalog, group: StepGroup, capabilities: Capabilities) -> Catalog:
    """What a destination does with the steps of one commit; checks that they lead to what the plan says."""
    for renames, steps in groupby(group.steps, lambda s: isinstance(s.change, ColumnRenamed)):
        changes = [s.change for s in steps]
        for batch in [changes] if renames and capabilities.simultaneous_renames else [[c] for c in changes]:
            there = _apply(there, batch)
    if group.after is None:
        assert group.ref not in there.by_ref
        return there
    found, now = there.by_ref[group.after.ref], {c.name: c for c in group.after.columns}
    assert {c.name: c.type for c in found.columns} == {c.name: c.type for c in group.after.columns}
    columns = (
        replace(c, id=now[c.name].id, alias=now[c.name].alias, native=c.native or c.name, key=c.key * capabilities.keys)
        for c in found.columns
    )
    return there.put(replace(found, id=group.after.id, columns=tuple(columns)))


def _apply(there: Catalog, batch: list[StepChange]) -> Catalog:
    match batch[0]:
        case RewriteColumn() | RecordIdentity() as change:
            found = there.by_ref[change.table]
            assert found.by_name[change.before.name].type == change.before.type
            columns = tuple(change.after if c.name == change.before.name else c for c in found.columns)
            return there.put(replace(found, columns=columns))
        case TableReplaced() as change:
            assert change.before.ref in there.by_ref
            return there
        case _:
            return apply([c for c in batch if not isinstance(c, RewriteColumn | RecordIdentity)], there)
