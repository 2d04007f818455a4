"""The schema of one shard of shared tables.

What changes the schema of a shard is turned into what that means for the whole table, and recorded in one commit
with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from instep.destinations.base import HERE, Commit, FileWorkers, LoadState, PartChange, Ref, TableSize
from instep.destinations.facets import Destination, LayoutsFacet, SchemaFacet, SharingFacet
from instep.destinations.shared import TRIES, SharedTable, not_shared_error, wait
from instep.errors import Conflict, DestinationError, IllegalChange
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import (
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    TableAdded,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)
from instep.schema.planning.guard import Guards
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.shards import (
    Joined,
    ShardPlanInputs,
    first_shard_table,
    join,
    lacking,
    seen,
    unknown_columns,
)
from instep.schema.planning.step import SetLayout, Step, step
from instep.suggest import first_of

Planned = tuple[Sequence[Step], Table | None, Commit]


@dataclass(frozen=True)
class ShardView:
    """One shard of shared tables."""

    name: str
    column: str
    base: Destination
    sharing: SharingFacet
    own: Destination
    """The destination as it loads and reads it. Its rows have its `name` in `column`."""
    capabilities: Capabilities


@dataclass(frozen=True)
class ShardSchema:
    """See `destinations.facets.SchemaFacet`, and `ShardFacet` for what the others stand in the way of."""

    shard: ShardView

    @property
    def name(self) -> str:
        return self.shard.name

    @property
    def layouts(self) -> LayoutsFacet | None:
        """Return the layouts facet of shared tables, if one of their shards may set layouts."""
        return self.shard.own.schema.layouts if self.shard.sharing.layouts else None

    def tables(self) -> list[Ref]:
        """Return the tables that the shard has."""
        return [ref for ref in self._all.tables() if (w := self._whole(ref)) and self.name in w.parts]

    @property
    def _all(self) -> SchemaFacet:
        return self.shard.base.schema

    def _whole(self, ref: Ref) -> SharedTable | None:
        return self.shard.sharing.shared_table(ref)

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        """Return the shard's tables, with columns that no shard knows of."""
        return Catalog.of(table for ref in refs if (table := self._seen(ref)) is not None)

    def _seen(self, ref: Ref) -> Table | None:
        """Return the shard's table, with columns that no shard knows of; DestinationError for a table that is not
        shared."""
        whole = self._whole(ref) or self._made_meanwhile(ref)
        if whole is None:
            return None
        if not whole.parts:
            raise not_shared_error(ref)
        part = whole.parts.get(self.name)
        if part is None:
            return None
        table = seen(whole.table, part.table)
        odd = unknown_columns(whole.table, (p.table for p in whole.parts.values()), self.shard.column)
        return replace(table, columns=(*table.columns, *odd))

    def _made_meanwhile(self, ref: Ref) -> SharedTable | None:
        """Return the table that another shard has made since it was looked for; DestinationError for one that is not
        ours."""
        try:
            self._all.inspect([ref])
        except DestinationError:
            if whole := self._whole(ref):
                return whole
            raise
        return None

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        shared = {ref: self._whole(ref) for ref in refs}
        mine = {ref for ref, whole in shared.items() if whole and whole.parts}
        lone = {ref: str(not_shared_error(ref)) for ref, whole in shared.items() if whole and not whole.parts}
        odd = self._all.foreign([ref for ref in shared if ref not in mine])
        return {ref: why for ref, why in odd.items() if not ((w := self._whole(ref)) and w.parts)} | lone

    def guards(self, refs: Iterable[Ref]) -> Mapping[Ref, Guards]:
        """Return the columns that something else stands on; that of the shards is nobody's to change."""
        guards = self._all.guards(refs)
        return {
            ref: {name: own for name, own in one.items() if name != self.shard.column} for ref, one in guards.items()
        }

    def state(self, ref: Ref, *, version: bool = False) -> LoadState | None:
        """Return the record of the shard's last load."""
        return self.shard.own.schema.state(ref, version=version)

    def sizes(self, refs: Iterable[Ref]) -> Mapping[Ref, TableSize]:
        """Return the sizes of the shard's rows."""
        return self.shard.own.schema.sizes(refs)

    def render_ddl(self, steps: Sequence[Step]) -> list[str]:
        """Return nothing: what becomes of the table is up to the other shards as well."""
        return []

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        """Bring the whole table back."""
        self._all.undrop_table(ref, first_shard_table(table, self.shard.column), replace(commit, fence=0))

    def reason_not_allowed(self, ref: Ref, steps: Sequence[Step], after: Table | None) -> str:
        """Return why these steps cannot be taken while others share the table; "" if they can."""
        try:
            self._plan(ref, steps, after, Commit("", 0))
        except IllegalChange as error:
            return str(error)
        return ""

    def as_shared(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps, those that add a table with the text of what becomes of the shared table."""
        return [self._joining(s, s.change.after) if isinstance(s.change, TableAdded) else s for s in steps]

    def _joining(self, added: Step, after: Table) -> Step:
        """Return the step that adds the table to the shard, as one that joins the table of other shards."""
        whole, others = self._others(added.table)
        if not others:
            return added
        joined = self._join(whole, others, None, [added], replace(after, schema=added.table[0], name=added.table[1]))
        becomes = ", ".join(s.text for s in joined.steps) or "its columns stay as they are"
        text = f"shard {self.name} joins the table of {_shards(sorted(others))}: {becomes}"
        return replace(added, text=text)

    def _others(self, ref: Ref) -> tuple[SharedTable | None, dict[str, Table]]:
        """Return the whole table, if there is one, and the tables of its other shards."""
        whole = self._whole(ref)
        return whole, {n: p.table for n, p in whole.parts.items() if n != self.name} if whole else {}

    def _join(
        self,
        whole: SharedTable | None,
        others: Mapping[str, Table],
        mine: Table | None,
        steps: Sequence[Step],
        after: Table,
    ) -> Joined:
        inputs = ShardPlanInputs(
            whole.table if whole else None, others, mine, self.shard.column, self.shard.capabilities
        )
        return join(inputs, steps, after)

    def remarks(self, steps: Sequence[Step]) -> list[str]:
        """Return which of the columns in these steps the other shards lack."""
        out: dict[str, None] = {}
        for ref, own in groupby(steps, lambda s: s.table):
            others = self._others(ref)[1]
            out |= dict.fromkeys(text for s in own for text in _remarks(s, others))
        return list(out)

    def execute(
        self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, workers: FileWorkers = HERE
    ) -> None:
        """Execute the steps; they are planned again as long as other shards change the table meanwhile."""
        for left in reversed(range(TRIES)):
            planned = self._plan(ref, steps, after, commit)
            try:
                if planned is not None:
                    self._all.execute(ref, *planned, workers)
            except (Conflict, DestinationError):
                if not left or not self._is_reshaped(ref, planned):
                    raise
                wait(TRIES - left)
            else:
                return

    def _is_reshaped(self, ref: Ref, planned: Planned | None) -> bool:
        """Return whether another shard has changed the table's shape since something was planned."""
        part = planned[2].part if planned else None
        whole = self._whole(ref)
        return part is not None and part.seen != (whole.shape if whole else 0)

    def _plan(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> Planned | None:
        """Return the steps of the whole table; None if all of them are done already."""
        whole, others = self._others(ref)
        mine = whole.parts[self.name].table if whole and self.name in whole.parts else None
        plain = replace(commit, fence=0)
        change = steps[0].change
        if isinstance(change, TableRemoved):
            _alone_in(ref, others, "dropped")
            return ([step(ref, TableRemoved(whole.table))], None, plain) if whole else None
        if isinstance(change, TableRenamed):
            _alone_in(ref, others, f"renamed to {change.after.path}")
            return self._renamed(whole, change, steps, plain, commit)
        assert after is not None, "only a drop leads to no table"
        joined = self._join(whole, others, mine, steps, after)
        replaces_rows, laid = (
            isinstance(change, TableReplaced),
            tuple(s for s in steps if isinstance(s.change, SetLayout)),
        )
        if mine == after and not joined.steps and not replaces_rows and not laid:
            return None
        shape = whole.shape if whole else 0
        part = PartChange(self.name, self.shard.column, commit.fence, after, shape, replaces_rows, joined.moves)
        return (*joined.steps, *laid) or steps, joined.after, replace(plain, part=part)

    def _renamed(
        self, whole: SharedTable | None, change: TableRenamed, steps: Sequence[Step], plain: Commit, commit: Commit
    ) -> Planned | None:
        if whole is None:
            return None
        to = change.after
        after = replace(whole.table, schema=to.schema, name=to.name)
        mine = whole.parts[self.name].table
        mine = replace(mine, schema=to.schema, name=to.name, alias=to.alias, id=to.id)
        part = PartChange(self.name, self.shard.column, commit.fence, mine, whole.shape)
        return [step(steps[0].table, TableRenamed(whole.table, after))], after, replace(plain, part=part)


def _alone_in(ref: Ref, others: Mapping[str, Table], what: str) -> None:
    if others:
        raise IllegalChange(
            f"table {'.'.join(ref)} cannot be {what}: it has rows of {_shards(sorted(others))}; "
            f"`tables: ...: name: {ref[1]}` keeps its name"
        )


def _shards(names: Sequence[str]) -> str:
    return f"shard{'s' * (len(names) > 1)} {first_of(names, 5)}"


def _lacking(path: str, column: str, others: Mapping[str, Table]) -> list[str]:
    lack = lacking(others, column)
    return [f"{path}.{column}: NULL in the rows of {_shards(lack)}"] if lack else []


def _remarks(step: Step, others: Mapping[str, Table]) -> list[str]:
    if not others:
        return []
    path, change = ".".join(step.table), step.change
    match change:
        case TableAdded(after=table):
            return [text for column in table.columns for text in _lacking(path, column.name, others)]
        case ColumnAdded(after=column):
            return _lacking(path, column.name, others)
        case ColumnRemoved(before=column):
            have = sorted(set(others) - set(lacking(others, column.name)))
            return [f"{path}.{column.name}: stays for the rows of {_shards(have)}"] if have else []
        case ColumnRenamed(before=old, after=new):
            have = sorted(n for n, t in others.items() if old.name in t.by_name)
            where = f"in {_shards(have)} it is still called {old.name}"
            text = f"{path}.{new.name}: {where}: only rows of this shard move to {new.name}"
            return [text] if have else []
    return []
