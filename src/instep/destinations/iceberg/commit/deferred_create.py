"""Tables that appear together with their first rows.

So readers never see a table without its rows, and a first load is one commit instead of two. A process that dies
before it leaves nothing but the folder of a table that never was. Who makes the table later removes that folder, after
its own commit: from then on whoever was thought dead cannot make it any more. What runs have left that died beside it
goes when such runs are removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from instep.destinations.base import Ref
from instep.destinations.iceberg.commit.commit import DeferredTable, TableCommit
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.stage.files.place import children, remove


@contextmanager
def deferred_creation(lake: Lake) -> Iterator[None]:
    """Defer the creation of tables in this block: each appears with its first rows, and those without rows at the
    end. If it ends in an error, none of them exists."""
    lake.deferred_creates.open = True
    try:
        yield
        for ref in list(lake.deferred_creates.deferred):
            create_deferred(lake, ref)
    finally:
        lake.deferred_creates.end()


def wait_for_rows(lake: Lake, ref: Ref, change: TableCommit) -> None:
    """Defer the creation of a table: what `change` makes is known to this process alone until rows are committed."""
    table = DeferredTable(
        change.table,
        change.metadata,
        change.updates,
        lambda: lake.deferred_creates.leave(ref),
        lambda: _clear(lake, ref),
    )
    lake.deferred_creates.wait(ref, table)


def create_deferred(lake: Lake, ref: Ref) -> None:
    """Make the table now, without rows, if its creation is deferred. Raises Conflict if another exists already."""
    if (table := lake.deferred_creates.deferred.get(ref)) is not None:
        TableCommit(table).land_new()


def deferred_location(lake: Lake, ref: Ref) -> str:
    """Return a folder whose name identifies the table that will be in it."""
    _found(lake, ref[0])
    return f"{lake.new_location(ref)}{_end(ref)}"


def _clear(lake: Lake, ref: Ref) -> None:
    """Remove what others have begun of a table that is made now, and never made."""
    _remove(lake, _unfinished_locations(lake, ref))


def clear_dead(lake: Lake, ref: Ref, current: str, runs: Collection[str]) -> None:
    """Remove the files of these dead runs, which began to create the table; `current`: the location of the table that
    another run has created, "" if none has."""
    others = {location for location in _unfinished_locations(lake, ref) if _name(location) != _name(current)}
    _remove(lake, {location for location in others if _is_of(runs, children(f"{location}/data", lake.io()))})


def _name(location: str) -> str:
    return location.rstrip("/").rsplit("/", 1)[-1]


def _is_of(runs: Collection[str], names: Sequence[str]) -> bool:
    """Return whether these runs, and no others, have staged files there."""
    return bool(names) and all(any(name == run or name.startswith(f"{run}-") for run in runs) for name in names)


def _unfinished_locations(lake: Lake, ref: Ref) -> set[str]:
    place, end = lake.place_of(ref[0]), _end(ref)
    return {f"{place}/{name}" for name in _found(lake, ref[0]) if name.endswith(end)}


def _remove(lake: Lake, locations: set[str]) -> None:
    """Remove the folders that belong to no table."""
    if locations:
        in_use = {str(metadata["location"]) for metadata in lake.metadata(lake.refs()).values()}
        for location in locations - in_use:
            remove(location, lake.io())


def _found(lake: Lake, namespace: str) -> list[str]:
    """Return the folders that were there before this process began one; looked up once."""
    cached = lake.deferred_creates.abandoned
    if namespace not in cached:
        cached[namespace] = children(lake.place_of(namespace), lake.io())
    return cached[namespace]


def _end(ref: Ref) -> str:
    return f"-{hashlib.sha256(json.dumps(ref).encode()).hexdigest()[:16]}"
