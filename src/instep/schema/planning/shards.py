"""Tables that several connections share: what becomes of the whole table when one of them changes its own.

Each shard has the table as its connection accepted it. The whole table has a column for the shard and the columns of
all shards; one that a shard lacks is NULL in its rows. A column is dropped when the last shard lets go of it, and has a
type that holds the values of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from instep.errors import IllegalChange
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.promotion import promote
from instep.schema.catalog.types import DataType, String
from instep.schema.changes.describe import ColumnAdded, ColumnRemoved, ColumnRenamed, ColumnWidened, TableAdded
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.step import RewriteColumn, Step, StepChange, UndropColumn, step


@dataclass(frozen=True)
class Joined:
    """Effect of one shard's change on the shared table: its `steps`, the table `after` them, and the columns whose
    values `moves` take to others in this shard's rows."""

    steps: tuple[Step, ...]
    after: Table
    moves: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ShardPlanInputs:
    """The whole table and its shards before a change of the shard `mine` (None: it does not have the table yet)."""

    whole: Table | None
    others: Mapping[str, Table]
    mine: Table | None
    column: str
    """Holds a row's shard."""
    capabilities: Capabilities

    def holders(self, name: str) -> list[str]:
        """Return the other shards that have a column."""
        return sorted(shard for shard, table in self.others.items() if name in table.by_name)


def join(inputs: ShardPlanInputs, steps: Sequence[Step], after: Table) -> Joined:
    """Return the effect on the whole table of `steps` that lead a shard's table to `after`. Raises IllegalChange
    where the other shards would lose something by it, or the destination cannot do it."""
    if after.history:
        why = "a table of several connections has current rows only: take `history` out of its settings"
        raise IllegalChange(f"table {after.path} cannot keep its history: {why}")
    for shard, table in sorted(inputs.others.items()):
        if table.key != after.key:
            raise IllegalChange(
                f"table {after.path} has the key ({', '.join(after.key)}) here and ({', '.join(table.key)}) in shard "
                f"{shard}: shards of one table have one key (give it its own `name` in `tables:`, or a `key` "
                "where its source has none)"
            )
    if inputs.whole is None:
        shared = first_shard_table(after, inputs.column)
        return Joined((step(after.ref, TableAdded(shared)),), shared)
    work = _ShardedPlan(inputs, after, {c.name: c for c in inputs.whole.columns})
    for change in (s.change for s in steps):
        if isinstance(change, ColumnRenamed):
            work.rename(change.before.name, change.after.name)
    rewritten = {s.change.after.name: s.change for s in steps if isinstance(s.change, RewriteColumn)}
    undropped = {s.change.after.name: s.change for s in steps if isinstance(s.change, UndropColumn)}
    for column in after.columns:
        work.put(column, rewritten.get(column.name), undropped.get(column.name))
    work.drop()
    steps_ = tuple(step(after.ref, change) for change in work.changes)
    return Joined(steps_, replace(inputs.whole, columns=tuple(work.columns.values())), tuple(work.moves))


def first_shard_table(table: Table, column: str) -> Table:
    """Return the whole table as its first shard makes it."""
    shard_columns = (
        replace(c, nullable=True, key=c.key + 1 if c.key else 0, id=None, retained=False) for c in table.columns
    )
    shard = Column(column, String(), key=int(bool(table.key)))
    return replace(table, id=None, alias="", generation=0, columns=(shard, *shard_columns))


def seen(whole: Table, part: Table) -> Table:
    """Return a shard's table as it is: without what the whole table lacks, and with its type where that does not hold
    the recorded one's values."""
    shared = whole.by_name
    columns = (replace(c, type=_as_seen(c.type, shared[c.name].type)) for c in part.columns if c.name in shared)
    return replace(part, columns=tuple(columns))


def _as_seen(recorded: DataType, stored: DataType) -> DataType:
    return recorded if promote(recorded, stored) == stored else stored


def unknown_columns(whole: Table, parts: Iterable[Table], column: str) -> tuple[Column, ...]:
    """Return columns that are there and that no shard knows of."""
    known_names = {column, *(c.name for part in parts for c in part.columns)}
    return tuple(c for c in whole.columns if c.name not in known_names)


def lacking(parts: Mapping[str, Table], column: str) -> list[str]:
    """Return the shards that do not have a column, or that have retained it only."""
    return sorted(n for n, t in parts.items() if (c := t.by_name.get(column)) is None or c.retained)


