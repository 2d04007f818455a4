"""A table as it is stays readable under a name of its own, while the table itself goes on.

No file is copied: the copy's metadata names the table's snapshot, and a tag of the table keeps the files of that
snapshot from being expired. The copy's own metadata is all that is deleted with it.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress

from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from instep.destinations.base import Commit, Ref
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.evolve.undo import COPY_TAG, now_ms
from instep.destinations.iceberg.metadata.catalog import Lake, LakeFacet
from instep.destinations.iceberg.metadata.records import COPY, RUN, load_state
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is, remove_ref, set_tag
from instep.destinations.iceberg.write.load import IcebergLoads, load_ours
from instep.errors import Conflict, DestinationError


def _is_complete(lake: Lake, place: Ref, table: Table, main: Snapshot) -> bool:
    found = lake.load(place)
    if found is None:
        return False
    record = json.loads(found.metadata.properties.get(COPY, "{}"))
    if (record.get("uuid"), record.get("snapshot")) != (str(table.metadata.table_uuid), main.snapshot_id):
        raise Conflict(f"table {'.'.join(place)} is there already", hint="rename or purge that one first")
    return True


def _register(lake: Lake, table: Table, main: Snapshot, place: Ref, tag: str, commit: Commit) -> None:
    location = lake.new_location(place)
    record = {"uuid": str(table.metadata.table_uuid), "snapshot": main.snapshot_id, "tag": tag, "at": now_ms()}
    path = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    metadata = _alone(table.metadata, main, location, {COPY: json.dumps(record), RUN: commit.run})
    try:
        ToOutputFile.table_metadata(metadata, table.io.new_output(path), overwrite=True)
        lake.catalog.register_table(place, path)
    except TableAlreadyExistsError as error:
        raise Conflict(f"table {'.'.join(place)} is there already", hint="rename or purge that one first") from error


def _alone(metadata: TableMetadata, main: Snapshot, location: str, record: dict[str, str]) -> TableMetadata:
    """Return the metadata of a table that has never had another snapshot; nobody who drops it deletes the shared
    files."""
    own = {name: value for name, value in metadata.properties.items() if not name.startswith("instep.")}
    return metadata.model_copy(
        update={
            "table_uuid": uuid.uuid4(),
            "location": location,
            "properties": {**own, **record, "gc.enabled": "false"},
            "snapshots": [main],
            "refs": {MAIN: SnapshotRef.model_validate({"snapshot-id": main.snapshot_id, "type": "branch"})},
            "snapshot_log": [],
            "metadata_log": [],
        }
    )


def _claimed(lake: Lake, table_uuid: str, fence: int) -> Table | None:
    """Return the table that the copy was made of, whatever it is called by now; claimed, unless it waits as dropped."""
    refs = lake.refs()
    ref = next((r for r, m in lake.metadata(refs).items() if m.get("table-uuid") == table_uuid), None)
    if ref is not None and ref[0] != lake.dropped:
        IcebergLoads(lake).claim(ref, fence)
    return lake.load(ref) if ref else None


class IcebergClones(LakeFacet):
    """Copies of tables: the same files under another name."""

    def clone_table(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        """Makes the copy and returns its rows, soft-deleted ones included; None, and no copy, for a table without rows.

        A copy of this very snapshot that is there already is fine; Conflict if anything else has the name.
        """
        table, metadata = load_ours(self.lake, ref)
        main = table.metadata.current_snapshot()
        state = load_state(metadata)
        if main is None or (state is not None and state.rows == 0):
            return None
        if not _is_complete(self.lake, place, table, main):
            tag = f"{COPY_TAG}{place[1]}"
            if tag not in table.metadata.refs:
                change = TableCommit(table)
                change.update(set_tag(tag, main.snapshot_id))
                change.require(ref_is(MAIN, main.snapshot_id))
                change.land(commit.fence)
            _register(self.lake, table, main, place, tag, commit)
        if state is not None:
            return state.rows
        return int(main.summary.additional_properties.get("total-records", 0)) if main.summary else 0

    def purge_clone(self, place: Ref, fence: int) -> None:
        """Deletes a copy; the files that only it still names are the table's to expire. One that is gone is fine.

        Raises DestinationError for a table that is no copy.
        """
        found = self.lake.load(place)
        if found is None:
            return
        if COPY not in found.metadata.properties:
            raise DestinationError(
                f"table {'.'.join(place)} is no copy of ours", hint="it is left alone: look at it first"
            )
        recorded = json.loads(found.metadata.properties[COPY])
        if (table := _claimed(self.lake, recorded["uuid"], fence)) is not None and recorded[
            "tag"
        ] in table.metadata.refs:
            change = TableCommit(table)
            change.update(remove_ref(recorded["tag"]))
            change.land(fence)
        with suppress(NoSuchTableError):
            self.lake.catalog.drop_table(place)
        with suppress(OSError):
            found.io.delete(found.metadata_location)
