"""Columns that instep.yml or a person has switched on, hashed or shown since their table was loaded last.

A cursor finds only what is newer, so that rows loaded before would keep what they had: old values, or values in clear.
What the last load of each table had is recorded with its cursor and compared when the next one is planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from instep.errors import Blocked, ProjectError
from instep.schema.kinds import ColumnAdded, ColumnRetyped, ColumnWidened
from instep.schema.read import TableRead
from instep.schema.reselect import LoadedColumn, Turned, is_read_again, left_out, loaded_columns, turned
from instep.sync.changes.selected import selected_reads
from instep.sync.choose import choose
from instep.sync.detection.detect import Detection
from instep.sync.detection.places import Places
from instep.sync.pipe import Pipe, Ref

_LATER = "rows that the source has deleted and older snapshots of the destination"


def remember_loaded(pipe: Pipe, reads: Sequence[TableRead]) -> None:
    """What these reads have brought. Belongs into the transaction that records their cursors."""
    known = pipe.store.loaded.of(pipe.name)
    pipe.store.loaded.save(pipe.name, {r.table.ref: loaded_columns(r, known.get(r.table.ref, ())) for r in reads})


def want_again(pipe: Pipe, detection: Detection, reads: Sequence[TableRead]) -> dict[Ref, str]:
    """Records the backfills of whole tables that changed selections ask for, and what the loads to come leave out, so
    that a crash behind them forgets neither. Answers the tables that must not be loaded, and why."""
    known = pipe.store.loaded.of(pipe.name)
    refused = {t.table.ref: str(_refusal(t)) for t in _turned(detection, reads, known) if _is_key(t)}
    wanted = [t for t in _turned(detection, reads, known) if _read_again(pipe, t) and t.table.ref not in refused]
    marked = {r.table.ref: left_out(r, known[r.table.ref]) for r in reads if r.table.ref in known}
    less = {ref: columns for ref, columns in marked.items() if columns != known[ref] and ref not in refused}
    if wanted or less:
        with pipe.transaction():
            pipe.store.loaded.save(pipe.name, less)
            for one in wanted:
                pipe.store.backfills.want(pipe.name, one.table.ref, why=one.why)
    return refused


def reselected_notes(pipe: Pipe, detection: Detection) -> Iterator[str]:
    """One sentence a column; none about tables that are read as a whole anyway."""
    known = pipe.store.loaded.of(pipe.name)
    whole = {b.table for b in pipe.store.backfills.waiting(pipe.name) if b.scope == "table"}
    if not known:
        return
    reads = [_as_decided(detection, r) for r in selected_reads(pipe, detection)[0]]
    for one in _turned(detection, reads, known):
        if one.table.ref not in whole and (text := _text(pipe, one)):
            yield f"{one.path}: {text}"


def _as_decided(detection: Detection, read: TableRead) -> TableRead:
    """With the types that are let in now: a plan has not applied them yet."""
    let_in = {
        d.change.before.name: d.change.after.type
        for d in detection.applied
        if isinstance(d.change, ColumnWidened | ColumnRetyped) and d.change.table in (read.table.ref, read.source.ref)
    }
    return replace(
        read, columns=tuple(replace(c, column=replace(c.column, type=let_in.get(c.column.name, c.column.type)))
                            for c in read.columns)
    )  # fmt: skip


def _text(pipe: Pipe, one: Turned) -> str:
    if _is_key(one):
        return f"{_refusal(one).message}: the table is not synced"
    if one.what == "hashed":
        return f"it is hashed now, so a sync reads the whole table; {_LATER} keep it in clear"
    if one.what == "waiting":
        return "it is to be hashed; rows loaded before have it in clear until its change of type is let in"
    if one.what == "clear":
        return f"it is not hashed any more, so a sync reads the whole table; {_LATER} keep the hashes"
    if not _has_cursor(pipe, one):
        return ""
    if _read_again(pipe, one):
        return "it is on again with old values, so a sync reads the whole table"
    return f"it is on again; rows that do not change keep what they had in it until `instep backfill {one.table.path}`"


def _turned(
    detection: Detection, reads: Sequence[TableRead], known: dict[Ref, tuple[LoadedColumn, ...]]
) -> Iterator[Turned]:
    """Without the columns that come in by this very detection: policy says what becomes of their old rows."""
    places = Places.of(detection.decisions)
    fresh = {
        (places.after(d.change), d.change.after.name) for d in detection.applied if isinstance(d.change, ColumnAdded)
    }
    for read in reads:
        for one in turned(read, known.get(read.table.ref, ())):
            if (one.table.ref, one.column.name) not in fresh:
                yield one


def _read_again(pipe: Pipe, one: Turned) -> bool:
    return is_read_again(one.table.ref, one.column, one.what, pipe.policy, pipe.tags)


def _is_key(one: Turned) -> bool:
    return one.what != "on" and one.column.name in one.table.key


def _refusal(one: Turned) -> Blocked:
    """Rows of two keys never mix."""
    now, take = ("hashed", "out of") if one.what == "hashed" else ("not hashed any more", "back into")
    return Blocked(
        f"{one.path} is in the key of its loaded table and {now}: old and new rows would have different keys",
        hint=f"take it {take} `hash` (or `exclude`) in instep.yml, or load the table through a new connection",
    )


def _has_cursor(pipe: Pipe, one: Turned) -> bool:
    try:
        return choose(one.table, pipe.settings(one.table)).partial
    except ProjectError:
        return False