@dataclass
class _ShardedPlan:
    """The whole table on its way."""

    inputs: ShardPlanInputs
    after: Table
    columns: dict[str, Column]
    changes: list[StepChange] = field(default_factory=list)
    moves: list[tuple[str, str]] = field(default_factory=list)
    carried: dict[str, DataType] = field(default_factory=dict)

    def rename(self, old: str, new: str) -> None:
        """Rename the column if no other shard has either name; otherwise move this shard's values to another column."""
        column = self.columns.get(old)
        if column is None:
            raise IllegalChange(f"column {old} of table {self.after.path} no longer exists: plan again")
        if new in self.columns or self.inputs.holders(old):
            self.moves.append((old, new))
            self.carried[new] = column.type
            return
        self.columns = {new if n == old else n: c for n, c in self.columns.items()}
        self.columns[new] = replace(column, name=new, alias=self.after.by_name[new].alias)
        self.changes.append(ColumnRenamed(self.after.ref, column, self.columns[new]))

    def put(self, target: Column, rewritten: RewriteColumn | None, undropped: UndropColumn | None) -> None:
        """Add a column that this shard needs, with a type that holds its values and those of all others."""
        shared = self.columns.get(target.name)
        if target.name in self.carried:
            target = replace(target, type=promote(target.type, self.carried[target.name]))
        if shared is None:
            new = replace(target, nullable=True, key=0, id=None, retained=False)
            self.columns[new.name] = new
            back = replace(undropped, after=new) if undropped else None
            self.changes.append(back or ColumnAdded(self.after.ref, new, len(self.columns) - 1))
            return
        others = self.inputs.holders(target.name)
        kind = promote(shared.type, target.type)
        if rewritten and not others:
            kind = target.type
        if kind == shared.type:
            return
        changed = replace(shared, type=kind, native="")
        self.columns[target.name] = changed
        if rewritten and (not others or kind == target.type):
            self.changes.append(RewriteColumn(self.after.ref, shared, changed))
        elif self.inputs.capabilities.promotes_in_place(shared.type, kind):
            self.changes.append(ColumnWidened(self.after.ref, shared, changed))
        else:
            raise IllegalChange(_clash(self.after, target, shared, others, kind))

    def drop(self) -> None:
        """Drop what no shard has."""
        mine = self.inputs.mine.columns if self.inputs.mine else ()
        target = self.after.by_name
        for column in (c for c in mine if c.name in self.columns and c.name not in target):
            if not self.inputs.holders(column.name):
                place = list(self.columns).index(column.name)
                gone = replace(self.columns.pop(column.name), key=0)
                self.changes.append(ColumnRemoved(self.after.ref, gone, place))


def _clash(after: Table, target: Column, shared: Column, others: Sequence[str], kind: DataType) -> str:
    where = f"shard{'s' * (len(others) > 1)} {', '.join(others)}" if others else "the shared table"
    return (
        f"column {target.name} of table {after.path} is {target.type} here and {shared.type} in {where}, and cannot "
        f"become {kind}, which holds both, in place: give it another name in `tables: ...: columns:`, or the same type "
        "at its source"
    )


@dataclass(frozen=True)
class ShardedColumn:
    """One column of a shared table: the `type` that holds all, and each shard's own; None where it is missing."""

    name: str
    type: DataType
    shards: Mapping[str, DataType | None]
    retained: frozenset[str] = frozenset()
    """Shards whose source has dropped it."""

    @property
    def lacking(self) -> tuple[str, ...]:
        return tuple(shard for shard, kind in self.shards.items() if kind is None or shard in self.retained)

    @property
    def differs(self) -> bool:
        return len(set(self.shards.values())) > 1 or bool(self.retained)


def compare(tables: Mapping[str, Table]) -> tuple[ShardedColumn, ...]:
    """Return the columns of the shards' accepted tables, by the name at the destination, in the order of their first
    shard."""
    named = {shard: {c.alias or c.name: c for c in table.columns} for shard, table in sorted(tables.items())}
    names = dict.fromkeys(name for columns in named.values() for name in columns)
    return tuple(_compared(name, {shard: columns.get(name) for shard, columns in named.items()}) for name in names)


def _compared(name: str, columns: Mapping[str, Column | None]) -> ShardedColumn:
    kinds = {shard: column.type if column else None for shard, column in columns.items()}
    retained = frozenset(shard for shard, column in columns.items() if column and column.retained)
    return ShardedColumn(name, reduce(promote, (kind for kind in kinds.values() if kind)), kinds, retained)
