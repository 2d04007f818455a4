"""Expire old snapshots with the files that only they reference, and delete orphaned files of a table.

A snapshot stays while a branch or tag stands on it (undo, restore and kept tables have theirs), and so does what lies
between the table's state and the last load's record. Nothing outside a table's own place is ever deleted.

Deletes what dead runs wrote for a table and no snapshot of it names: staged files, and rows never committed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemovePartitionSpecsUpdate, RemoveSnapshotsUpdate, TableUpdate

from instep.crash import crashpoint
from instep.destinations.base import MaintenanceSpec, Ref
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.deferred_create import clear_dead
from instep.destinations.iceberg.commit.shard_table import ShardTable, own_data, own_quarantine
from instep.destinations.iceberg.evolve.undo import expired, now_ms, purge, remember
from instep.destinations.iceberg.maintain.compact import maintained_now
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.records import RUN, STATE, is_ours, is_rolled_back, loaded_at
from instep.destinations.iceberg.metadata.shards import shards_of
from instep.destinations.iceberg.metadata.updates import remove_ref
from instep.destinations.iceberg.write.load import load_ours
from instep.errors import Conflict, DestinationError
from instep.schema.maintenance import DAY_MS, Maintenance, expirable_snapshots
from instep.stage.files.buckets import AZURE, container_path
from instep.stage.files.place import StorageFolder, children, delete_files, keep_only

Metadata = Mapping[str, Any]


def expired_snapshots(metadata: Metadata, how: Maintenance, now: int) -> tuple[int, ...]:
    """Return the ids of snapshots that may expire, from metadata alone."""
    snapshots = [(s["snapshot-id"], s["timestamp-ms"]) for s in metadata.get("snapshots", ())]
    if not shards_of(metadata["properties"]):
        return expirable_snapshots(snapshots, _retained_snapshots(metadata), how, now)
    return _expired_of_shards(metadata, lambda retained: expirable_snapshots(snapshots, retained, how, now))


def _expired_of_shards(metadata: Metadata, going: Callable[[set[int]], tuple[int, ...]]) -> tuple[int, ...]:
    """Return the ids that may expire of a shared table. A shard's last load is retained while the table could be
    restored to a snapshot from before it, as only then it must be recognised by its rows. Nothing expires while a
    shard's load is not part of the table."""
    if any(is_rolled_back(metadata, name) for name in shards_of(metadata["properties"])):
        return ()
    order = {s["snapshot-id"]: s.get("sequence-number", 0) for s in metadata.get("snapshots", ())}
    snapshots = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    snapshots.add(metadata.get("current-snapshot-id") or -1)
    loads = sorted(loaded_at(metadata).intersection(order), key=lambda at: order[at])
    snapshots.update(loads)
    for at in loads:
        remaining = order.keys() - going(snapshots)
        if min(remaining, key=lambda other: order[other]) != at:
            break
        if at in going(snapshots - {at}):
            snapshots -= {at}
    return going(snapshots)


def _retained_snapshots(metadata: Metadata) -> set[int]:
    parents = {s["snapshot-id"]: s.get("parent-snapshot-id") for s in metadata.get("snapshots", ())}
    snapshots = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    at, loaded = metadata.get("current-snapshot-id"), (json.loads(metadata["properties"].get(STATE, "null")) or {})
    if loaded.get("snapshot") in parents:
        chain = []
        while at in parents:
            chain.append(at)
            if at == loaded["snapshot"]:
                return {*snapshots, *chain}
            at = parents[at]
    return {*snapshots, metadata.get("current-snapshot-id") or -1, loaded.get("snapshot") or -1}


def expire(lake: Lake, ref: Ref, work: MaintenanceSpec) -> tuple[int, int]:
    """Expire snapshots; return their number and that of their files. A crash after the commit leaves files that
    `orphans` finds."""
    table, metadata = load_ours(lake, ref)
    gone = expired_snapshots(metadata, work.how, now_ms())
    if not gone:
        return 0, 0
    old = [s for s in table.metadata.snapshots if s.snapshot_id in set(gone)]
    remaining = [s for s in table.metadata.snapshots if s.snapshot_id not in set(gone)]
    files = _only_of(table, old, remaining)
    let_go(table, gone, work)
    crashpoint("maintain.expired")
    if table.metadata.properties.get("gc.enabled", "true") != "true":
        return len(gone), 0
    removed = sum(_deleted(table.io, file) for file in sorted(files))
    crashpoint("maintain.removed")
    return len(gone), removed


