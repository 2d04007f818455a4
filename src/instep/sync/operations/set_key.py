"""Set another key of a table on request: the rows stay, the table is read anew, or it is emptied.

The table's own schema comes first, then the accepted one, then the choice. Interrupted before the choice is kept, the
key counts as changed and the table stays paused: nothing is ever read by two keys, and the same command goes on.

What a changed key does to the rows: counted on both sides, with the commands that settle it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from instep.crash import crashpoint
from instep.destinations.base import Commit
from instep.errors import Blocked, Conflict, IllegalChange, InstepError, StalePlan, argument
from instep.events import KeyChosen
from instep.model import Review, Run
from instep.operations.repair.set_key import SetKeyRequest
from instep.operations.spec import Preview, Work
from instep.schema.catalog.catalog import Catalog, Table, fingerprint
from instep.schema.catalog.globs import fits_glob
from instep.schema.changes.describe import KeyChanged, KeyRemoved, TableReplaced, change_from_dict
from instep.schema.planning.naming import assign, destination_ref
from instep.schema.planning.plan import Plan, desired, plan
from instep.schema.planning.step import step
from instep.schema.policy.policy import Decision
from instep.sources.stream import Streams
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.chosen_keys import with_key
from instep.sync.loading.engine import Engine, LocalEngine
from instep.sync.quarantine.new_key import give_new_key
from instep.sync.schema_changes.apply import apply_plan
from instep.sync.schema_changes.key_counts import KeyCount, RowCounts, count_destination, count_key, count_source
from instep.sync.schema_changes.table_setting import SettingTable, close_changes, find_table, recorded_tables
from instep.sync.two_people import in_text, listed, two_people

Way = Literal["rekey", "rebuild", "clear"]
WAYS: tuple[Way, ...] = ("rekey", "rebuild", "clear")
MEANS = {
    "rekey": "the rows stay and are found by the new key from now on",
    "rebuild": "reloads the table at the next sync; the old rows are kept as a copy",
    "clear": "empties the table now and reloads it at the next sync, without a copy",
}
BYTES = 230
"""Of a copy's name, which is longer than its table's."""


@dataclass(frozen=True)
class Rekeying:
    """Effect of giving `table` (as accepted) the key."""

    table: Table
    key: tuple[str, ...]
    own: bool
    """True if it is the key of the source or of the project file, so that no choice is recorded."""
    way: Way
    counts: KeyCount
    plan: Plan
    settles: tuple[Review, ...] = ()
    """The changes that are answered by it."""
    rows: int = 0
    retyped: tuple[str, ...] = ()
    """The columns of the key that have another type at the source."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the text for people."""
        steps = (f"{'.'.join(s.table)}: {s.text}" for s in self.plan.steps)
        return (
            *(f"key ({', '.join(self.key)}) {line}" for line in self.counts.lines),
            MEANS[self.way],
            *steps,
            *(f"settles {r.id}: {r.summary}" for r in self.settles),
        )

    @property
    def blocker(self) -> str:
        """Return why this cannot be done, with the numbers; "" if it can."""
        source, destination = self.counts.source, self.counts.destination
        if self.table.history and self.way != "rebuild" and self.rows:
            return f"{self.table.path} keeps its history, whose versions have the key ({', '.join(self.table.key)})"
        names = f"the key ({', '.join(self.key)}) of {self.table.path}"
        if self.way == "rekey" and self.retyped and self.rows:
            return f"{names} has another type at the source ({', '.join(self.retyped)}): no row would be found by it"
        if source.duplicates:
            return f"{names} is not unique at the source: {source.duplicates:,} rows would be lost"
        if self.way == "rekey" and source.nulls:
            return f"{names} has NULL in {source.nulls:,} rows of the source"
        if self.way == "rekey" and not destination.unique:
            return f"{names} does not identify the rows at the destination: {destination}"
        return ""

    def document(self) -> dict[str, Any]:
        return {
            "table": self.table.path,
            "key": list(self.key),
            "source": _numbers(self.counts.source),
            "destination": _numbers(self.counts.destination),
            "settles": [r.id for r in self.settles],
        }

    def summary(self) -> dict[str, Any]:
        """Return the lines for people: counts, obstacles and options."""
        return {
            "counted": list(self.counts.lines),
            "why_not": self.blocker,
            "offers": offers(self.table.path, self.counts),
        }


