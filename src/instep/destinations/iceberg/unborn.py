"""Tables that are made by the commit of their first files: until then this process alone knows them.

So readers never see a table without its rows, and a first load is one commit instead of two. A process that dies
before it leaves nothing but the folder of a table that never was. Who makes the table later removes that folder, after
its own commit: from then on whoever was thought dead cannot make it any more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from instep.destinations.base import Ref
from instep.destinations.iceberg.catalog import Lake, Metadata
from instep.stage.place import children, remove

if TYPE_CHECKING:
    from instep.destinations.iceberg.commit import Change


class Unborn(Table):
    """A table that no catalog has yet. `created_by` is what its first commit begins with."""

    def __init__(self, lake: Lake, ref: Ref, change: Change) -> None:
        made = change.table
        super().__init__(made.name(), change.metadata, made.metadata_location, made.io, made.catalog)
        self.created_by = change.updates
        self._lake, self._ref = lake, ref

    @cached_property
    def described(self) -> Metadata:
        """Its metadata as JSON, as long as it is unborn."""
        return dict(json.loads(self.metadata.model_dump_json()))

    def leave(self) -> None:
        """The lake knows it no more: it is born, or another is in its place."""
        self._lake.births.unborn.pop(self._ref, None)

    def clear(self) -> None:
        """Removes what others have begun of this table and never made."""
        lake, end = self._lake, _end(self._ref)
        begun = [name for name in _found(lake, self._ref[0]) if name.endswith(end)]
        if begun:
            known = {str(metadata["location"]) for metadata in lake.metadata(lake.refs()).values()}
            for location in {f"{lake.place_of(self._ref[0])}/{name}" for name in begun} - known:
                remove(location, lake.io())


@contextmanager
def born_with_rows(lake: Lake) -> Iterator[None]:
    """Tables that are made within it appear with their first rows; those that got none, at its end. Nothing of them is
    there if it ends in an error."""
    births = lake.births
    births.open = True
    try:
        yield
        for ref in list(births.unborn):
            bear(lake, ref)
    finally:
        births.open = False
        births.unborn.clear()
        births.abandoned.clear()


def bear(lake: Lake, ref: Ref) -> None:
    """Makes the table now, without rows, if it is unborn. Raises Conflict if another is there by now."""
    from instep.destinations.iceberg.commit import Change

    if (table := lake.births.unborn.get(ref)) is not None:
        Change(table).land_new()


def location_of_unborn(lake: Lake, ref: Ref) -> str:
    """A folder whose name tells the table that is to be in it."""
    _found(lake, ref[0])
    return f"{lake.new_location(ref)}{_end(ref)}"


def _found(lake: Lake, namespace: str) -> list[str]:
    """The folders that were there before this process began one; looked up once."""
    known = lake.births.abandoned
    if namespace not in known:
        known[namespace] = children(lake.place_of(namespace), lake.io())
    return known[namespace]


def _end(ref: Ref) -> str:
    return f"-{hashlib.sha256(json.dumps(ref).encode()).hexdigest()[:16]}"
