"""The steps from the destination's tables to their target, in an order that can be executed.

Over all tables: drops, renames (a cycle parked under a temporary name), the columns of each table, new tables. Within a
table: drops, renames (likewise), alterations, additions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from instep.errors import IllegalChange
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.promotion import widens
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnComment,
    ColumnNarrowed,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    ColumnWidened,
    DestinationDrifted,
    KeyChanged,
    KeyRemoved,
    TableAdded,
    TableComment,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)
from instep.schema.planning.accept import Lineage
from instep.schema.planning.hazard import Capabilities, Hazard, hazards
from instep.schema.planning.step import (
    RecordIdentity,
    Ref,
    RewriteColumn,
    SetLayout,
    Step,
    StepChange,
    UndropColumn,
    step,
)


@dataclass(frozen=True)
class PlanInputs:
    """Input from which steps are made."""

    before: Catalog
    accepted: Catalog
    destination: Catalog
    target: Catalog
    capabilities: Capabilities
    prefix: str
    moves: Lineage
    """New places of accepted tables and columns."""
    consent: Mapping[tuple[Ref, str], str]
    """Names by accepted (table, column) before the rule that said `removed: drop`."""
    foreign: Mapping[Ref, str] = field(default_factory=dict)
    """The destination's tables that are not ours and why."""


@dataclass(frozen=True)
class _Match:
    """An accepted table before and after, its destination table and the target table; any may be absent."""

    before: Table | None
    after: Table | None
    existing: Table | None
    target: Table | None

    @property
    def ref(self) -> Ref:
        named = self.before or self.after or self.target
        return named.ref if named else ("", "")

    @property
    def is_new(self) -> bool:
        return self.existing is None and self.target is not None and not self.target.retained

    @property
    def moves(self) -> bool:
        return bool(self.existing and self.target and self.existing.ref != self.target.ref)


@dataclass
class Arrangement:
    """Result: `after` are the destination's tables then, `refused` (by accepted table before, or after for a
    new one) why a table is left as it is."""

    steps: list[Step] = field(default_factory=list)
    after: list[Table] = field(default_factory=list)
    notes: list[Change] = field(default_factory=list)
    refused: dict[Ref, str] = field(default_factory=dict)
    stuck: list[_Match] = field(default_factory=list)

    def refuse(self, match: _Match, why: str) -> None:
        self.refused[match.ref] = why
        self.stuck.append(match)


def arrange(inputs: PlanInputs) -> Arrangement:
    """Return the steps of all tables."""
    out = Arrangement()
    matches = list(_matches(inputs))
    bodies: dict[Ref, tuple[list[Step], Table]] = {}
    for match in matches:
        try:
            if match.target is not None and match.target.ref in inputs.foreign:
                out.refuse(match, inputs.foreign[match.target.ref])
            elif match.target is not None:
                bodies[match.target.ref] = _body(inputs, match, out)
        except IllegalChange as error:
            out.refuse(match, str(error))
    _drops(inputs, matches, out)
    _renames(inputs, matches, out)
    for match in matches:
        if match.target is None or match in out.stuck:
            out.after += [match.existing] if match.existing and match in out.stuck else []
            continue
        steps, after = bodies[match.target.ref]
        out.steps += steps
        out.after += [after] if match.existing or steps else []
    out.steps.sort(key=lambda s: isinstance(s.change, TableAdded))
    return out


def _matches(inputs: PlanInputs) -> Iterator[_Match]:
    """Yield target tables with the destination's. Unchanged ones follow the accepted table; others pair by recorded
    id, then by the table to which the accepted name went, then by name. A retained table whose id another one has
    taken over keeps it at the destination, where it no longer means anything."""
    by_path = {t.path: t for t in inputs.accepted.tables}
    origin = {new: old for (old, column), (new, _) in inputs.moves.items() if not column}
    dropped = {t.alias or t.name: t for t in inputs.before.tables if (t.ref, "") not in inputs.moves}
    gone = {t.ref: t for t in inputs.destination.tables if t.id and t.name in dropped and dropped[t.name].id == t.id}
    left = {t.ref: t for t in inputs.destination.tables if t.ref not in gone}
    stale = {t.alias or t.name for t in inputs.before.tables if t.retained and t.id is None}
    by_id = {t.id: t for t in left.values() if t.id is not None and t.name not in stale}
    by_name = {t.name: t for t in left.values()}
    holds: dict[Ref, Table] = {}
    sides = []
    for target in inputs.target.tables:
        after = by_path.get(target.alias)
        old = origin.get(after.ref) if after else None
        sides.append((inputs.before.get(old) if old else None, after, target))

    def as_left(before: Table | None, target: Table) -> Table | None:
        have = by_origin(before, target)
        return have if have and before and have.id is not None and have.id == before.id else None

    def of_id(before: Table | None, target: Table) -> Table | None:
        return by_id.get(target.id) if target.id is not None else None

    def by_origin(before: Table | None, target: Table) -> Table | None:
        return by_name.get(before.alias or before.name) if before else None

    def of_name(before: Table | None, target: Table) -> Table | None:
        return left.get(target.ref)

    for tell in (as_left, of_id, by_origin, of_name):
        for before, _, target in sides:
            have = tell(before, target)
            if have is not None and have.ref in left and target.ref not in holds:
                holds[target.ref] = left.pop(have.ref)
    for before, after, target in sides:
        yield _Match(before, after, holds.get(target.ref), target)
    for have in (*gone.values(), *left.values()):
        yield _Match(dropped.get(have.name), None, have, None)


