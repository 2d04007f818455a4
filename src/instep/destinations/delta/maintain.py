"""Maintenance of a Delta table: compact small files, expire old versions, delete orphaned files.

Puts a table back to an earlier version: its rows, never its columns. What a column is called or stored as now
holds for the old rows, too: their values are found by physical name.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any
from urllib.parse import unquote

from instep.destinations.base import Commit, Layout, Maintained, MaintenanceSpec, Ref, Savepoint
from instep.destinations.delta.change import FILES_STAY, DeltaCommit, check_writable, file_days, files_stay, retention
from instep.destinations.delta.files import path_of
from instep.destinations.delta.load import retry_commit
from instep.destinations.delta.protocol.deletion_vectors import deleted_rows
from instep.destinations.delta.protocol.log import DeltaLog
from instep.destinations.delta.protocol.records import APP, is_record, unnamed
from instep.destinations.delta.protocol.snapshot import Action, DeltaSnapshot, rows_of
from instep.destinations.delta.retention import ALIVE
from instep.destinations.delta.shape import place
from instep.destinations.delta.table_state import (
    DeltaTableState,
    find,
    loaded,
    missing,
    named,
    require,
    select_files,
    state_at,
)
from instep.destinations.delta.tasks import PackTask, pack
from instep.destinations.delta.warehouse import DeltaFacet, Warehouse, now_ms
from instep.destinations.parts import grouped, run_tasks
from instep.errors import Conflict, DestinationError, InstepError
from instep.schema.maintenance import DAY_MS, FileFacts, Maintenance, bins, expirable_snapshots
from instep.stage.files.object_store import AnyPath, files_below

MAINTAINED = f"{APP}.maintained"
SPARK_BYTES = 512 << 20
"""Files of more bytes are put together by tasks of Spark, if there may be a session."""
_BYTES = re.compile(r"(\d+)\s*([bkmgt])?b?")
COMMIT_BYTES = 1 << 30
"""About what one commit exchanges."""
EXPIRE_BATCH = 10
"""Versions that a sync leaves, so that it does not expire one each time."""


def _record_name(state: DeltaTableState) -> str:
    """Return the name of the record of its maintenance; each shard has its own."""
    return MAINTAINED if state.record.within is None else f"{MAINTAINED}.{state.record.within[1]}"


def _maintained(state: DeltaTableState) -> Mapping[str, int]:
    maintained: dict[str, int] = json.loads(state.snapshot.records.get(_record_name(state)) or "{}")
    return maintained


def _files(warehouse: Warehouse, ref: Ref, work: MaintenanceSpec) -> Maintained:
    """Compact small files in commits that declare that no row has changed."""
    state = require(warehouse, ref)
    count, size = len(state.own), state.bytes
    done = Maintained(count, count, size, size)
    if state.state() is None:
        return replace(done, notes=("its files are left as they are: it has not been loaded yet",))
    every_pack = _bins(state, replace(work.how, target_file_size=_target_size(state) or work.how.target_file_size))
    weight = sum(map(_size, every_pack))
    if work.dry_run or not every_pack:
        old = sum(map(len, every_pack))
        return replace(done, rewritten=old, bytes_rewritten=weight, files=count - old + len(every_pack))
    session = work.session() if weight > SPARK_BYTES else None
    rows, number = 0, 0
    for group in grouped([(0, _size(files)) for files in every_pack], 0, COMMIT_BYTES):
        packs = [every_pack[i] for i in group if all(unquote(f["path"]) in state.own for f in every_pack[i])]
        change = DeltaCommit(state, state.record, keeps_rows=True)
        change.remove = sorted(unquote(f["path"]) for files in packs for f in files)
        places = {path: at for at, path in enumerate(state.paths)}
        tasks = list[PackTask]()
        for files in packs:
            paths = tuple(unquote(f["path"]) for f in files)
            tasks.append(PackTask(number, select_files(state, sorted(places[p] for p in paths)), paths, work.run))
            number += 1
        added = [a for actions in run_tasks(session, pack, tasks, "compact") for a in actions]
        change.add = [{**a, "dataChange": False} for a in added]
        written, expected = sum(map(rows_of, added)), sum(state.counted(f) for files in packs for f in files)
        if written != expected:
            raise DestinationError(
                f"table {named(ref)}: {written:,} rows were written in place of {expected:,}",
                hint="nothing was committed; check the files with `instep verify`",
            )
        files_left = len(state.own) - len(change.remove) + len(added)
        change.records[_record_name(state)] = json.dumps({"at": now_ms(), "files": files_left})
        change.land("OPTIMIZE", Commit(work.run, work.fence), warehouse)
        rows += written
        gone, new = sum(map(_size, packs)), sum(int(a["size"]) for a in added)
        done = replace(
            done,
            files=files_left,
            bytes=done.bytes - gone + new,
            rewritten=done.rewritten + len(change.remove),
            bytes_rewritten=done.bytes_rewritten + gone,
        )
        work.on_progress(rows, done.bytes - size + done.bytes_rewritten)
        if not work.go_on():
            break
        state = require(warehouse, ref)
    return done


def _target_size(state: DeltaTableState) -> int:
    """Return the bytes set as a property of the table; 0 if it is not set. DestinationError for what is
    no size."""
    text = state.configuration.get("delta.targetFileSize", "")
    if not text:
        return 0
    match = _BYTES.fullmatch(text.strip().casefold())
    if not match:
        raise DestinationError(
            f"table {named(state.ref)}: its property delta.targetFileSize is {text!r}, which is not a size",
            hint="set it to one such as `128mb`, or to a number of bytes",
        )
    return int(match[1]) << 10 * ("bkmgt".index(match[2]) if match[2] else 0)


def _size(files: Sequence[Action]) -> int:
    return sum(int(f["size"]) for f in files)


def _bins(state: DeltaTableState, how: Maintenance) -> list[list[Action]]:
    """Return bins of files to compact, each of one partition."""
    groups = defaultdict[object, list[Action]](list)
    for file in sorted(state.files, key=lambda f: (f.get("modificationTime", 0), f["path"])):
        groups[place(file)].append(file)
    return [[came[i] for i in places] for came in groups.values() for places in bins([_facts(f) for f in came], how)]


def _facts(file: Action) -> FileFacts:
    return FileFacts(int(file["size"]), rows_of(file) + deleted_rows(file), deleted_rows(file))


@dataclass(frozen=True)
class _Expired:
    """Versions that may go; `before`: what was removed by then (milliseconds since 1970) only they need, and the first
    version that stays."""

    versions: tuple[int, ...] = ()
    before: float = 0
    first: int = 0


def _expired(warehouse: Warehouse, state: DeltaTableState, how: Maintenance) -> _Expired:
    versions = [(version, int(info.get("timestamp", 0))) for version, info in changes(state.log)]
    young = {v for v, at in versions if at >= now_ms() - retention(state, "delta.logRetentionDuration")}
    gone = expirable_snapshots(versions, young, how, now_ms())
    remaining = [(v, at) for v, at in versions if v not in gone]
    if not gone or not remaining:
        return _Expired()
    first, at = min(remaining)
    return _Expired(gone, min(at, now_ms() - files_stay(warehouse, state)), first)


def _expire(warehouse: Warehouse, ref: Ref, work: MaintenanceSpec, done: Maintained) -> Maintained:
    state = require(warehouse, ref)
    check_writable(state)
    old = _expired(warehouse, state, work.how)
    if not old.versions:
        return done
    live = {path_of(state, f) for f in state.snapshot.files.each()}
    last = dict[AnyPath, int]()  # a file may have come back and gone again
    for file in _removed(state):
        path = path_of(state, file)
        last[path] = max(last.get(path, 0), int(file.get("deletionTimestamp", 0)))
    unused = [p for p, at in last.items() if at <= old.before and p not in live]
    removable = [p for p in unused if p.is_relative_to(str(state.folder)) and p.exists()]
    if not work.dry_run:
        _delete(removable)
        state.log.clean(old.first)
        _delete(_old_records(state))
    return replace(done, snapshots=len(old.versions), removed=len(removable))


def _removed(state: DeltaTableState) -> Iterator[Action]:
    """Yield the removals that any readable version of the log records."""
    yield from state.snapshot.tombstones.each()
    for version in state.log.versions():
        with suppress(FileNotFoundError):
            yield from (a["remove"] for a in state.log.actions(version) if a.get("remove"))


def _named(state: DeltaTableState) -> set[AnyPath]:
    """Return every file that a readable version names."""
    versions = state.log.versions()
    first = state.log.snapshot(versions[0])
    files: list[Action] = [*state.snapshot.files.each(), *_removed(state), *(first.files.each() if first else ())]
    for version in versions:
        with suppress(FileNotFoundError):
            files += [a["add"] for a in state.log.actions(version) if a.get("add")]
    return {path_of(state, f) for f in files}


def _old_records(state: DeltaTableState) -> list[AnyPath]:
    """Return the files of records that neither a readable version nor a version about to be written names."""
    versions = state.log.versions()
    first = state.log.snapshot(versions[0])
    numbers = {*state.snapshot.record_numbers.values(), *(first.record_numbers.values() if first else ())}
    for version in versions:
        with suppress(FileNotFoundError):
            numbers |= {
                int(a["txn"]["version"])
                for a in state.log.actions(version)
                if a.get("txn") and is_record(a["txn"]["appId"])
            }
    return [*unnamed(state.folder, numbers, now_ms() / 1000 - ALIVE)]


def _orphans(warehouse: Warehouse, state: DeltaTableState, work: MaintenanceSpec) -> list[tuple[AnyPath, int]]:
    """Return data files that nothing references, older than the safe age and than every active run, with their
    bytes."""
    limit = now_ms() - max(work.how.orphan_age * DAY_MS, retention(state, FILES_STAY, file_days(warehouse)))
    limit = min(limit, work.live) if work.live is not None else limit
    try:
        listed = list(files_below(state.folder / state.area))
    except OSError as error:
        raise DestinationError(f"table {named(state.ref)}: its files cannot be listed: {error.strerror}") from error
    old = [(p, s.st_size) for p, s in listed if s.st_mtime * 1000 < limit]
    referenced = _named(state) if old else set()
    return [(p, size) for p, size in old if p not in referenced]


def _delete(paths: Iterable[AnyPath]) -> None:
    for path in paths:
        with suppress(OSError, InstepError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


class DeltaMaintenance(DeltaFacet):
    """Small files, old versions and orphans."""

    def latest_claim(self, ref: Ref) -> int:
        """Return the fence of the table's latest claim."""
        table_state = find(self.warehouse, ref)
        return table_state.record.fence if table_state else 0

    def layout(self, ref: Ref) -> Layout:
        """Return the table's files. There are no delete files."""
        table_state = find(self.warehouse, ref)
        if table_state is None:
            raise missing(ref)
        recorded = _maintained(table_state)
        at = datetime.fromtimestamp(recorded["at"] / 1000, UTC) if recorded else None
        return Layout(len(table_state.own), table_state.bytes, 0, len(table_state.log.versions()), at)

    def due(self, ref: Ref, how: Maintenance) -> bool:
        """Return whether to look closer, by the log."""
        table_state = find(self.warehouse, ref)
        if table_state is None or table_state.state() is None:
            return False
        grown = len(table_state.own) - _maintained(table_state).get("files", 0)
        if grown + 1 >= how.min_files:
            return True
        limit = now_ms() - how.max_snapshot_age * DAY_MS
        old = takewhile(lambda c: int(c[1].get("timestamp", 0)) < limit, changes(table_state.log))
        # commits are read from the oldest on, as far as it takes
        some = len([*islice(old, EXPIRE_BATCH)]) == EXPIRE_BATCH
        return some and len(_expired(self.warehouse, table_state, how).versions) >= EXPIRE_BATCH

    def maintain(self, ref: Ref, work: MaintenanceSpec) -> Maintained:
        """Maintain one table; rows and values stay as they are."""
        table_state = require(self.warehouse, ref)
        table_state.record.check(work.fence)
        done = retry_commit(lambda: _files(self.warehouse, ref, work))
        if work.go_on():
            done = _expire(self.warehouse, ref, work, done)
        if work.deep and work.go_on():
            lost = _orphans(self.warehouse, require(self.warehouse, ref), work)
            done = replace(done, orphans=len(lost), orphan_bytes=sum(size for _, size in lost))
            if not work.dry_run:
                _delete(path for path, _ in lost)
        return done