def let_go(table: Table, gone: Sequence[int], work: MaintenanceSpec) -> None:
    """Take snapshots out of the table in a fenced commit; no file is deleted."""
    remaining = [s for s in table.metadata.snapshots if s.snapshot_id not in set(gone)]
    change = TableCommit(table)
    change.update(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(gone)}), *_specs(table, remaining))
    change.properties(maintained_now(change))
    _land(change, table, work.fence)


def _land(change: TableCommit, table: Table, fence: int) -> None:
    try:
        change.land(fence)
    except ValueError as error:  # pyiceberg's word for a snapshot, or a spec, that is gone
        if not isinstance(table, ShardTable):
            raise
        raise Conflict(f"another shard has maintained table {'.'.join(table.name())} meanwhile") from error


def _specs(table: Table, remaining: Sequence[Snapshot]) -> Iterator[TableUpdate]:
    """Yield the removal of partition specs whose last snapshot with files expires: columns are no longer guarded
    because of them."""
    used = {m.partition_spec_id for m in _manifests(table, remaining).values()} | {table.metadata.default_spec_id}
    if gone := [s.spec_id for s in table.metadata.partition_specs if s.fields and s.spec_id not in used]:
        yield RemovePartitionSpecsUpdate.model_validate({"spec-ids": gone})


def _deleted(io: FileIO, file: str) -> bool:
    with suppress(OSError):
        io.delete(file)
        return True
    return False


def _only_of(table: Table, old: Sequence[Snapshot], remaining: Sequence[Snapshot]) -> set[str]:
    """Return files below the table's place that these snapshots name and the rest does not: lists, manifests, data
    files."""
    staying, going = _manifests(table, remaining), _manifests(table, old)
    alone = [m for path, m in going.items() if path not in staying]
    lists = {s.manifest_list for s in old} - {s.manifest_list for s in remaining}
    data = set(_entries(table, alone)) - set(_entries(table, staying.values(), live=True)) if alone else set()
    own = plain(table.location()) + "/"
    return {f for f in (*lists, *(m.manifest_path for m in alone), *data) if plain(f).startswith(own)}


def _manifests(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    manifests = {}
    for snapshot in snapshots:
        manifests.update({m.manifest_path: m for m in snapshot.manifests(table.io)})
    return manifests


def _entries(table: Table, manifests: Iterable[ManifestFile], *, live: bool = False) -> Iterator[str]:
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=live):
            yield entry.data_file.file_path


def plain(uri: str) -> str:
    """Return a URI without its scheme: URIs of one table have more than one spelling."""
    return re.sub(r"^file:/+", "/", uri) if uri.startswith("file:") else uri.split("://", 1)[-1]


def listed_path(uri: str) -> str:
    """Return a file's path as file systems list it."""
    path = plain(uri)
    netloc = path.partition("/")[0]
    return container_path(netloc) + path[len(netloc) :] if uri.partition("://")[0] in AZURE else path


def orphans(lake: Lake, ref: Ref, work: MaintenanceSpec) -> list[tuple[str, int]]:
    """Return (path, bytes) of files in the table's folders for data and metadata that no snapshot names, older than
    the safe age and than every active run. Raises if a manifest cannot be read, or if the listing does not show the
    table's own metadata as they are named: then nothing is known."""
    limit = now_ms() - work.how.orphan_age * DAY_MS
    limit = min(limit, work.live) if work.live is not None else limit
    table = load_ours(lake, ref)[0]
    place = StorageFolder(table.location(), lake.io())
    listed = [f for folder in (*_folders(table), "metadata") for f in _listed(place, folder)]
    own = listed_path(table.metadata_location)
    if own.startswith(place.resolve("metadata")[1]) and own not in {path for path, _, _ in listed}:
        raise DestinationError(
            f"a listing of {table.location()} does not show {own}, which is there",
            hint="orphans are not looked for; if no other program maintains the table, report this",
        )
    old = [(path, size) for path, size, at in listed if at < limit]
    if not old:
        return []
    named = {listed_path(f) for f in _named(load_ours(lake, ref)[0])}
    return [(path, size) for path, size in old if path not in named]


def _folders(table: Table) -> list[str]:
    """Return the folders below the table's location in which files are looked for.

    Files of other shards belong to runs that are not known here.
    """
    own = own_data(table).removeprefix(f"{table.location()}/")
    return [own, f"data/{table.shard_key[0]}={table.shard_key[1]}"] if isinstance(table, ShardTable) else [own]