def _drops(inputs: PlanInputs, matches: Sequence[_Match], out: Arrangement) -> None:
    for match in matches:
        if match.target is not None or match.existing is None:
            continue
        if match.before is None:
            detail = f"table {match.existing.path} exists, but no accepted table writes to it: it is not changed"
            out.notes.append(DestinationDrifted(match.existing.ref, detail))
        elif not inputs.capabilities.drops:
            out.refuse(match, f"{inputs.capabilities.name} cannot drop table {match.existing.path}")
        else:
            consent = inputs.consent.get((match.before.ref, ""), "")
            out.steps.append(_step(inputs, match.existing.ref, TableRemoved(match.existing), consent))


def _renames(inputs: PlanInputs, matches: Sequence[_Match], out: Arrangement) -> None:
    """Arrange each rename once its new name is free; refuse tables that never get their name, new ones included."""
    waiting = [m for m in matches if (m.moves or m.is_new) and m not in out.stuck]
    if not inputs.capabilities.renames:
        for match in [m for m in waiting if m.moves]:
            waiting.remove(match)
            out.refuse(match, f"{inputs.capabilities.name} cannot rename table {match.ref[1]}")
    going = {m.existing.ref for m in waiting if m.existing} | {s.table for s in out.steps}
    still = {t.ref for t in inputs.destination.tables} - going
    while stuck := [m for m in waiting if m.target and m.target.ref in still]:
        for match in stuck:
            waiting.remove(match)
            out.refuse(match, f"the name {match.target.path if match.target else ''} is taken at the destination")
            still |= {match.existing.ref} if match.existing else set()
    for table, after in _in_order([(m.existing, m.target) for m in waiting if m.existing and m.target], inputs, still):
        out.steps.append(_step(inputs, table.ref, TableRenamed(table, after)))


def _in_order(moves: list[tuple[Table, Table]], inputs: PlanInputs, still: set[Ref]) -> Iterator[tuple[Table, Table]]:
    used = still | {table_now.ref for table_now, _ in moves}
    while moves:
        free = next((m for m in moves if m[1].ref not in used), None)
        if free is None:
            (table, target), *others = moves
            parked = replace(table, name=spare_name(f"{inputs.prefix}parked", {name for _, name in used}))
            yield table, parked
            moves, new = [*others, (parked, target)], parked.ref
        else:
            table, target = free
            yield table, replace(table, schema=target.schema, name=target.name)
            moves.remove(free)
            new = target.ref
        used.remove(table.ref)
        used.add(new)


def _body(inputs: PlanInputs, match: _Match, out: Arrangement) -> tuple[list[Step], Table]:
    """Return the steps of the columns, under the table's target name."""
    table, target = match.existing, match.target
    assert target is not None
    if table is None:
        live = replace(target, columns=tuple(c for c in target.columns if not c.retained))
        column_steps(
            replace(live, columns=()), live, ColumnPairing((), live.columns, (), ()), inputs.capabilities, inputs.prefix
        )
        return ([] if target.retained else [_step(inputs, target.ref, TableAdded(live))]), live
    # columns without a recorded source name take the one that they were accepted under
    names = {c.alias or c.name: c.name for c in match.before.columns} if match.before else {}
    columns = (c if c.alias else replace(c, alias=names.get(c.name, "")) for c in table.columns)
    table = replace(table, columns=tuple(columns))
    pairing = _pair(inputs, match, table, target)
    out.notes += [_drift(target, column) for column in pairing.drifted]
    new_generation = _new_generation(match)
    after = after_steps(table, target, pairing, inputs.capabilities, new_generation=new_generation)
    changes = column_steps(table, target, pairing, inputs.capabilities, inputs.prefix, new_generation=new_generation)
    if new_generation:
        changes.insert(0, TableReplaced(replace(table, schema=target.schema, name=target.name), after))
    return [_step(inputs, target.ref, c, _consent(inputs, match, c)) for c in changes], after


