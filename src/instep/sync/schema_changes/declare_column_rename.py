"""Turn a removal and an addition of a column into a rename that a person declares.

The accepted column takes the new source name and keeps its values. If the new column was accepted meanwhile, what was
loaded into it stays beside it as `<name>__v<n>`. The request is recorded before the destination is touched, so
that a mapping that was interrupted is finished by the next run.

A removal and an addition become one rename, of columns or of tables, whichever the two paths name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from instep.errors import Blocked, IllegalChange, InstepError
from instep.events import ChangeMapped
from instep.model import Review, Run
from instep.operations.decide.declare_rename import DeclareRenameRequest
from instep.operations.spec import Preview, Work
from instep.schema.catalog.catalog import Catalog, Column, Table, fingerprint
from instep.schema.catalog.promotion import fitting
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    ColumnWidened,
    TableRenamed,
    change_from_dict,
    key,
)
from instep.schema.changes.diff import pair_columns
from instep.schema.planning.accept import accept
from instep.schema.planning.naming import assign, destination_ref
from instep.schema.planning.plan import Plan, desired, plan
from instep.schema.planning.projection import pair_tables
from instep.schema.policy.policy import Decision
from instep.schema.policy.similarity import PROPOSAL
from instep.schema.selection.selection import column_is_on, hashed
from instep.sources.stream import Streams
from instep.store.catalogs.renames import DeclaredRename
from instep.suggest import did_you_mean
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import detect_if_changed
from instep.sync.detection.drift import require_as_left
from instep.sync.schema_changes import declare_table_rename as of_tables
from instep.sync.schema_changes.apply import apply_plan
from instep.sync.schema_changes.declare_table_rename import (
    DoesNotFit,
    give_up,
    record_rename,
    rename_of,
    resume_mapping,
)
from instep.sync.schema_changes.table_setting import recorded_tables
from instep.sync.table_mode import is_partial, mode_name


@dataclass(frozen=True)
class ColumnRenamePlan:
    """Plan of a declared column rename."""

    table: Table
    old: Column
    column: Column
    """Column as it is accepted from then on."""
    interim: Column | None
    """The accepted column that was loaded under the new name meanwhile, if any."""
    plan: Plan
    empty: int = 0
    """Number of rows with NULL in the old column."""
    stale: bool = False
    """Rows may have been written since the old column was read last, and kept what it had."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the text for people."""
        path, now = self.table.path, self.column.name
        lines = [f"column {path}.{self.old.name} is read from {now} and keeps its values"]
        lines += [f"{'.'.join(s.table)}: {s.text}" for s in self.plan.steps]
        if self.interim is not None:
            lines.append(f"what was loaded into {now} meanwhile stays beside it")
        if self.empty:
            lines.append(f"{self.empty:,} rows have NULL in {self.old.name}: {path} is read again by the next sync")
        if self.stale:
            lines.append(f"rows that changed since {self.old.name} left have its old values: {path} is read as a whole")
        return tuple(lines)


def prepare(context: SyncContext, old: str, new: str) -> ColumnRenamePlan:
    """Return the plan of declaring `old` renamed to `new` (table.column both); writes nothing. Raises InstepError if
    either does not exist, Blocked if the old column is still at the source, the new one belongs to another, or their
    values would not stay as they are (types, keys, hashing), or while operations on it wait."""
    detection = detect_if_changed(context, count=False)
    table, column = _column(detection.accepted, old, "accepted")
    source = pair_tables(detection.accepted.tables, detection.source).get(table.ref)
    if source is None:
        raise Blocked(f"table {table.path} is not at the source", hint="map columns of tables that are there")
    if source.ref != table.ref:
        raise Blocked(f"table {table.path} is called {source.path} now", hint="decide about its rename first")
    where, fresh = _column(Catalog.of([source]), new, "at the source")
    _check_pending(context, table, column)
    require_as_left(context, [table])
    interim = _check(context, table, column, where, fresh, detection.discovery.silent.get(source.ref, frozenset()))
    rename_plan, after = _plan(context, detection.accepted, table, column, fresh, interim)
    empty, stale = _empty(context, table, column), _is_stale(context, table, column)
    return ColumnRenamePlan(table, column, after, interim, rename_plan, empty, stale)


