"""A scratch copy of a lake's tables in which schema changes can be tried.

Each table's metadata is copied and names the same files, so that no row is copied. What is written goes into a folder
of the preview; nothing of the lake itself is written or deleted. Iceberg's own branches would not do: they share the
schema of their table.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from pyiceberg.table import Table

from instep.destinations.base import Ref
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.stand_in import write_current
from instep.errors import Blocked
from instep.stage.files.place import children, remove
from instep.temporary import temporary

FOLDER = "_instep_preview"
ABANDONED_SECONDS = 86_400
"""The age at which a preview's folder is taken for one whose process was killed."""
_OWN_PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.enabled")


@contextmanager
def lake_beside(lake: Lake, refs: Collection[Ref]) -> Iterator[Lake]:
    """Open a lake that has these tables as they are now; it and all that is written into it are deleted at the end.
    Raises Blocked where the warehouse is no folder and no bucket, but a name that only its catalog knows."""
    if not lake.is_sqlite and "://" not in lake.config.warehouse:
        raise Blocked(
            f"lake {lake.config.name} has no place for a preview: its warehouse is a name of its catalog",
            hint="`instep plan` and `instep impact` tell what a change does",
        )
    _remove_abandoned(lake)
    place = f"{lake.warehouse}/{FOLDER}-{int(time.time())}-{uuid.uuid4().hex[:12]}"
    with temporary("preview") as folder:
        properties = {**lake.io(), "uri": f"{folder}/catalog.db"}
        own = {"catalog": "sqlite", "warehouse": place, "properties": properties}
        config = lake.config.model_copy(update=own)
        try:
            beside = Lake(config)
            for ref in refs:
                if (table := lake.load(ref)) is not None:
                    _copy(beside, ref, table)
            yield beside
        finally:
            remove(place, lake.io())


def _remove_abandoned(lake: Lake) -> None:
    for name in children(lake.warehouse, lake.io()):
        kind, _, suffix = name.partition("-")
        begun = suffix.partition("-")[0]
        if kind == FOLDER and begun.isdigit() and int(begun) < time.time() - ABANDONED_SECONDS:
            remove(f"{lake.warehouse}/{name}", lake.io())


def _copy(beside: Lake, ref: Ref, table: Table) -> None:
    """Register a table whose metadata names the same snapshot, and whose own place is in the preview."""
    beside.ensure_namespace(ref[0])
    location = beside.new_location(ref)
    properties = {name: value for name, value in table.metadata.properties.items() if name not in _OWN_PLACES}
    path = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    write_current(table, path, location=location, properties={**properties, "gc.enabled": "false"})
    beside.catalog.register_table(ref, path)