def changes(log: DeltaLog) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the versions that added or removed files, with what their commit says of itself."""
    for version in log.versions():
        info, changes = dict[str, Any](), False
        with suppress(FileNotFoundError):
            for action in log.actions(version):
                info = dict(action.get("commitInfo") or info)
                changes = changes or any(action.get(kind, {}).get("dataChange") for kind in ("add", "remove"))
        if changes or _commit_record(info).get("data"):
            yield version, info


def _commit_record(info: dict[str, Any]) -> dict[str, Any]:
    """Return the record in one of our commits, {} for another program's."""
    if info.get("engineInfo") != "instep":
        return {}
    metadata: dict[str, Any] = json.loads(info.get("userMetadata") or "{}")
    return metadata


def _savepoint(table_state: DeltaTableState, then: DeltaSnapshot, info: dict[str, Any], *, current: bool) -> Savepoint:
    record, at = _commit_record(info), datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)
    before = state_at(table_state.log, table_state.ref, then)
    reason = _reason_not_restorable(table_state, before)
    state = table_state.state()
    recorded = before.record.loaded if before else None
    cursor = state.cursor if current and state else recorded.cursor if recorded else ""
    later: tuple[str, ...] = ()
    if before is not None and not reason:
        fields_then, own = {f.physical for f in before.fields}, table_state.record.table.by_name
        later = tuple(f.name for f in table_state.fields if f.physical not in fields_then and own[f.name].alias)
    rows, _ = then.files.rows
    return Savepoint(then.version, at, record.get("run", ""), rows, cursor, current, later, reason)


