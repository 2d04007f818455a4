"""A table's maintenance: small files put together, files and commits that only old versions need, orphans."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import unquote

from instep.destinations.base import Commit, Layout, Maintained, Ref, Upkeep
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import path_of, rows_in, write
from instep.destinations.delta.load import again
from instep.destinations.delta.log import Action, rows_of
from instep.destinations.delta.partition import place
from instep.destinations.delta.restore import changes
from instep.destinations.delta.table_state import DeltaTableState, find, missing, named, require
from instep.destinations.delta.warehouse import DeltaFacet, Warehouse, now_ms
from instep.errors import DestinationError, InstepError
from instep.schema.maintenance import DAY_MS, FileFacts, Maintenance, bins, expirable
from instep.stage.files.object_store import AnyPath, files_below

DOMAIN = "instep.maintained"
EXPIRE_BATCH = 10
"""Versions that a sync leaves, so that it does not expire one each time."""


def _domain(state: DeltaTableState) -> str:
    """Under which name the log has it; each shard's own."""
    return DOMAIN if state.record.within is None else f"{DOMAIN}.{state.record.within[1]}"


def _maintained(state: DeltaTableState) -> Mapping[str, int]:
    found: dict[str, int] = json.loads(state.snapshot.domains.get(_domain(state)) or "{}")
    return found


def _files(warehouse: Warehouse, ref: Ref, work: Upkeep) -> Maintained:
    """Small files in one commit that says that no row has changed."""
    state = require(warehouse, ref)
    count, size = len(state.files), state.bytes
    done = Maintained(count, count, size, size)
    if state.state() is None:
        return replace(done, notes=("its files are left as they are: it has not been loaded yet",))
    found = _bins(state, work.how)
    old = [f for one in found for f in one]
    if not old:
        return done
    done = replace(done, rewritten=len(old), bytes_rewritten=sum(int(f["size"]) for f in old))
    if work.dry_run:
        return replace(done, files=count - len(old) + len(found))
    change = DeltaCommit(state, state.record, remove=sorted(unquote(f["path"]) for f in old), keeps_rows=True)
    for one in found:
        rows = (batch for f in one for batch in rows_in(state, f, state.layout))
        change.add += [{**a, "dataChange": False} for a in write(state, state.layout, work.run, rows)]
    files = count - len(old) + len(change.add)
    change.domains[_domain(state)] = json.dumps({"at": now_ms(), "files": files})
    change.land("OPTIMIZE", Commit(work.run, work.fence), warehouse)
    work.on_progress(sum(rows_of(f) for f in old), sum(int(a["size"]) for a in change.add))
    after = size - done.bytes_rewritten + sum(int(a["size"]) for a in change.add)
    return replace(done, files=files, bytes=after)


def _bins(state: DeltaTableState, how: Maintenance) -> list[list[Action]]:
    """Return which files become one, each of them of one partition."""
    groups = defaultdict[object, list[Action]](list)
    for file in sorted(state.files, key=lambda f: (f.get("modificationTime", 0), f["path"])):
        groups[place(file)].append(file)
    return [[came[i] for i in one] for came in groups.values() for one in bins([_facts(state, f) for f in came], how)]


def _facts(state: DeltaTableState, file: Action) -> FileFacts:
    path_of(state, file)
    return FileFacts(int(file["size"]), rows_of(file))


@dataclass(frozen=True)
class _Expired:
    """Versions that may go; `before`: what was removed by then (milliseconds since 1970) only they need, and the first
    version that stays."""

    versions: tuple[int, ...] = ()
    before: float = 0
    first: int = 0


def _expired(warehouse: Warehouse, state: DeltaTableState, how: Maintenance) -> _Expired:
    found = [(version, int(info.get("timestamp", 0))) for version, info in changes(state.log)]
    gone = expirable(found, (), how, now_ms())
    remaining = [(v, at) for v, at in found if v not in gone]
    if not gone or not remaining:
        return _Expired()
    first, at = min(remaining)
    return _Expired(gone, min(at, now_ms() - warehouse.days * DAY_MS), first)


def _expire(warehouse: Warehouse, ref: Ref, work: Upkeep, done: Maintained) -> Maintained:
    state = require(warehouse, ref)
    old = _expired(warehouse, state, work.how)
    if not old.versions:
        return done
    live = {path_of(state, f) for f in state.snapshot.files.values()}
    last = dict[AnyPath, int]()  # a file may have come back and gone again
    for file in _removed(state):
        path = path_of(state, file)
        last[path] = max(last.get(path, 0), int(file.get("deletionTimestamp", 0)))
    there = [p for p, at in last.items() if at <= old.before and p not in live and p.is_relative_to(str(state.folder))]
    there = [p for p in there if p.exists()]
    if not work.dry_run:
        _delete(there)
        state.log.clean(old.first)
    return replace(done, snapshots=len(old.versions), removed=len(there))


def _removed(state: DeltaTableState) -> Iterator[Action]:
    """What any version that can be read says was removed."""
    yield from state.snapshot.gone.values()
    for version in state.log.versions():
        with suppress(FileNotFoundError):
            yield from (a["remove"] for a in state.log.actions(version) if a.get("remove"))


def _named(state: DeltaTableState) -> set[AnyPath]:
    """Return every file that a version that can be read names."""
    versions = state.log.versions()
    first = state.log.snapshot(versions[0])
    files: list[Action] = [*state.snapshot.files.values(), *_removed(state), *(first.files.values() if first else ())]
    for version in versions:
        with suppress(FileNotFoundError):
            files += [a["add"] for a in state.log.actions(version) if a.get("add")]
    return {path_of(state, f) for f in files}


def _orphans(state: DeltaTableState, work: Upkeep) -> list[tuple[AnyPath, int]]:
    """Data files that nothing names, older than the safe age and than every run that is alive, and their bytes."""
    limit = now_ms() - work.how.orphan_age * DAY_MS
    limit = min(limit, work.live) if work.live is not None else limit
    try:
        listed = list(files_below(state.folder / state.area))
    except OSError as error:
        raise DestinationError(f"table {named(state.ref)}: its files cannot be listed: {error.strerror}") from error
    old = [(p, s.st_size) for p, s in listed if s.st_mtime * 1000 < limit]
    known = _named(state) if old else set()
    return [(p, size) for p, size in old if p not in known]


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
        return Layout(len(table_state.files), table_state.bytes, 0, len(table_state.log.versions()), at)

    def due(self, ref: Ref, how: Maintenance) -> bool:
        """Return whether to look closer, by the log."""
        table_state = find(self.warehouse, ref)
        if table_state is None or table_state.state() is None:
            return False
        grown = len(table_state.files) - _maintained(table_state).get("files", 0)
        return grown + 1 >= how.min_files or len(_expired(self.warehouse, table_state, how).versions) >= EXPIRE_BATCH

    def maintain(self, ref: Ref, work: Upkeep) -> Maintained:
        """Maintain one table; rows and values stay as they are."""
        table_state = require(self.warehouse, ref)
        table_state.record.check(work.fence)
        done = again(lambda: _files(self.warehouse, ref, work))
        if work.go_on():
            done = _expire(self.warehouse, ref, work, done)
        if work.deep and work.go_on():
            lost = _orphans(require(self.warehouse, ref), work)
            done = replace(done, orphans=len(lost), orphan_bytes=sum(size for _, size in lost))
            if not work.dry_run:
                _delete(path for path, _ in lost)
        return done
