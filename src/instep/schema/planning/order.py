"""The steps that take one destination table from what it is to what is wanted, in an order that works.

Drops, then renames (a cycle parked under a temporary name), then alterations, then additions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from instep.errors import IllegalChange
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.promotion import widens
from instep.schema.changes.describe import (
    ColumnAdded,
    ColumnComment,
    ColumnNarrowed,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    ColumnWidened,
    KeyChanged,
    KeyRemoved,
    TableComment,
)
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.step import RecordIdentity, RewriteColumn, StepChange

_PARKED = re.compile(r"parked_\d+$")


@dataclass(frozen=True)
class Pairing:
    """Pairing of the columns of a destination table with those of the desired one. `dropped` were accepted and are
    not any more; `drifted` are not known to us."""

    same: tuple[tuple[Column, Column], ...]
    added: tuple[Column, ...]
    dropped: tuple[Column, ...]
    drifted: tuple[Column, ...]


@dataclass(frozen=True)
class ColumnTrail:
    """Renames of the columns of an accepted table: `moved` is old to new source name; one that is not in it was
    dropped. `before` is None for a table that was not accepted before."""

    before: Table | None = None
    moved: Mapping[str, str] = field(default_factory=dict)

    def is_as_left(self, found: Table, column: Column) -> bool:
        """Return whether the destination's column bears both id and name of an accepted one: no step has touched it."""
        if self.before is None or column.id is None or found.id != self.before.id:
            return False
        known = self.before.by_name.get(column.alias)
        return known is not None and known.id == column.id

    def dropped(self, column: Column) -> bool:
        known = self.before is not None and column.alias in self.before.by_name
        return known and column.alias not in self.moved


def pair(found: Table, wanted: Table, trail: ColumnTrail, *, prefix: str, same_table: bool) -> Pairing:
    """Return columns that are as they were left follow the trail. Others pair by recorded source id (within one table
    id), then by the trail of the recorded source name, then by name. Columns that bear the system `prefix` are ours
    whatever they are."""
    gone = [c for c in found.columns if trail.dropped(c) and trail.is_as_left(found, c)]
    left = [c for c in found.columns if c not in gone]
    pairs: dict[str, Column] = {}

    def match(tell: Callable[[Column, Column], bool]) -> None:
        for want in wanted.columns:
            have = next((c for c in left if want.name not in pairs and tell(c, want)), None)
            if have is not None:
                pairs[want.name] = have
                left.remove(have)

    def follows(have: Column, want: Column) -> bool:
        return bool(have.alias) and bool(want.alias) and trail.moved.get(have.alias) == want.alias

    match(lambda have, want: trail.is_as_left(found, have) and follows(have, want))
    if same_table:
        match(lambda have, want: have.id is not None and have.id == want.id)
    if _done(found, wanted, trail.moved):
        match(lambda have, want: have.alias == want.alias and have.name == want.name)
    match(follows)
    match(lambda have, want: have.name == want.name)
    gone += [c for c in left if trail.dropped(c)]
    return Pairing(
        same=tuple((pairs[w.name], w) for w in wanted.columns if w.name in pairs),
        added=tuple(w for w in wanted.columns if w.name not in pairs and not w.retained),
        dropped=tuple(gone),
        drifted=tuple(c for c in left if c not in gone and not c.name.startswith(prefix)),
    )


def _done(found: Table, wanted: Table, moved: Mapping[str, str]) -> bool:
    """An interrupted plan has left the table as wanted already: every name is there, new ones among them."""
    there = {(c.alias, c.name) for c in found.columns}
    fresh = {new for old, new in moved.items() if new != old} - moved.keys()
    return bool(fresh) and all((c.alias, c.name) in there for c in wanted.columns)


def column_steps(
    found: Table, wanted: Table, pairing: Pairing, able: Capabilities, prefix: str, *, anew: bool = False
) -> list[StepChange]:
    """Return the edits of one table's columns; raises IllegalChange for what the format cannot do. `anew`: all rows
    load again, so that no old value needs a wider type."""
    ref = wanted.ref
    _check_names([*(c for _, c in pairing.same), *pairing.added], pairing.drifted, wanted, able)
    key = _remaining_key(found, pairing)
    steps: list[StepChange] = [KeyRemoved(ref, found.key)] if able.keys and found.key and not key else []
    steps += [ColumnRemoved(ref, replace(c, key=0), found.columns.index(c)) for c in pairing.dropped]
    if pairing.dropped and not able.drops:
        raise IllegalChange(f"{able.name} cannot drop a column of {wanted.path}", hint="use removed: retain")
    moves = [(have, want) for have, want in pairing.same if have.name != want.name]
    if moves and not able.renames:
        raise IllegalChange(
            f"{able.name} cannot rename {moves[0][0].name} of {wanted.path}", hint="reject the rename, or rebuild"
        )
    steps += renames(ref, moves, able, prefix, {c.name for c in found.columns if c not in pairing.dropped})
    for have, want in pairing.same:
        stored = replace(have, name=want.name)
        if anew and _narrows(have, want):
            stored = replace(stored, type=want.type)
            steps.append(ColumnNarrowed(ref, replace(stored, type=have.type), stored))
        steps += _alter(wanted, stored, want, able, renamed=have.name != want.name)
    end = len(found.columns) - len(pairing.dropped)
    steps += [ColumnAdded(ref, replace(column, key=0), end + i) for i, column in enumerate(pairing.added)]
    if able.keys and key != wanted.key:
        steps.append(KeyChanged(ref, key, wanted.key) if wanted.key else KeyRemoved(ref, key))
    return steps + _comment(found, wanted, able)


