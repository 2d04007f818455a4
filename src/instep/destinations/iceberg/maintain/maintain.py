"""A table's maintenance: compaction, manifests, snapshots, orphans, each by itself and again when the table moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from instep.destinations.base import Layout, Maintained, MaintenanceSpec, Ref
from instep.destinations.iceberg.commit.fence import check_fence
from instep.destinations.iceberg.evolve.undo import now_ms
from instep.destinations.iceberg.maintain import procedures
from instep.destinations.iceberg.maintain.compact import (
    MAINTAINED,
    CompactionPlan,
    compact,
    plan_compaction,
    tidy_manifests,
)
from instep.destinations.iceberg.maintain.expire import expire, expired_snapshots, orphans, remove
from instep.destinations.iceberg.metadata.catalog import Lake, LakeFacet
from instep.destinations.iceberg.metadata.records import FENCE, Metadata, load_state, owned_properties, read_pending
from instep.destinations.iceberg.metadata.shards import totals
from instep.errors import Conflict, DestinationError, Fenced
from instep.schema.maintenance import Maintenance, is_worn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES = 3
EXPIRE_BATCH = 10
"""Snapshots that a sync leaves, so that it does not expire one each time."""
T = TypeVar("T")


def _maintained(metadata: Metadata) -> dict[str, int]:
    maintained: dict[str, int] = json.loads(metadata["properties"].get(MAINTAINED, "{}"))
    return maintained


def _retry(step: Callable[[], T]) -> T:
    """Retry the step a few times if the table moves meanwhile."""
    for left in range(TRIES - 1, -1, -1):
        try:
            return step()
        except Fenced:
            raise
        except (Conflict, FileNotFoundError):  # the latter: another shard has let go of a snapshot that was looked at
            if not left:
                raise
    raise AssertionError("unreachable")


def _files(lake: Lake, ref: Ref, work: MaintenanceSpec) -> Maintained:
    plan = plan_compaction(lake, ref, work.how, moving=work.moving)
    done = _counts_before(plan)
    if plan.why_not:
        return replace(done, notes=(f"its files are left as they are: {plan.why_not}",))
    if plan.packs:
        packed = compact(lake, ref, plan, work)
        paths = {path for p in packed for path in p.paths}
        size = sum(t.file.file_size_in_bytes for t in plan.tasks if t.file.file_path in paths)
        done = replace(done, rewritten=len(paths), bytes_rewritten=size)
    elif plan.dangling or plan.has_too_many_manifests or plan.idle:
        tidy_manifests(lake, ref, plan, work)
    else:
        return done
    now = plan_compaction(lake, ref, work.how)
    return replace(done, files=len(now.tasks), bytes=now.bytes, deletes=len(now.deletes), manifests=now.manifests)


def _counts_before(plan: CompactionPlan) -> Maintained:
    files, size, deletes = len(plan.tasks), plan.bytes, len(plan.deletes)
    return Maintained(
        files, files, size, size, deletes, deletes, manifests_before=plan.manifests, manifests=plan.manifests
    )


def _preview(lake: Lake, ref: Ref, work: MaintenanceSpec) -> Maintained:
    """Preview maintenance from metadata alone: sizes of files not yet written are estimated from their live rows."""
    plan = plan_compaction(lake, ref, work.how, moving=work.moving)
    before = _counts_before(plan)
    gone = len(expired_snapshots(plan.metadata, work.how, now_ms()))
    lost = orphans(lake, ref, work) if work.deep else []
    done = replace(before, snapshots=gone, orphans=len(lost), orphan_bytes=sum(size for _, size in lost))
    if plan.why_not:
        return replace(done, notes=(f"its files are left as they are: {plan.why_not}",))
    old = [t for pack in plan.packs for t in pack]
    leaving = {d.file_path for t in old for d in t.delete_files} | {d.file_path for d in plan.dangling}
    return replace(
        done,
        files=before.files - len(old) + len(plan.packs),
        deletes=before.deletes - len(leaving),
        rewritten=len(old),
        bytes_rewritten=sum(t.file.file_size_in_bytes for t in old),
        manifests=min(before.manifests, 3) if plan.has_too_many_manifests else before.manifests,
    )


class IcebergMaintenance(LakeFacet):
    """Small files, deleted rows, manifests, old snapshots and orphans."""

    def latest_claim(self, ref: Ref) -> int:
        """Return the fence of the table's latest claim."""
        metadata = self.lake.metadata([ref]).get(ref)
        return int(metadata["properties"].get(FENCE, "0")) if metadata else 0

    def layout(self, ref: Ref) -> Layout:
        """Return the table's files; DestinationError for a table that is not there or not ours."""
        metadata = self.lake.metadata([ref]).get(ref)
        if metadata is None:
            raise DestinationError(f"table {'.'.join(ref)} is not in the lake", hint="sync it first")
        owned_properties(ref, metadata)
        recorded, total = _maintained(metadata), totals(metadata)
        at = datetime.fromtimestamp(recorded["at"] / 1000, UTC) if recorded else None
        files, size, deletes = (total.get(k, 0) for k in ("data-files", "files-size", "delete-files"))
        return Layout(files, size, deletes, len(metadata.get("snapshots", ())), at)

    def due(self, ref: Ref, how: Maintenance) -> bool:
        """Return whether to look closer. It may be due for nothing; it is never missed for long."""
        metadata = self.lake.metadata([ref]).get(ref)
        if metadata is None or read_pending(ref, metadata) or load_state(metadata) is None:
            return False
        total = totals(metadata)
        grown = total.get("data-files", 0) - _maintained(metadata).get("files", 0)
        worn = is_worn(total.get("records", 0), total.get("position-deletes", 0), how)
        return grown + 1 >= how.min_files or worn or len(expired_snapshots(metadata, how, now_ms())) >= EXPIRE_BATCH

    def maintain(self, ref: Ref, work: MaintenanceSpec) -> Maintained:
        """Maintain one table; rows and values stay as they are."""
        table = self.lake.load(ref)
        if table is not None:
            check_fence(table.metadata, work.fence, ".".join(ref))
        if work.dry_run:
            return _preview(self.lake, ref, work)
        if (session := procedures.session_for(self.lake, ref, work)) is not None:
            return self._by_procedures(ref, session, work)
        done = _retry(lambda: _files(self.lake, ref, work))
        if work.go_on():
            snapshots, removed = _retry(lambda: expire(self.lake, ref, work))
            done = replace(done, snapshots=snapshots, removed=removed)
        return self._without_orphans(ref, work, done) if work.deep and work.go_on() else done

    def _by_procedures(self, ref: Ref, session: SparkSession, work: MaintenanceSpec) -> Maintained:
        done = _retry(lambda: procedures.compact(self.lake, ref, session, work))
        if work.go_on():
            snapshots, removed = _retry(lambda: procedures.expire(self.lake, ref, session, work))
            done = replace(done, snapshots=snapshots, removed=removed)
        if not work.deep or not work.go_on():
            return done
        count = procedures.remove_orphans(self.lake, ref, session, work)
        return self._without_orphans(ref, work, done) if count is None else replace(done, orphans=count)

    def _without_orphans(self, ref: Ref, work: MaintenanceSpec, done: Maintained) -> Maintained:
        try:
            count, size = remove(self.lake, ref, orphans(self.lake, ref, work))
        except (OSError, DestinationError) as error:
            return replace(done, notes=(*done.notes, f"orphans were not looked for: {error}"))
        return replace(done, orphans=count, orphan_bytes=size)