def _reason_not_restorable(state: DeltaTableState, before: DeltaTableState | None) -> str:
    if state.record.pending is not None:
        return "the table was replaced at the source and its new rows are not loaded yet"
    if before is None:
        return "the table was not ours then"
    if not {(f.physical, f.id) for f in before.fields} & {(f.physical, f.id) for f in state.layout}:
        return "its rows are those of an earlier generation: another table of that name"
    if [f.physical for f in before.by] != [f.physical for f in state.by]:
        return "its files lie in other partitions: load the table whole instead"
    return ""


def _at(state: DeltaTableState, version: int) -> DeltaTableState:
    is_readable = version in state.log.versions()
    before = state_at(state.log, state.ref, state.log.snapshot(version)) if is_readable else None
    if before is None:
        hint = "see `instep restore --list`"
        raise DestinationError(f"table {named(state.ref)} no longer has version {version}", hint=hint)
    lost = [str(path_of(before, f)) for f in before.files if not path_of(before, f).exists()]
    if lost:
        raise DestinationError(
            f"table {named(state.ref)}: version {version} lacks {len(lost)} of its files, such as {lost[0]}",
            hint="choose a later version: see `instep restore --list`",
        )
    return before


class DeltaSavepoints(DeltaFacet):
    """Versions that a table can be put back to."""

    def savepoints(self, ref: Ref) -> list[Savepoint]:
        """Return the versions that changed rows and can be read, newest first. Those whose files are gone are not
        looked for here: `rows_at` does."""
        table_state = require(self.warehouse, ref)
        versions = [*changes(table_state.log)]
        last = max((v for v, _ in versions), default=-1)
        points, times = list[Savepoint](), dict[frozenset[str], datetime]()
        for version, info in versions:
            then = table_state.log.snapshot(version)
            if then is not None:
                point = _savepoint(table_state, then, info, current=version == last)
                points.append(replace(point, made=times.setdefault(frozenset(then.files), point.at)))
        return points[::-1]

    def rows_at(self, ref: Ref, snapshot: int) -> int:
        """Return the number of rows of a version, after checking that each of its files exists."""
        return _at(require(self.warehouse, ref), snapshot).rows

    def restore(self, ref: Ref, snapshot: int, base: int, rows: int, commit: Commit) -> None:
        """Replace today's files by those of that version, in one commit."""
        table_state, state = loaded(self.warehouse, ref)
        table_state.record.check(commit.fence)
        now = max((v for v, _ in changes(table_state.log)), default=-1)
        if snapshot == now or (state.run == commit.run and _at(table_state, snapshot).files == table_state.files):
            return
        if now != base:
            raise Conflict(f"table {named(ref)} has changed since it was shown", hint="look again, then restore")
        before = _at(table_state, snapshot)
        then, today = before.snapshot.files, table_state.snapshot.files
        record = table_state.record.after_load(commit, rows, new=0, deleted=True)
        assert record.loaded is not None, "a load was just recorded"
        change = DeltaCommit(table_state, replace(record, loaded=replace(record.loaded, last=())))
        change.remove = sorted({path for path, _ in today.ids - then.ids})
        change.add = [{**f, "dataChange": True} for f in then.of_paths({path for path, _ in then.ids - today.ids})]
        change.land("RESTORE", commit, self.warehouse)