def carry_out(context: SyncContext, mapped: ColumnRenamePlan) -> int:
    """Execute it as one run and return the accepted version."""
    with claimed(context, "apply") as run:
        _check_pending(context, mapped.table, mapped.old)
        locked = replace(context, run=run)
        declared = locked.store.mappings.request(
            context.name, mapped.table.ref, mapped.old.name, mapped.column.name, context.who
        )
        return _finish(locked, run, declared, mapped)


def resume_mappings(context: SyncContext, run: Run) -> list[str]:
    """Finish interrupted declarations of renames. One that no longer fits is given up: its changes wait as
    before, and the returned line says why."""
    left = []
    for declared in context.store.mappings.waiting(context.name):
        try:
            if declared.old:
                _resume(context, run, declared)
            else:
                resume_mapping(context, run, declared)
        except DoesNotFit as error:
            left.append(error.message)
    return left


def _resume(context: SyncContext, run: Run, declared: DeclaredRename) -> None:
    path = ".".join(filter(None, declared.table))
    table = context.store.accepted.catalog(context.name).get(declared.table)
    if table is not None and declared.old not in table.by_name and declared.new in table.by_name:
        _note(context, declared, context.store.accepted.latest(context.name).version)  # type: ignore[union-attr]
        return
    try:
        mapped = prepare(context, f"{path}.{declared.old}", f"{path}.{declared.new}")
    except InstepError as error:
        give_up(context, declared, (declared.table, declared.old), (declared.table, declared.new), error)
    _finish(context, run, declared, mapped)


def _finish(context: SyncContext, run: Run, declared: DeclaredRename, mapped: ColumnRenamePlan) -> int:
    rename = rename_of(mapped.plan)
    review = record_rename(context, rename, declared.who)
    if isinstance(context.source, Streams):
        context.source.forget(mapped.table.ref, mapped.old.name)
    version = apply_plan(context, run, mapped.plan, {key(rename): review})
    _note(context, declared, version, mapped.empty, mapped.stale, review.id)
    return version


def _note(
    context: SyncContext, declared: DeclaredRename, version: int, empty: int = 1, stale: bool = True, change: str = ""
) -> None:
    """Settle both changes. Where it is not known whether rows lack values, they are read again."""
    path = ".".join(filter(None, declared.table))
    with context.transaction():
        existing = list(context.store.reviews.existing(context.name).values())
        sides = (("column.removed", declared.old), ("column.added", declared.new))
        gone = [r.id for r in existing if r.table == declared.table and (r.kind, r.column) in sides]
        context.store.reviews.obsolete(gone)
        why = f"rows were loaded before {declared.old} was mapped to {declared.new}"
        if empty:
            context.store.backfills.request(context.name, declared.table, column=declared.new, why=why)
        if stale:
            context.store.backfills.request(context.name, declared.table, why=why)
        context.store.events.add(
            ChangeMapped(context.name, path, declared.old, declared.new, declared.who, version, change)
        )
        context.store.mappings.end(declared.number)


def _column(catalog: Catalog, path: str, where: str) -> tuple[Table, Column]:
    """Find a column by `schema.table.column`; names may hold dots, so that whole paths are compared."""
    columns = {f"{t.path}.{c.name}": (t, c) for t in catalog.tables if not t.retained for c in t.columns}
    if path in columns:
        return columns[path]
    hint = did_you_mean(path, columns, "write schema.table.column, as `instep plan` shows it")
    raise InstepError(f"there is no column {path} {where}", hint=hint)


def _check_pending(context: SyncContext, table: Table, old: Column) -> None:
    """Raise Blocked while operations wait that were sent under the old name: nothing would read their values any
    more."""
    if isinstance(context.source, Streams) and context.source.waits(table.ref):
        raise Blocked(
            f"operations on {table.path} wait that may have values of {old.name}",
            hint="resume the table first, so that a sync carries them out",
        )


