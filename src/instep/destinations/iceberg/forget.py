"""Lets go of what is kept for undoing once its time is over: tags on old snapshots, and tables that were dropped."""

from __future__ import annotations

import json
from collections.abc import Iterable

from instep.destinations.base import Ref
from instep.destinations.iceberg.catalog import Lake
from instep.destinations.iceberg.commit import Change
from instep.destinations.iceberg.records import is_ours
from instep.destinations.iceberg.undo import expired, purge, remember
from instep.destinations.iceberg.updates import remove_ref


def forget(lake: Lake, refs: Iterable[Ref], fence: int) -> list[str]:
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
    change = Change(table)
    change.update(*(remove_ref(tag) for tag in tags if tag in table.metadata.refs))
    change.properties(remember(metadata, (), lake.config.undo_days))
    change.land(fence)
    return list(tags)