def _numbers(count: RowCounts) -> dict[str, int]:
    return {"rows": count.rows, "duplicates": count.duplicates, "nulls": count.nulls}


def prepare(
    context: SyncContext, path: str, columns: Sequence[str], way: Way = "rekey", engine: Engine | None = None
) -> Rekeying:
    """Return what the change does; reads the key's columns on both sides and writes nothing.

    Raises InstepError for a table or column that is not there, Blocked if the project file names another key, or if
    something else about the table has to be decided first.
    """
    setting = find_table(context, path)
    table, key = setting.table, tuple(columns)
    names, of_file = setting.sources_of(key), tuple(setting.settings.key)
    if of_file and of_file not in (key, names):
        raise Blocked(f"instep.yml names the key of {path}: ({', '.join(of_file)})", hint=yaml(setting, key))
    counts = count_key(context, table, setting.source, key, names, engine or LocalEngine())
    state = context.destination.schema.state(destination_ref(table, context.naming))
    plan = _plan(context, setting, key, way if state is not None else "rekey")
    own = bool(of_file) or setting.source.key == names
    settles = tuple(setting.open("key."))
    retyped = tuple(setting.retyped(key))
    if way != "rekey":
        settles += tuple(r for r in setting.open("column.retyped") if r.column in retyped)
    rows = state.rows if state else 0
    return Rekeying(table, key, own, way, counts, plan, settles, rows, retyped)


def yaml(table: SettingTable, key: Sequence[str]) -> str:
    return (
        f'change it there: connections.{table.connection}.tables: {{"{table.table.path}": {{key: [{", ".join(key)}]}}}}'
    )


def _plan(context: SyncContext, setting: SettingTable, key: tuple[str, ...], way: Way) -> Plan:
    table = setting.table
    now = with_key(table, list(key))
    if way != "rekey":
        # no row of the new generation has JSON of columns that the source has no more, or a key of the old type
        types = setting.retyped(key)
        columns = tuple(replace(c, type=types.get(c.name, c.type)) for c in now.columns)
        extra = None if table.extra is None else ()
        now = replace(now, columns=columns, generation=table.generation + 1, extra=extra)
    after = assign(setting.accepted.put(now), context.naming)
    ref = destination_ref(table, context.naming)
    existing = context.destination.schema.inspect([ref])
    target = desired(Catalog.of([after.by_ref[table.ref]]), context.naming)
    change = KeyChanged(table.ref, table.key, key)
    decisions = [Decision(change, "apply", "selection", f"key set by {context.who}")] if table.key != key else []
    capabilities, prefix = context.destination.capabilities, context.naming.prefix
    before, now_alone = Catalog.of([table]), Catalog.of([after.by_ref[table.ref]])
    key_plan = plan(decisions, before, now_alone, existing, target, capabilities, prefix=prefix)
    if key_plan.refused:
        raise IllegalChange(f"{table.path}: {next(iter(key_plan.refused.values()))}", hint="nothing was changed")
    if way != "rekey" and (old := existing.get(ref)) is not None:
        replacement = _with_narrower_types(key_plan.target.by_ref[ref], target.by_ref[ref])
        key_plan = replace(
            key_plan, steps=(step(ref, TableReplaced(old, replacement)),), target=key_plan.target.put(replacement)
        )
    whole = recorded_tables(context, key_plan.target)
    return replace(key_plan, base_accepted=fingerprint(setting.accepted), after=after, target=whole)


def _with_narrower_types(table: Table, accepted: Table) -> Table:
    """Return the table with the accepted types: no row stays in it that needs the wider ones that it had."""
    types = {c.name: c.type for c in accepted.columns if not c.retained}
    return replace(table, columns=tuple(replace(c, type=types.get(c.name, c.type)) for c in table.columns))


