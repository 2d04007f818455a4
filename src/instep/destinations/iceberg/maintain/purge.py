"""Deletes what dead runs wrote for a table and no snapshot of it names: staged files, and rows never committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from pyiceberg.table import Table

from instep.destinations.base import Ref
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.deferred_create import clear_dead
from instep.destinations.iceberg.commit.shard_table import own_data, own_quarantine
from instep.destinations.iceberg.evolve.undo import expired, purge, remember
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.records import RUN, STATE, is_ours
from instep.destinations.iceberg.metadata.updates import remove_ref
from instep.stage.files.place import children, keep_only

_OF_FENCE = re.compile(r"upsert-(\d+)-")


def remove_uncommitted_files(lake: Lake, ref: Ref, runs: Mapping[str, int]) -> None:
    """`runs`: fences by run id. Call it after a claim: what these runs have not committed by then, they never will."""
    table = lake.load(ref)
    if table is None:
        return
    _remove_uncommitted_quarantine(lake, table, runs)
    clear_dead(lake, ref, table.location(), runs)
    data = own_data(table)
    names = children(data, lake.io())
    folders = [n for n in names if any(n == run or n.startswith(f"{run}-") for run in runs)]
    files = [n for n in names if (m := _OF_FENCE.search(n)) and int(m[1]) in runs.values()]
    if not folders and not files:
        return
    known = _known(table)
    for folder in folders:
        keep_only(f"{data}/{folder}", lake.io(), [path for path in known if f"/{folder}/" in path])
    known_names = {path.rsplit("/", 1)[-1] for path in known}
    if lost := set(files) - known_names:
        keep_only(data, lake.io(), [f"{data}/{n}" for n in names if n not in lost])


def _remove_uncommitted_quarantine(lake: Lake, table: Table, runs: Mapping[str, int]) -> None:
    """Held values stay with the rows that their run has committed, and go if there are none."""
    place = own_quarantine(table)
    names = children(place, lake.io())
    committed = {s.summary.additional_properties.get(RUN) for s in table.metadata.snapshots if s.summary}
    committed.add((json.loads(table.properties.get(STATE, "null")) or {}).get("run"))
    gone = tuple(f"{run}-" for run in runs if run not in committed)
    if any(n.startswith(gone) for n in names):
        keep_only(place, lake.io(), [f"{place}/{n}" for n in names if not n.startswith(gone)])


def _known(table: Table) -> set[str]:
    """Return every file that a snapshot names, those that it removed included."""
    manifests = {m.manifest_path: m for s in table.metadata.snapshots for m in s.manifests(table.io)}
    return {
        entry.data_file.file_path
        for manifest in manifests.values()
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }


def purge_expired(lake: Lake, refs: Iterable[Ref], fence: int) -> list[str]:
    """Names of the tags that went from these tables (one commit each), and of the dropped tables that are deleted.
    Raises Fenced if a later run has claimed one of them."""
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