def _pair(inputs: PlanInputs, match: _Match, table: Table, target: Table) -> ColumnPairing:
    before = match.before
    trail = ColumnTrail()
    if before is not None:
        went = {c.name: inputs.moves.get((before.ref, c.name)) for c in before.columns}
        trail = ColumnTrail(before, {name: to[1] for name, to in went.items() if to})
    same_table = not _new_generation(match) and table.id == target.id
    found_pairs = pair(table, target, trail, prefix=inputs.prefix, same_table=same_table)
    # nobody loads a table that stays behind: a column that was dropped there manually would come back empty
    return replace(found_pairs, added=()) if target.retained else found_pairs


def _new_generation(match: _Match) -> bool:
    """Return whether the accepted table was replaced or its key has another type, and the destination does not know
    that yet."""
    if match.before is None or match.after is None or match.before.generation == match.after.generation:
        return False
    if match.existing is None or match.existing.id is None or match.existing.id != match.after.id:
        return True
    return match.target is not None and _holds_other_types(match.existing, match.target)


def _holds_other_types(table: Table, target: Table) -> bool:
    """True if rows there are told apart by values of another type or, of a table without a key, hold such values."""
    types = {c.alias: c.type for c in table.columns if c.alias}
    telling = [c for c in target.columns if c.key or not target.key]
    return any(not widens(c.type, types.get(c.alias, c.type)) for c in telling)


def _drift(table: Table, column: Column) -> DestinationDrifted:
    detail = f"column {column.name} {column.type} of {table.path} was not created by instep: it is not changed"
    return DestinationDrifted(table.ref, detail)


def _consent(inputs: PlanInputs, match: _Match, change: StepChange) -> str:
    if not isinstance(change, ColumnRemoved) or match.before is None:
        return ""
    return inputs.consent.get((match.before.ref, change.before.alias), "")


def _step(inputs: PlanInputs, ref: Ref, change: StepChange, consent: str = "") -> Step:
    return step(ref, change, _hazards(change, inputs.capabilities), consent)


def _hazards(change: StepChange, capabilities: Capabilities) -> tuple[Hazard, ...]:
    match change:
        case RecordIdentity() | UndropColumn() | ColumnNarrowed():  # no value is narrowed: those of a new generation
            return ()
        case SetLayout():
            return ()
        case KeyChanged() | KeyRemoved():  # what it means was decided with the change itself
            return ()
        case RewriteColumn():
            return hazards(ColumnRetyped(change.table, change.before, change.after), capabilities)
        case ColumnAdded() if not change.after.alias:
            return ()
        case _:
            return hazards(change, capabilities)


_PARKED = re.compile(r"parked_\d+$")


@dataclass(frozen=True)
class ColumnPairing:
    """Pairing of the columns of a destination table with those of the desired one."""

    same: tuple[tuple[Column, Column], ...]
    added: tuple[Column, ...]
    dropped: tuple[Column, ...]
    """Were accepted and no longer are."""
    drifted: tuple[Column, ...]
    """Not known to us."""


@dataclass(frozen=True)
class ColumnTrail:
    """Renames of the columns of an accepted table: `moved` is old to new source name; one that is not in it was
    dropped."""

    before: Table | None = None
    """None for a table that was not accepted before."""
    moved: Mapping[str, str] = field(default_factory=dict)

    def is_as_left(self, table: Table, column: Column) -> bool:
        """Return whether the destination's column bears both id and name of an accepted one: no step has touched it."""
        if self.before is None or column.id is None or table.id != self.before.id:
            return False
        left = self.before.by_name.get(column.alias)
        return left is not None and left.id == column.id

    def dropped(self, column: Column) -> bool:
        is_known = self.before is not None and column.alias in self.before.by_name
        return is_known and column.alias not in self.moved