def carry_out(context: SyncContext, rekeying: Rekeying, allowed: Sequence[str] = ()) -> tuple[int, Ref | None]:
    """Set the key as one run; return the accepted version and where the old table is kept, if it is.

    Raises Blocked if rows would be lost or are emptied without `allowed` (patterns) naming the table, or if four_eyes
    want a second person; StalePlan if the accepted schema has moved since `prepare`.
    """
    if why := rekeying.blocker:
        raise Blocked(why, hint=_instead(rekeying))
    path = rekeying.table.path
    if rekeying.way == "clear" and not any(fits_glob(path, pattern) for pattern in allowed):
        raise Blocked(f"{path} would be emptied: {rekeying.rows:,} rows", hint=f"name it: --allow-destructive '{path}'")
    what = f"{in_text(path)}: key ({listed(rekeying.key)}), {rekeying.way}"
    with two_people(context, "table set-key", what), claimed(context, "apply", paused_too=True) as run:
        context = replace(context, run=run)
        if fingerprint(context.store.accepted.catalog(context.name)) != rekeying.plan.base_accepted:
            raise StalePlan("the accepted schema has changed since this was shown", hint="run the command again")
        ref = destination_ref(rekeying.table, context.naming)
        context.destination.write.claim(ref, run.fence)
        place, rows = _clone_old_rows(context, run, rekeying, ref)
        _request_rows(context, rekeying)
        crashpoint("apply.table.before")
        version = apply_plan(context, run, rekeying.plan, {})
        if rekeying.way == "rekey" and rekeying.rows:
            give_new_key(context, path, run)
        _accept(context, rekeying, version, place, rows)
        if rekeying.way == "clear" and rekeying.rows:
            context.destination.write.overwrite(ref, (), Commit(run.id, run.fence))
        return version, place


def _instead(rekeying: Rekeying) -> str:
    if rekeying.counts.source.duplicates:
        return "name more columns, or correct the rows at the source"
    names = f"{argument(rekeying.table.path)} {argument(','.join(rekeying.key))}"
    return f"reload the table instead: `instep table set-key {names} --rebuild`"


def _clone_old_rows(context: SyncContext, run: Run, rekeying: Rekeying, ref: Ref) -> tuple[Ref | None, int]:
    """Return the old rows under a name of their own; the first that is free, or has these very rows."""
    if rekeying.way != "rebuild" or not rekeying.rows:
        return None, 0
    if (clones := context.destination.lifecycle.clones) is None:
        raise Blocked(f"{context.destination.kind} cannot keep a copy of {rekeying.table.path}", hint="use --clear")
    stem = ref[1].encode()[:BYTES].decode(errors="ignore") + f"__before_{run.started:%Y%m%d}"
    for number in range(1, 100):
        place = ref[0], stem if number == 1 else f"{stem}_{number}"
        try:
            rows = clones.clone_table(ref, place, Commit(run.id, run.fence))
        except Conflict:
            continue
        return (place, rows) if rows is not None else (None, 0)
    raise Conflict(
        f"{'.'.join(ref)} has too many copies", hint=f"purge some: `instep table purge {argument(rekeying.table.path)}`"
    )


def _request_rows(context: SyncContext, rekeying: Rekeying) -> None:
    """Request the rows of a stream's table before its own are deleted: a crash in between must not take its next
    rows for all of them. A database is read."""
    if rekeying.way == "rekey" or not isinstance(context.source, Streams):
        return
    change = rekeying.settles[0].id if rekeying.settles else ""
    with context.transaction():
        why = f"its key is ({', '.join(rekeying.key)}) now"
        context.store.backfills.request(context.name, rekeying.table.ref, why=why, change=change, instead=bool(change))


