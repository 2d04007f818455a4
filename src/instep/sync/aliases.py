"""Old names at the destination: recorded before a rename is carried out, shown in views after it, ended in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from instep.crash import crashpoint
from instep.destinations.facets import HoldsViews
from instep.errors import DestinationError, Fenced, InstepError
from instep.events import Event, OldNameEnded, OldNameKept
from instep.model import Run
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.planning.aliases import OldName, View, is_there, renames, settled, views, why_over
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan, desired
from instep.suggest import did_you_mean
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext

NONE: Mapping[int, str] = {}


def why_none(pipe: SyncContext) -> str:
    """Why the destination can show no old names; "" if it can."""
    if isinstance(pipe.destination, HoldsViews):
        return pipe.destination.why_no_views
    return f"no views are kept in a {pipe.destination.kind} destination"


def remember(pipe: SyncContext, made: Plan, batch: str) -> None:
    """To be called in the transaction that opens the record of a plan. Old names that are there follow its renames,
    also where nothing is to be kept by now."""
    known = pipe.store.old_names.of(pipe.name)
    names = [n for n in _renamed(pipe, made, batch) if known or n.until > n.at]
    if names and not why_none(pipe):
        pipe.store.old_names.add(pipe.name, names)


def _renamed(pipe: SyncContext, made: Plan, batch: str) -> Iterator[OldName]:
    """What a plan renames, with the time that its table's settings give to old names: none, if they give none."""
    now, found = pipe.store.old_names.now(), renames(made.groups())
    tables = {destination_ref(t, pipe.naming): t for t in made.after.tables if t.alias}
    for (_, old), to in found.tables.items():
        if to in tables:
            yield OldName(to, "", old, _until(pipe, tables[to], now), now, batch=batch)
    for (at, old), new in found.columns.items():
        if at in tables:
            yield OldName(at, new, old, _until(pipe, tables[at], now), now, batch=batch)


def _until(pipe: SyncContext, table: Table, now: datetime) -> datetime:
    return now + timedelta(seconds=pipe.settings(table).keep_old_names)


def make_room(pipe: SyncContext, made: Plan) -> None:
    """Before a plan is carried out: a name that a table is to have is not kept for an old one."""
    if not isinstance(pipe.destination, HoldsViews) or not pipe.store.old_names.of(pipe.name):
        return
    fold = pipe.naming.fold
    used = {(t.schema, fold(t.name)) for t in desired(made.after, pipe.naming).tables}
    for ref, view in pipe.destination.views().items():
        if view.owner == pipe.name and (ref[0], fold(ref[1])) in used:
            pipe.destination.drop_view(ref)
    crashpoint("old_names.room")


def refresh(pipe: SyncContext, run: Run, *, last: bool = False, ended: Mapping[int, str] = NONE) -> None:
    """Brings the views in step with the accepted tables and the old names that are alive, and ends what is over. What
    cannot be shown says so; it never fails a run. `last`: all renames of the run are through, so that one that has not
    come about never will. `ended`: why some, by number, end before their time."""
    names = pipe.store.old_names.of(pipe.name)
    if not names or not isinstance(pipe.destination, HoldsViews):
        return
    there, fold = desired(pipe.store.accepted.catalog(pipe.name), pipe.naming), pipe.naming.fold
    standing, now = settled(names, there, fold), pipe.store.old_names.now()
    over = {n.number: why for n in standing if (why := ended.get(n.number) or why_over(n, there, now, fold))}
    alive = [n for n in standing if n.number not in over]
    with suppress(Fenced):
        trouble = _show(pipe, views(alive, there, pipe.name), there, run)
        crashpoint("old_names.shown")
        alive = [_told(n, trouble) for n in alive]
        undecided = [n for n in names if n.batch and not last and not is_there(n, there)]
        with pipe.transaction():
            pipe.store.old_names.keep(pipe.name, [*alive, *undecided])
            pipe.store.events.add(*_events(pipe, names, alive, over))


def _show(pipe: SyncContext, wanted: Mapping[Ref, View], there: Catalog, run: Run) -> dict[Ref, str]:
    """What keeps each of the views from being there. Those of the connection that are not wanted any more go."""
    assert isinstance(pipe.destination, HoldsViews), "asked before"
    fold, trouble = pipe.naming.fold, dict[Ref, str]()
    tables = {(t.schema, fold(t.name)) for t in there.tables}
    longest = pipe.destination.capabilities.max_name_bytes
    free = {ref: view for ref, view in wanted.items() if (ref[0], fold(ref[1])) not in tables}
    trouble |= {ref: f"{'.'.join(ref)} is a table itself" for ref in wanted if ref not in free}
    with _noting(trouble, *free):
        for ref, view in pipe.destination.views().items():
            if view.owner == pipe.name and ref not in free:
                pipe.destination.drop_view(ref)
    for ref, view in free.items():
        with _noting(trouble, ref):
            if len(ref[1].encode()) > longest:
                raise DestinationError(f"{'.'.join(ref)} is longer than {longest} bytes")
            pipe.destination.put_view(view, run.fence)
    return trouble