def pair(table: Table, target: Table, trail: ColumnTrail, *, prefix: str, same_table: bool) -> ColumnPairing:
    """Pair the columns of a table with its target. Columns that are as they were left follow the trail. Others pair by
    recorded source id (within one table id), then by the trail of the recorded source name, then by name. Columns with
    the system `prefix` are always ours."""
    gone = [c for c in table.columns if trail.dropped(c) and trail.is_as_left(table, c)]
    left = [c for c in table.columns if c not in gone]
    pairs: dict[str, Column] = {}

    def match(tell: Callable[[Column, Column], bool]) -> None:
        for want in target.columns:
            have = next((c for c in left if want.name not in pairs and tell(c, want)), None)
            if have is not None:
                pairs[want.name] = have
                left.remove(have)

    def follows(have: Column, want: Column) -> bool:
        return bool(have.alias) and bool(want.alias) and trail.moved.get(have.alias) == want.alias

    match(lambda have, want: trail.is_as_left(table, have) and follows(have, want))
    if same_table:
        match(lambda have, want: have.id is not None and have.id == want.id)
    # an interrupted plan has left the table like its target already: every name is there, new ones among them
    existing = {(c.alias, c.name) for c in table.columns}
    fresh = {new for old, new in trail.moved.items() if new != old} - trail.moved.keys()
    if bool(fresh) and all((c.alias, c.name) in existing for c in target.columns):
        match(lambda have, want: have.alias == want.alias and have.name == want.name)
    match(follows)
    match(lambda have, want: have.name == want.name)
    gone += [c for c in left if trail.dropped(c)]
    return ColumnPairing(
        same=tuple((pairs[w.name], w) for w in target.columns if w.name in pairs),
        added=tuple(w for w in target.columns if w.name not in pairs and not w.retained),
        dropped=tuple(gone),
        drifted=tuple(c for c in left if c not in gone and not c.name.startswith(prefix)),
    )


def column_steps(
    table: Table,
    target: Table,
    pairing: ColumnPairing,
    capabilities: Capabilities,
    prefix: str,
    *,
    new_generation: bool = False,
) -> list[StepChange]:
    """Return the edits of one table's columns; raises IllegalChange for what the format cannot do.

    `new_generation`: all rows load again, so that no old value needs a wider type.
    """
    ref = target.ref
    _check_names([*(c for _, c in pairing.same), *pairing.added], pairing.drifted, target, capabilities)
    key = _remaining_key(table, pairing)
    steps: list[StepChange] = [KeyRemoved(ref, table.key)] if capabilities.keys and table.key and not key else []
    places = {c.name: n for n, c in enumerate(table.columns)}
    steps += [ColumnRemoved(ref, replace(c, key=0), places[c.name]) for c in pairing.dropped]
    if pairing.dropped and not capabilities.drops:
        raise IllegalChange(f"{capabilities.name} cannot drop a column of {target.path}", hint="use removed: retain")
    moves = [(have, want) for have, want in pairing.same if have.name != want.name]
    if moves and not capabilities.renames:
        raise IllegalChange(
            f"{capabilities.name} cannot rename {moves[0][0].name} of {target.path}",
            hint="reject the rename, or rebuild",
        )
    steps += renames(ref, moves, capabilities, prefix, {c.name for c in table.columns if c not in pairing.dropped})
    for have, want in pairing.same:
        stored = have if have.name == want.name else replace(have, name=want.name)
        if new_generation and (not want.retained and have.type != want.type and widens(want.type, have.type)):
            stored = replace(stored, type=want.type)
            steps.append(ColumnNarrowed(ref, replace(stored, type=have.type), stored))
        steps += _alter(target, stored, want, capabilities, renamed=have.name != want.name)
    end = len(table.columns) - len(pairing.dropped)
    steps += [
        ColumnAdded(ref, replace(column, key=0) if column.key else column, end + i)
        for i, column in enumerate(pairing.added)
    ]
    if capabilities.keys and key != target.key:
        steps.append(KeyChanged(ref, key, target.key) if target.key else KeyRemoved(ref, key))
    return steps + _comment(table, target, capabilities)


def _remaining_key(table: Table, pairing: ColumnPairing) -> tuple[str, ...]:
    """Return the key under the new names; empty if one of its columns goes."""
    now = {have.name: want.name for have, want in pairing.same} | {c.name: c.name for c in pairing.drifted}
    return tuple(now[n] for n in table.key) if all(n in now for n in table.key) else ()


def _check_names(
    columns: Sequence[Column], foreign: Sequence[Column], target: Table, capabilities: Capabilities
) -> None:
    seen = {capabilities.fold(c.name): c.name for c in foreign}
    for column in columns:
        if not column.name:
            raise IllegalChange(f"a column of {target.path} has no destination name", hint="assign names first")
        if len(column.name.encode()) > capabilities.max_name_bytes:
            raise IllegalChange(
                f"the name {column.name!r} in {target.path} has more than {capabilities.max_name_bytes} bytes "
                f"({capabilities.name})",
                hint="give the column another destination name",
            )
        if (twin := seen.get(capabilities.fold(column.name))) is not None:
            raise IllegalChange(
                f"{column.name!r} in {target.path} is taken by {twin!r}", hint="rename or drop the other column"
            )
        seen[capabilities.fold(column.name)] = column.name