def _accept(context: SyncContext, rekeying: Rekeying, version: int, place: Ref | None, rows: int) -> None:
    """Record the choice, the copy and the changes that it answers, in one transaction."""
    store, ref = context.store, rekeying.table.ref
    with context.transaction():
        if rekeying.own:
            store.choices.drop(context.name, ref, "key")
        else:
            store.choices.set(context.name, ref, "key", rekeying.key, who=context.who)
        if place is not None:
            store.copies.add(context.name, ref, place, why=f"before the key ({', '.join(rekeying.key)})", rows=rows)
        close_changes(context, rekeying.settles)
        store.events.add(KeyChosen(context.name, rekeying.table.path, rekeying.key, rekeying.way, context.who, version))


def offers(path: str, counts: KeyCount) -> list[str]:
    """Return what can be done about a key with these counts: a command a line, with its effect or why it is refused."""
    key, source, destination = ",".join(counts.key), counts.source, counts.destination
    if source.duplicates:
        return [f"{source.duplicates:,} rows of the source would be lost: choose a key that identifies them"]
    stay = source.unique and destination.unique
    names = {
        "rekey": MEANS["rekey"] if stay else "refused while there are duplicates or NULLs",
        "rebuild": MEANS["rebuild"],
        "clear": f"{MEANS['clear']}; needs --allow-destructive {argument(path)}",
    }
    return [f"instep table set-key {argument(path)} {argument(key)} --{way}: {text}" for way, text in names.items()]


class SetKey(Work):
    """The work of the operation `set_key`."""

    moves_rows = True

    def prepare(self, context: SyncContext, request: SetKeyRequest) -> Preview:
        """Count what shares the key. `detail` has what was `counted`, `why_not` (what keeps it from being done) and the
        ways that there are."""
        rekeying = prepare(context, request.table, request.key, request.way, self.engine)
        return Preview(
            context.name, request, rekeying.document(), rekeying.lines, rekeying.summary(), prepared=rekeying
        )

    def execute(self, context: SyncContext, preview: Preview, allow: Sequence[str]) -> Mapping[str, Any]:
        """Set the key; return the accepted version, and where the old table is kept as a copy, if it is."""
        version, place = carry_out(context, preview.prepared, allow)
        return {"version": version, "copy": place and list(place)}


@dataclass(frozen=True)
class KeyReport:
    """Consequences of a new key of a table."""

    review: str
    table: str
    counts: KeyCount | None
    """Counts of the new key, or of the old one where the source no longer has one; None with `why_not`."""
    offers: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the text for people."""
        if self.counts is None:
            return (f"{self.review}: its key was not counted: {self.why_not}",)
        key = ", ".join(self.counts.key)
        return (*(f"{self.review}: key ({key}) {line}" for line in self.counts.lines), *self.offers)


def key_report(context: SyncContext, review: Review) -> KeyReport | None:
    """Return the report of a key change; None for any other change, or an answered one. Reads the key's columns; what
    cannot be read is said, not raised."""
    change = change_from_dict(review.change)
    if review.status != "open" or not isinstance(change, KeyChanged | KeyRemoved):
        return None
    path = ".".join(filter(None, review.table))
    key = change.after if isinstance(change, KeyChanged) else change.before
    try:
        table = find_table(context, path)
        counts = KeyCount(
            key, _at_source(context, table, key), count_destination(context, table.table, key, LocalEngine())
        )
    except InstepError as error:
        return KeyReport(review.id, path, None, why_not=error.message)
    return KeyReport(review.id, path, counts, tuple(_offers(path, counts)))


def _at_source(context: SyncContext, table: SettingTable, key: tuple[str, ...]) -> RowCounts:
    absent = [name for name in key if name not in table.source.by_name]
    return (
        RowCounts(why_not=f"{absent[0]} is gone") if absent else count_source(context, table.source, key, LocalEngine())
    )


def _offers(path: str, counts: KeyCount) -> list[str]:
    if counts.source.why_not:
        return [f"choose another key: instep table set-key {argument(path)} COL[,COL...]"]
    return offers(path, counts)


__all__ = ["MEANS", "WAYS", "KeyReport", "Rekeying", "Way", "carry_out", "key_report", "offers", "prepare", "yaml"]
