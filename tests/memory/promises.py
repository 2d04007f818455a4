"""What must hold whatever happened before: looked at through the database, the destination and the store."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from instep.destinations.base import Ref
from instep.events import ChangeDetected, RenameSuspected
from instep.model import Review
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType, String
from instep.stage.casts.cast import cast
from instep.stage.conform import hashed
from instep.store.history.events import LoggedEvent
from instep.sync.progress import SyncReport
from memory.arrow import arrow_type
from memory.database import MemoryTable
from memory.held import BY_HAND
from memory.world import NAME, World

DELETED = "_instep_deleted"
TOLD = (ChangeDetected.type, RenameSuspected.type)
Row = Mapping[str, Any]


def paired(world: World, table: Table) -> MemoryTable | None:
    """The source's table that an accepted one is read from."""
    held = world.database.tables.values()
    if table.id is not None:
        return next((h for h in held if h.table.id == table.id), None)
    return next((h for h in held if h.table.ref == table.ref), None)


def source_column(column: Column, source: Table) -> Column | None:
    if column.id is not None:
        return next((c for c in source.columns if c.id == column.id), None)
    return source.by_name.get(column.name)


def expected(table: Table, held: MemoryTable, hashes: set[tuple[Any, str]]) -> list[dict[str, Any]]:
    """The source's rows as the accepted table has them, by destination name; columns without a source are left out.
    A value that does not fit is NULL, a row without its key is not there."""
    named: dict[str, list[Any]] = {}
    rows = held.named()
    for column in table.live:
        if (source := source_column(column, held.table)) is not None:
            values = [r[source.name] for r in rows]
            if (table.ref, column.name) in hashes:
                values = hashed(pa.array(values, arrow_type(source.type)), source.type, b"salt").to_pylist()
                named[column.alias] = values
            else:
                named[column.alias] = fitted(values, source.type, column.type)
    keys = [table.by_name[k].alias for k in table.key]
    found = [dict(zip(named, values, strict=True)) for values in zip(*named.values(), strict=True)]
    return [row for row in found if all(row.get(k) is not None for k in keys)]


def fitted(values: list[Any], before: DataType, after: DataType) -> list[Any]:
    done = cast(pa.array(values, arrow_type(before)), before, arrow_type(after), after)
    out: list[Any] = done.values.to_pylist()
    return [None if n in done.invalid_values else v for n, v in enumerate(out)]


def standing(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not row.get(DELETED) and row.get("_instep_current", True)]


def counted(rows: Iterable[Row], columns: Iterable[str]) -> Counter[tuple[Any, ...]]:
    names = [*columns]
    return Counter(tuple(row[n] for n in names) for row in rows)


def check_converged(world: World, report: SyncReport, loose: Mapping[str, set[str]]) -> None:
    """Promises 1 and 2: each table that a sync says it has done equals its source under the accepted schema. `loose`
    are columns of tables with a cursor whose values no cursor tells."""
    accepted = world.store.accepted.catalog(NAME)
    for run in report.tables:
        if run.status != "done":
            continue
        table = accepted.by_ref[run.table]
        held = paired(world, table)
        assert held is not None, f"{table.path} is done and not at the source"
        hashes, out = chosen(world, table, held.table)
        wanted = _as_kept(world, table, expected(table, held, hashes))
        read = [c for c in table.live if source_column(c, held.table) and c.name not in out]
        columns = [c.alias for c in read if c.name not in loose.get(table.name, ())]
        there, due = counted(standing(world.rows(table)), columns), counted(wanted, columns)
        assert there == due, f"{table.path} {columns} lacks {[*(due - there)]} and has {[*(there - due)]}"


def chosen(world: World, table: Table, source: Table) -> tuple[set[tuple[Any, str]], set[str]]:
    """The hashed columns, and those that are left out or whose hashing somebody has to decide about."""
    selection, hashes, out = world.selection, set(), set()
    asked = {r.column for r in world.store.reviews.find(NAME, ("open", "rejected", "ignored")) if r.table == table.ref}
    for column in table.live:
        if (there := source_column(column, source)) is None:
            continue
        paths = {f"{table.path}.{column.name}", f"{source.path}.{there.name}"}
        if paths & selection.off:
            out.add(column.name)
        if paths & selection.masked:
            hashes.add((table.ref, column.name))
            if asked & {column.name, there.name} or not isinstance(column.type, String):
                out.add(column.name)
    return hashes, out