def _listed(place: StorageFolder, folder: str) -> Iterator[tuple[str, int, float]]:
    """Yield files below a folder: path, bytes, milliseconds since 1970; those of an unknown age are new."""
    from pyarrow import fs

    filesystem, path = place.resolve(folder)
    for info in filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True)):
        if info.type == fs.FileType.File:
            at = info.mtime.timestamp() if info.mtime else time.time()
            yield info.path, info.size or 0, at * 1000


def _named(table: Table) -> Iterator[str]:
    manifests = _manifests(table, table.metadata.snapshots)
    yield from manifests
    yield from (s.manifest_list for s in table.metadata.snapshots)
    yield from _entries(table, manifests.values(), live=True)
    yield from (e.metadata_file for e in table.metadata.metadata_log)
    yield table.metadata_location
    yield from (s.statistics_path for s in table.metadata.statistics)
    yield from (s.statistics_path for s in table.metadata.partition_statistics)


def remove(lake: Lake, ref: Ref, files: Sequence[tuple[str, int]]) -> tuple[int, int]:
    """Delete orphans: how many, and their bytes. Folders that are empty by then go as well."""
    table = load_ours(lake, ref)[0]
    filesystem, own = StorageFolder(table.location(), lake.io()).resolve("data")
    count = size = 0
    for path, bytes in files:
        with suppress(OSError):
            filesystem.delete_file(path)
            count, size = count + 1, size + bytes
    from pyarrow import fs

    for folder in {path.rsplit("/", 1)[0] for path, _ in files} - {own.rstrip("/")}:
        with suppress(OSError):
            if folder.startswith(own) and not filesystem.get_file_info(fs.FileSelector(folder)):
                filesystem.delete_dir(folder)
    return count, size


_OF_FENCE = re.compile(r"upsert-(\d+)-")


def remove_uncommitted_files(lake: Lake, ref: Ref, runs: Mapping[str, int]) -> None:
    """Delete what these runs (fences by run id) wrote and did not commit: they can commit no more. Of a table that is
    not there, what they have begun."""
    table = lake.load(ref)
    if table is None:
        clear_dead(lake, ref, "", runs)
        return
    _remove_uncommitted_quarantine(lake, table, runs)
    clear_dead(lake, ref, table.location(), runs)
    data = own_data(table)
    names = children(data, lake.io())
    folders = [n for n in names if any(n == run or n.startswith(f"{run}-") for run in runs)]
    files = [n for n in names if (m := _OF_FENCE.search(n)) and int(m[1]) in runs.values()]
    if not folders and not files:
        return
    referenced = _known(table)
    for folder in folders:
        keep_only(f"{data}/{folder}", lake.io(), [path for path in referenced if f"/{folder}/" in path])
    known_names = {path.rsplit("/", 1)[-1] for path in referenced}
    # by name: what another process has written since they were listed stays
    delete_files(data, lake.io(), set(files) - known_names)


def _remove_uncommitted_quarantine(lake: Lake, table: Table, runs: Mapping[str, int]) -> None:
    """Delete quarantine files of runs that have committed no rows."""
    place = own_quarantine(table)
    committed = {s.summary.additional_properties.get(RUN) for s in table.metadata.snapshots if s.summary}
    committed.add((json.loads(table.properties.get(STATE, "null")) or {}).get("run"))
    gone = tuple(f"{run}-" for run in runs if run not in committed)
    if gone:
        delete_files(place, lake.io(), [n for n in children(place, lake.io()) if n.startswith(gone)])


def _known(table: Table) -> set[str]:
    """Return every file that a snapshot names, those that it removed included."""
    manifests = {m.manifest_path: m for s in table.metadata.snapshots for m in s.manifests(table.io)}
    return {
        entry.data_file.file_path
        for manifest in manifests.values()
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }


def purge_expired(lake: Lake, refs: Iterable[Ref], fence: int) -> list[str]:
    """Delete expired tags of these tables (one commit each) and expired dropped tables; return their names. Raises
    Fenced if a later run has claimed one of them."""
    days, gone = lake.config.undo_days, []
    for ref, metadata in lake.metadata(refs).items():
        if is_ours(metadata) and expired(metadata, days):
            gone += _forget(lake, ref, fence)
    return [*gone, *(".".join(ref) for ref in purge(lake))]


def _forget(lake: Lake, ref: Ref, fence: int) -> list[str]:
    table = lake.load(ref)
    if table is None:
        return []
    metadata = json.loads(table.metadata.model_dump_json())
    tags = expired(metadata, lake.config.undo_days)
    change = TableCommit(table)
    change.update(*(remove_ref(tag) for tag in tags if tag in table.metadata.refs))
    change.properties(remember(metadata, (), lake.config.undo_days))
    change.land(fence)
    return list(tags)
