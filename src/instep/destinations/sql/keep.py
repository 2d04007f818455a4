"""What is kept beside the tables of a database: dropped columns until their time is over, and copies."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace

from instep.destinations.base import Ref, UndropReport
from instep.destinations.sql.evolve import latest
from instep.destinations.sql.records import Record
from instep.errors import Conflict, DestinationError

DAY_MS = 86_400_000


def undrop_report_of(ref: Ref, record: Record | None, column: str, there: Collection[str]) -> UndropReport:
    """A dropped column waits in the table itself: only rows that came since have no value in it. `there` are the
    columns that the table has."""
    if record is None:
        return UndropReport(f"table {'.'.join(ref)} is not there")
    if (old := latest(record.parked, column)) is not None:
        return UndropReport(written=old.written)
    back = column in record.table.by_name and column in there
    return UndropReport() if back else UndropReport(f"no column {column!r} is kept any more")


def copy_of(record: Record, place: Ref) -> Record:
    """Return the record of a copy of the table as it is now."""
    table = replace(record.table, schema=place[0], name=place[1])
    origin = json.dumps([record.place, record.version])
    return replace(record, table=table, place=f"copy of {record.place}", parked=(), copy=origin)


def is_made(copy: Record, there: Record | None) -> bool:
    """Return whether this copy was made before; Conflict if something else has its name."""
    if there is not None and there.copy != copy.copy:
        raise Conflict(f"table {'.'.join(copy.ref)} is there already", hint="rename or purge that one first")
    return there is not None


def check_copy(record: Record) -> None:
    if not record.copy:
        why = f"table {'.'.join(record.ref)} is no copy of ours"
        raise DestinationError(why, hint="it is left alone: look at it first")