def _as_kept(world: World, table: Table, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A narrower type that somebody has let in is accepted, and the destination keeps the wider one."""
    narrowed = [r.change for r in world.store.reviews.find(NAME, ("applied",)) if r.kind == "column.narrowed"]
    let_in = {(change["before"]["type"], change["after"]["type"]) for change in narrowed}
    kinds = {c.name: c.type for c in world.destination.held[world.place(table)].table.columns}
    for column in table.live:
        kind = kinds.get(column.alias, column.type)
        if rows and column.alias in rows[0] and (str(kind), str(column.type)) in let_in:
            values = fitted([row[column.alias] for row in rows], column.type, kind)
            rows = [{**row, column.alias: value} for row, value in zip(rows, values, strict=True)]
    return rows


_ASKS = ("review", "pause_table", "pause_connection")
_ID = re.compile(r"\bc-[0-9a-f]+")


def check_reasons(world: World, report: SyncReport, *, whole: bool) -> None:
    """Promise 13: a report names what is open and asks for a review, and nothing else; a table that is not loaded names
    a change that is open or refused, or somebody has paused it. After a sync of the `whole` connection no approved
    type waits in silence."""
    known = {r.id: r for r in world.store.reviews.find(NAME)}
    asks = {r.id for r in known.values() if r.status == "open" and r.action in _ASKS}
    awake = {id for id in asks if not world.store.reviews.is_asleep(known[id])}
    assert set(report.waiting) == awake, f"{report.waiting} are asked for, open are {awake}"
    by_hand = {p.table for p in world.store.pauses.active(NAME) if not p.change}
    for run in report.tables:
        named = set(_ID.findall(run.error))
        assert "review it" not in run.error or named & asks, f"{run.error}: nothing is open"
        if run.status in ("missing", "paused") and run.table not in by_hand:
            standing = {n for n in named if n in known and known[n].status in ("open", "rejected")}
            assert standing or world.store.pauses.tables(NAME).get(run.table), f"{run.table} waits: {run.error!r}"
            assert standing, f"{run.table} waits for nothing that stands: {run.error!r}"
    done = {run.table for run in report.tables if run.status == "done"}
    kinds = ("column.retyped", "column.widened", "table.replaced", "key.changed")
    left = [r.summary for r in known.values() if r.status == "approved" and r.kind in kinds and r.table in done]
    assert not (whole and left), f"approved, not carried out, and nothing is asked: {left}"


Kept = dict[tuple[Ref, Any, tuple[Any, ...]], Any]


def recovered_values(world: World) -> Kept:
    """What the rows of tables with a key hold in columns that the source has no more: by table, column and key."""
    found: Kept = {}
    for table in world.store.accepted.catalog(NAME).tables:
        held = world.destination.held.get(world.place(table))
        if held is None or not table.key or table.retained:
            continue
        stays = [c.alias for c in table.columns if c.retained]
        fields = [held.ids[name] for name in stays if name in held.ids]
        key = [held.ids[name] for k in table.key if (name := table.by_name[k].alias) in held.ids]
        for row in held.rows:
            at = tuple((f, row.get(f)) for f in key)  # shorter if somebody has dropped one of them: then it is no key
            found |= {(held.table.ref, f, at): row[f] for f in fields if row.get(f) is not None}
    return found


def check_kept(world: World, before: Kept) -> None:
    """Promise 2: a row that is still there by the same key still has what it held in columns that stay behind."""
    after = recovered_values(world)
    for (ref, field, at), value in before.items():
        held = world.destination.held.get(ref)
        columns = {} if held is None else {f: name for name, f in held.ids.items()}
        table = next((t for t in world.store.accepted.catalog(NAME).tables if world.place(t) == ref), None)
        if held is None or table is None or field not in columns or any(f not in columns for f, _ in at):
            continue
        column = next((c for c in table.columns if c.alias == columns[field]), None)
        if column is None or not column.retained or any(k not in columns.values() for k in held.table.key):
            continue
        if any(all(row.get(f) == v for f, v in at) for row in held.rows) and len(at) == len(table.key):
            now = after.get((ref, field, at))
            assert now == value, f"{table.path}.{column.name} of {at} was {value!r} and is {now!r}"


def check_doubled(world: World) -> None:
    """Promise 3: no key stands twice, deleted rows included. Rows that wait to be read anew under another key are still
    those of the old one."""
    waiting = {w.table for w in world.store.backfills.waiting(NAME) if w.scope == "table"}
    anew = {world.place(t) for t in world.store.accepted.catalog(NAME).tables if t.ref in waiting}
    for ref, held in world.destination.held.items():
        if ref in anew:
            continue
        keys = [held.ids[k] for k in held.table.key]
        if keys:
            current = held.ids.get("_instep_current")
            rows = [row for row in held.rows if current is None or row.get(current)]
            found = Counter(tuple(row.get(k) for k in keys) for row in rows)
            assert not [k for k, n in found.items() if n > 1], f"{ref} holds a key twice"


def check_blocked(world: World, reviews: Mapping[str, Review]) -> None:
    """Promise 4: nothing is in the destination that is not accepted, and nothing is accepted that was not let in."""
    accepted = {world.place(t): t for t in world.store.accepted.catalog(NAME).tables}
    for ref, held in world.destination.held.items():
        assert ref in accepted, f"{ref} is in the destination and not accepted"
        known = {c.alias for c in accepted[ref].columns}
        shown = {c.name for c in (held.pending or held.table).columns if not c.name.startswith("_instep_")}
        assert shown <= known | {BY_HAND}, f"{ref} holds {shown - known}, which is not accepted"
    for review in reviews.values():
        if review.kind == "column.added" and review.status == "rejected":
            table = world.store.accepted.catalog(NAME).get(review.table)
            column = review.change["after"]
            live = table.live if table else ()
            in_use = [c for c in live if (c.id, c.name) == (column.get("id"), column["name"])]
            assert not in_use, f"{review.summary} was rejected and is in"


def check_drops(world: World) -> None:
    """Promise 5: what was dropped, a policy's `removed: drop` or a person has named."""
    for step in world.steps:
        assert not step.destructive or step.consent or step.object in world.named, f"nobody has asked to {step.text}"


def check_versions(world: World) -> None:
    """Promise 6: versions of the accepted schema only grow, and so do their labels."""
    history = sorted(world.store.accepted.history(NAME), key=lambda v: v.version)
    labels = [(v.major, v.minor) for v in history]
    assert [v.version for v in history] == list(range(1, len(history) + 1))
    assert labels == sorted(set(labels)), labels
    assert all(v.who and v.at for v in history)


def check_cursors(world: World) -> None:
    """Promise 7: no row of the source up to the recorded cursor is missing; the store's mirror is not ahead of it."""
    mirrored = {r.table: r for r in world.store.cursors.of(NAME).values()}
    for table in world.store.accepted.catalog(NAME).tables:
        state, held = world.destination.schema.state(world.place(table)), paired(world, table)
        if state is None or not state.cursor:
            continue
        said = json.loads(state.cursor)
        column = table.by_name.get(said["column"])
        source = source_column(column, held.table) if column and held else None
        if held is None or column is None or source is None:
            continue
        rows = world.rows(table)
        if rows and column.alias not in rows[0]:
            continue  # somebody has dropped it manually
        known = counted(rows, [column.alias])
        due = [row[source.name] for row in held.named() if row[source.name] <= int(said["upper"])]
        assert all((at,) in known for at in due), f"{table.path} lacks rows below its cursor {said}"
        if table.ref in mirrored:
            assert mirrored[table.ref].fence <= state.fence


def check_events(world: World, log: list[LoggedEvent], reviews: Mapping[str, Review]) -> None:
    """Promises 8, 9 and 12: the log has no holes, each change is told once and asked once until it is something else,
    and whatever was applied is on record with a version that exists."""
    assert [e.number for e in log] == list(range(1, len(log) + 1))
    assert [e.at for e in log] == sorted(e.at for e in log)
    told = Counter(e.data["change"] for e in log if e.type in TOLD)
    assert set(told.values()) <= {1}, "a change was told twice"
    asked = Counter(e.data["change"] for e in log if e.type == "change.review_needed")
    assert set(asked.values()) <= {1}, "a change was asked twice"
    last = max((v.version for v in world.store.accepted.history(NAME)), default=0)
    applied = [e for e in log if e.type == "change.applied"]
    assert all(1 <= e.data["version"] <= last for e in applied)
    done = {e.data["change"] for e in applied}
    for review in reviews.values():
        assert review.id in told, f"{review.summary} was never told"
        assert review.status != "applied" or review.id in done, f"{review.summary} was applied in silence"
    assert len({r.key for r in reviews.values() if r.status in ("open", "approved", "rejected")}) == sum(
        r.status in ("open", "approved", "rejected") for r in reviews.values()
    ), "a change stands twice"