@contextmanager
def _noting(trouble: dict[Ref, str], *refs: Ref) -> Iterator[None]:
    """A view is no reason for a run to fail, unless a later one has taken over."""
    try:
        yield
    except Fenced:
        raise
    except (InstepError, OSError) as error:
        trouble |= dict.fromkeys(refs, error.message if isinstance(error, InstepError) else str(error))


def _told(name: OldName, trouble: Mapping[Ref, str]) -> OldName:
    why = trouble.get(name.view, "")
    return replace(name, shown="" if why else ".".join(name.view), trouble=why)


def _events(
    pipe: SyncContext, was: Iterable[OldName], now: Iterable[OldName], over: Mapping[int, str]
) -> Iterator[Event]:
    before, after = {n.number: n for n in was}, {n.number: n for n in now}
    for number, name in after.items():
        if name.shown and not before[number].shown:
            yield OldNameKept(pipe.name, ".".join(name.table), name.old, name.shown, f"{name.until:%Y-%m-%dT%H:%M:%SZ}")
    for number, name in before.items():
        if name.shown and number not in after:
            why = over.get(number, "a later rename took its place")
            yield OldNameEnded(pipe.name, ".".join(name.table), name.old, name.shown, why)


def of_table(pipe: SyncContext, path: str, only: str = "") -> list[OldName]:
    """The old names of the accepted table of this path and of its columns; InstepError if there is no such table, or
    none that is called `only`."""
    known = {t.path: t for t in pipe.store.accepted.catalog(pipe.name).tables if t.alias}
    if path not in known:
        hint = did_you_mean(path, known, "write schema.table, as `instep status` shows it")
        raise InstepError(f"connection {pipe.name} has no table {path}", hint=hint)
    ref = destination_ref(known[path], pipe.naming)
    found = [n for n in pipe.store.old_names.of(pipe.name) if n.table == ref and not n.batch]
    if only and only not in {n.old for n in found}:
        names = ", ".join(n.old for n in found) or "none"
        raise InstepError(f"{path} keeps no old name {only}", hint=f"its old names: {names}")
    return [n for n in found if only in ("", n.old)]


def settle_names(pipe: SyncContext, names: Iterable[OldName], until: datetime | None) -> None:
    """Old names stay until another time, or end now (None); as a run of its own. RunInProgress while another one of the
    connection is alive."""
    names = list(names)
    with claimed(pipe, "apply", paused_too=True) as run:
        pipe = replace(pipe, run=run)
        for name in names if until is not None else ():
            pipe.store.old_names.extend(name.number, until or name.until)
        why = f"ended by {pipe.who}"
        refresh(pipe, run, ended=dict.fromkeys((n.number for n in names), why) if until is None else NONE)


def troubles(pipe: SyncContext) -> list[str]:
    """Old names that cannot be shown, and why."""
    found = (n for n in pipe.store.old_names.of(pipe.name) if n.trouble)
    return [f"old name {n.old} of {'.'.join(n.table)} is not shown: {n.trouble}" for n in found]


def announced(pipe: SyncContext, made: Plan) -> tuple[str, ...]:
    """What a plan does to old names, for people: which stay readable until when, which end; touches nothing."""
    known = pipe.store.old_names.of(pipe.name)
    new = [n for n in _renamed(pipe, made, "planned") if n.until > n.at]
    if not new and not known:
        return ()
    there, fold, now = desired(made.after, pipe.naming), pipe.naming.fold, pipe.store.old_names.now()
    if new and (why := why_none(pipe)):
        return tuple(f"old name {n.old} is not kept: {why}" for n in new)
    found = settled([*known, *_renamed(pipe, made, "planned")], there, fold)
    ends = [(n, why_over(n, there, now, fold)) for n in found]
    fresh = [n for n, why in ends if n.number == 0 and not why]
    foreign = pipe.destination.foreign(sorted({n.view for n in fresh}))
    lines = [f"old name {n.old} of {'.'.join(n.table)}: {_stays(n, foreign)}" for n in fresh]
    return (*lines, *(f"old name {n.old} leaves {n.shown}: {why}" for n, why in ends if n.shown and why))


def _stays(name: OldName, foreign: Mapping[Ref, str]) -> str:
    view = ".".join(name.view)
    if name.view in foreign:
        return f"not shown, as {foreign[name.view]}"
    return f"stays readable in {view} until {name.until:%Y-%m-%d}"