def _check(
    context: SyncContext, table: Table, old: Column, source: Table, new: Column, silent: frozenset[str]
) -> Column | None:
    """Return the accepted column that reads `new` already, if there is one; Blocked if they cannot be one column.
    `silent` columns of the source no longer come."""
    name, now = f"{table.path}.{old.name}", f"{source.path}.{new.name}"
    reading = {b.name: a for a, b in pair_columns(table, source).same}
    if any(a.name == old.name for a in reading.values()) and not old.retained and old.name not in silent:
        streams = isinstance(context.source, Streams)
        hint = "schema() declares it, or the last rows had it" if streams else "only what it has dropped can be mapped"
        raise Blocked(f"{name} is still at the source", hint=hint)
    interim = reading.get(new.name)
    if interim is not None and interim.name != new.name:
        raise Blocked(f"{now} is read into {table.path}.{interim.name}", hint="decide about its rename first")
    if interim is not None and (interim.key or interim.name == table.cursor):
        use = "key" if interim.key else "cursor"
        raise Blocked(f"{now} is in the {use} of {table.path}", hint="see `instep table set-key` and `set-cursor`")
    if fitting(old.type, new.type) is None:
        raise Blocked(
            f"{name} is {old.type} and {now} is {new.type}: the types are not compatible",
            hint="keep both columns, or change the type at the source first",
        )
    if not column_is_on(context.selection, source, new)[0]:
        raise Blocked(f"{now} is switched off in the project file", hint="switch it on first")
    if hashed(context.selection, table.ref, old.name) != hashed(context.selection, source.ref, new.name):
        raise Blocked(f"only one of {name} and {now} is hashed", hint="name both under `hash:` of the connection")
    return interim


def _plan(
    context: SyncContext, accepted: Catalog, table: Table, old: Column, new: Column, interim: Column | None
) -> tuple[Plan, Column]:
    changes = list(_changes(table, old, new, interim))
    decisions = [Decision(c, "apply", "mapped", f"mapped by {context.who}") for c in changes]
    # the table as if nothing but this had happened at the source: other changes of it wait as before
    columns = [c for c in table.live if c.name != old.name and c is not interim]
    adopted = accept(decisions, accepted, Catalog.of([replace(table, columns=(*columns, replace(new, key=old.key)))]))
    after = assign(adopted.put(_without_twins(adopted.by_ref[table.ref], new)), context.naming)
    ref, now = destination_ref(table, context.naming), after.by_ref[table.ref]
    existing = context.destination.schema.inspect([ref])
    target = desired(Catalog.of([now]), context.naming)
    if _done(existing, ref, old):
        rename_plan = Plan("", fingerprint(existing), tuple(decisions), (), after, existing)
    else:
        capabilities, prefix = context.destination.capabilities, context.naming.prefix
        rename_plan = plan(
            decisions, Catalog.of([table]), Catalog.of([now]), existing, target, capabilities, prefix=prefix
        )
    if rename_plan.refused:
        raise IllegalChange(f"{table.path}: {next(iter(rename_plan.refused.values()))}", hint="nothing was changed")
    rename_plan = replace(rename_plan, after=after, target=recorded_tables(context, rename_plan.target))
    return rename_plan, now.by_name[new.name]


def _changes(table: Table, old: Column, new: Column, interim: Column | None) -> Sequence[Change]:
    """Return the changes from the accepted table to the renamed one: the old column is undropped, the one loaded
    meanwhile is retained, then the rename."""
    ref, live = table.ref, replace(old, retained=False)
    changes: list[Change] = [ColumnAdded(ref, live, table.columns.index(old))] if old.retained else []
    if interim is not None:
        changes.append(ColumnRemoved(ref, interim, table.columns.index(interim)))
    changes.append(ColumnRenamed(ref, live, replace(live, name=new.name)))
    kind = fitting(old.type, new.type)
    if kind is not None and kind != old.type:
        before = replace(live, name=new.name)
        changes.append(ColumnWidened(ref, before, replace(before, type=kind, native=new.native, note=new.note)))
    return changes