def renames(
    ref: tuple[str, str],
    moves: Sequence[tuple[Column, Column]],
    capabilities: Capabilities,
    prefix: str,
    names: set[str],
) -> list[StepChange]:
    """Return each rename once its new name is free; a cycle starts with one column parked under a temporary name."""
    if capabilities.simultaneous_renames:
        return [ColumnRenamed(ref, have, renamed(have, want)) for have, want in moves]
    waiting, used = list(moves), {capabilities.fold(n) for n in names}
    steps: list[StepChange] = []
    while waiting:
        free = next((m for m in waiting if capabilities.fold(m[1].name) not in used), None)
        if free is None:
            (have, want), *others = waiting
            parked = replace(have, name=spare_name(f"{prefix}parked", used))
            steps.append(ColumnRenamed(ref, have, parked))
            waiting, old, new = [*others, (parked, want)], have.name, parked.name
        else:
            have, want = free
            steps.append(ColumnRenamed(ref, have, renamed(have, want)))
            waiting.remove(free)
            old, new = have.name, want.name
        used = used - {capabilities.fold(old)} | {capabilities.fold(new)}
    return steps


def renamed(have: Column, want: Column) -> Column:
    return replace(have, name=want.name, id=want.id, alias=want.alias)


def is_parked(name: str) -> bool:
    """Return whether it is the temporary name of a cycle."""
    return _PARKED.search(name) is not None


def spare_name(stem: str, used: set[str]) -> str:
    number = 1
    while f"{stem}_{number}".casefold() in used:
        number += 1
    return f"{stem}_{number}"


def _alter(table: Table, have: Column, want: Column, capabilities: Capabilities, *, renamed: bool) -> list[StepChange]:
    """Return the edits of a table. A type that is wider than the target is kept, and NOT NULL is only ever relaxed."""
    ref, steps = table.ref, list[StepChange]()
    other_id = have.id is not None and have.id != want.id
    if not renamed and have.alias and (other_id or have.alias != want.alias):
        steps.append(RecordIdentity(ref, have, replace(have, id=want.id, alias=want.alias)))
    if renamed or steps:
        have = replace(have, id=want.id, alias=want.alias)
    if not want.retained and not widens(want.type, have.type):
        after = replace(have, type=want.type)
        if not capabilities.promotes_in_place(have.type, want.type):
            steps.append(RewriteColumn(ref, have, after))
        else:
            steps.append((ColumnWidened if widens(have.type, want.type) else ColumnRetyped)(ref, have, after))
        have = after
    if want.nullable and not have.nullable:
        steps.append(ColumnNullability(ref, have, replace(have, nullable=True)))
        have = replace(have, nullable=True)
    if capabilities.comments and (have.comment or None) != (want.comment or None):
        steps.append(ColumnComment(ref, have, replace(have, comment=want.comment)))
    return steps


def _comment(table: Table, target: Table, capabilities: Capabilities) -> list[StepChange]:
    if capabilities.comments and (table.comment or None) != (target.comment or None):
        return [TableComment(target.ref, table.comment, target.comment)]
    return []


def after_steps(
    table: Table, target: Table, pairing: ColumnPairing, capabilities: Capabilities, *, new_generation: bool = False
) -> Table:
    """Return the table that the steps lead to: kept columns in their order, then the added ones."""
    now = {have.name: (have, want) for have, want in pairing.same}
    stay = [c for c in table.columns if c not in pairing.dropped]
    columns = [_after(*now[c.name], capabilities, new_generation=new_generation) if c.name in now else c for c in stay]
    return replace(target, columns=(*columns, *pairing.added))


def _after(have: Column, want: Column, capabilities: Capabilities, *, new_generation: bool) -> Column:
    unchanged = want.retained or (widens(want.type, have.type) and not new_generation)
    comment = want.comment if capabilities.comments else have.comment
    nullable = have.nullable or want.nullable
    kind = have.type if unchanged else want.type
    if (kind, nullable, comment) == (want.type, want.nullable, want.comment):
        return want  # as nearly all columns of a thousand tables
    return replace(want, type=kind, nullable=nullable, comment=comment)