def _remaining_key(found: Table, pairing: Pairing) -> tuple[str, ...]:
    """Return the key under the new names; empty if one of its columns goes."""
    now = {have.name: want.name for have, want in pairing.same} | {c.name: c.name for c in pairing.drifted}
    return tuple(now[n] for n in found.key) if all(n in now for n in found.key) else ()


def _check_names(columns: Sequence[Column], foreign: Sequence[Column], wanted: Table, able: Capabilities) -> None:
    seen = {able.fold(c.name): c.name for c in foreign}
    for column in columns:
        if not column.name:
            raise IllegalChange(f"a column of {wanted.path} has no destination name", hint="assign names first")
        if len(column.name.encode()) > able.max_name_bytes:
            raise IllegalChange(
                f"the name {column.name!r} in {wanted.path} has more than {able.max_name_bytes} bytes ({able.name})",
                hint="give the column another destination name",
            )
        if (twin := seen.get(able.fold(column.name))) is not None:
            raise IllegalChange(
                f"{column.name!r} in {wanted.path} is taken by {twin!r}", hint="rename or drop the other column"
            )
        seen[able.fold(column.name)] = column.name


def renames(
    ref: tuple[str, str], moves: Sequence[tuple[Column, Column]], able: Capabilities, prefix: str, names: set[str]
) -> list[StepChange]:
    """Return each rename once its new name is free; a cycle starts with one column parked under a temporary name."""
    if able.simultaneous_renames:
        return [ColumnRenamed(ref, have, renamed(have, want)) for have, want in moves]
    waiting, taken = list(moves), {able.fold(n) for n in names}
    steps: list[StepChange] = []
    while waiting:
        free = next((m for m in waiting if able.fold(m[1].name) not in taken), None)
        if free is None:
            (have, want), *rest = waiting
            parked = replace(have, name=spare(f"{prefix}parked", taken))
            steps.append(ColumnRenamed(ref, have, parked))
            waiting, old, new = [*rest, (parked, want)], have.name, parked.name
        else:
            have, want = free
            steps.append(ColumnRenamed(ref, have, renamed(have, want)))
            waiting.remove(free)
            old, new = have.name, want.name
        taken = taken - {able.fold(old)} | {able.fold(new)}
    return steps


def renamed(have: Column, want: Column) -> Column:
    return replace(have, name=want.name, id=want.id, alias=want.alias)


def is_parked(name: str) -> bool:
    """Return whether it is the temporary name of a cycle."""
    return _PARKED.search(name) is not None


def spare(stem: str, taken: set[str]) -> str:
    number = 1
    while f"{stem}_{number}".casefold() in taken:
        number += 1
    return f"{stem}_{number}"


def _alter(table: Table, have: Column, want: Column, able: Capabilities, *, renamed: bool) -> list[StepChange]:
    """A type that is wider than wanted is kept, a NOT NULL is only ever relaxed."""
    ref, steps = table.ref, list[StepChange]()
    known = have.id is not None and have.id != want.id
    if not renamed and have.alias and (known or have.alias != want.alias):
        steps.append(RecordIdentity(ref, have, replace(have, id=want.id, alias=want.alias)))
    if renamed or steps:
        have = replace(have, id=want.id, alias=want.alias)
    if not want.retained and not widens(want.type, have.type):
        after = replace(have, type=want.type)
        if not able.promotes_in_place(have.type, want.type):
            steps.append(RewriteColumn(ref, have, after))
        else:
            steps.append((ColumnWidened if widens(have.type, want.type) else ColumnRetyped)(ref, have, after))
        have = after
    if want.nullable and not have.nullable:
        steps.append(ColumnNullability(ref, have, replace(have, nullable=True)))
        have = replace(have, nullable=True)
    if able.comments and (have.comment or None) != (want.comment or None):
        steps.append(ColumnComment(ref, have, replace(have, comment=want.comment)))
    return steps


def _narrows(have: Column, want: Column) -> bool:
    return not want.retained and have.type != want.type and widens(want.type, have.type)


def _comment(found: Table, wanted: Table, able: Capabilities) -> list[StepChange]:
    if able.comments and (found.comment or None) != (wanted.comment or None):
        return [TableComment(wanted.ref, found.comment, wanted.comment)]
    return []


def after_steps(found: Table, wanted: Table, pairing: Pairing, able: Capabilities, *, anew: bool = False) -> Table:
    """Return the table that the steps lead to: kept columns in their order, then the added ones."""
    now = {have.name: (have, want) for have, want in pairing.same}
    stay = [c for c in found.columns if c not in pairing.dropped]
    columns = [_after(*now[c.name], able, anew=anew) if c.name in now else c for c in stay]
    return replace(wanted, columns=(*columns, *pairing.added))


def _after(have: Column, want: Column, able: Capabilities, *, anew: bool) -> Column:
    unchanged = want.retained or (widens(want.type, have.type) and not anew)
    comment = want.comment if able.comments else have.comment
    nullable = have.nullable or want.nullable
    kind = have.type if unchanged else want.type
    return replace(want, type=kind, nullable=nullable, comment=comment)