def _without_twins(table: Table, new: Column) -> Table:
    """Return the id of the new column is that of the mapped one alone."""
    columns = (replace(c, id=None) if c.retained and c.id == new.id else c for c in table.columns)
    return replace(table, columns=tuple(columns))


def _done(existing: Catalog, ref: Ref, old: Column) -> bool:
    """Return whether an interrupted declaration has reached the destination: nothing there comes from the old
    name."""
    table = existing.get(ref)
    return table is not None and all(c.alias != old.name for c in table.columns)


def _empty(context: SyncContext, table: Table, old: Column) -> int:
    """Return rows with NULL in the old column at the destination."""
    ref, name = destination_ref(table, context.naming), old.alias or old.name
    if context.destination.schema.state(ref) is None or name not in _names(context, ref):
        return 0
    return sum(batch.column(0).null_count for batch in context.destination.write.read(ref, [name]))


def _is_stale(context: SyncContext, table: Table, old: Column) -> bool:
    """Return whether a sync that reads some rows only may have written a row without reading the column's value."""
    merges = mode_name(table, context.settings(table)) != "append" and is_partial(table, context.settings(table))
    loaded = context.store.loaded.of(context.name, [table.ref]).get(table.ref)
    return merges and loaded is not None and not any(c.name == old.name and c.read for c in loaded)


def _names(context: SyncContext, ref: Ref) -> frozenset[str]:
    table = context.destination.schema.inspect([ref]).get(ref)
    return frozenset(c.name for c in table.columns) if table else frozenset()


def pair_of(review: Review) -> tuple[str, str]:
    """Return the two paths, of columns or tables, that a proposal is about; InstepError for another change."""
    change = change_from_dict(review.change)
    if review.rule == PROPOSAL and isinstance(change, TableRenamed):
        return change.before.path, change.after.path
    if review.rule != PROPOSAL or not isinstance(change, ColumnRenamed):
        raise InstepError(
            f"change {review.id} proposes no rename: {review.summary}",
            hint="name what was renamed: `instep changes map OLD NEW`",
        )
    path = ".".join(filter(None, change.table))
    return f"{path}.{change.before.name}", f"{path}.{change.after.name}"


@dataclass(frozen=True)
class Prepared:
    """A mapping that nobody has carried out yet; `lines` say what it does."""

    old: str
    new: str
    whole: bool
    """True for a rename of tables."""
    mapped: Any = field(repr=False)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self.mapped.lines)

    def document(self, connection: str) -> dict[str, Any]:
        """Return the record as JSON has it; `backfill`: rows are read again."""
        empty, steps = self.mapped.empty, [s.text for s in self.mapped.plan.steps]
        document = {"connection": connection, "old": self.old, "new": self.new, "steps": steps, "empty": empty}
        return {**document, "backfill": self.whole or bool(empty) or self.mapped.stale}


def prepare_rename(context: SyncContext, old: str, new: str) -> Prepared:
    """Return two paths of tables, or of columns; writes nothing. Errors are those of the two modules."""
    whole = old in {t.path for t in context.store.accepted.catalog(context.name).tables}
    prepared: Any = of_tables.prepare(context, old, new) if whole else prepare(context, old, new)
    return Prepared(old, new, whole, prepared)


def carry_out_rename(context: SyncContext, prepared: Prepared) -> int:
    """Answer the accepted version."""
    return of_tables.carry_out(context, prepared.mapped) if prepared.whole else carry_out(context, prepared.mapped)


class DeclareRename(Work):
    """The work of the operation `declare_rename`."""

    def prepare(self, context: SyncContext, request: DeclareRenameRequest) -> Preview:
        """Find out what the rename does; errors are those of the two modules."""
        prepared = prepare_rename(context, request.old, request.new)
        return Preview(context.name, request, prepared.document(context.name), prepared.lines, prepared=prepared)

    def execute(self, context: SyncContext, preview: Preview, allow: Sequence[str]) -> Mapping[str, Any]:
        """Declare it; return the accepted version."""
        return {"version": carry_out_rename(context, preview.prepared)}
