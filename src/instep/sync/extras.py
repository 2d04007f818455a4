"""The columns over the limit of one run: recorded in the accepted tables, and read beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from instep.schema.extra import over_the_limit, with_extra
from instep.schema.read import ColumnRead, TableRead, pair_tables
from instep.schema.selection import column_is_on, hashed
from instep.schema.table import Catalog
from instep.sync.detect import Detection
from instep.sync.pipe import Pipe, Ref
from instep.sync.places import Places


def held_columns(detection: Detection) -> dict[Ref, tuple[str, ...]]:
    """Names of source columns over the limit, by accepted table as it is called once the decisions are applied."""
    places = Places.of(detection.decisions)
    found = over_the_limit(detection.decisions)
    return {places.after(changes[0]): tuple(c.after.name for c in changes) for changes in found.values()}


def record_extra(after: Catalog, detection: Detection) -> Catalog:
    """The accepted catalog that a plan leads to, with the names of what is kept as JSON."""
    source = pair_tables((t for t in after.tables if not t.retained), detection.source)
    return with_extra(after, held_columns(detection), source)


def extra_reads(pipe: Pipe, read: TableRead, held: Iterable[str]) -> tuple[ColumnRead, ...]:
    """How a table's extra columns are read: under names that no accepted column has. One that is off by now, or that
    the source has no more, is left out."""
    if read.table.extra is None:
        return ()
    taken, found = {c.column.name for c in read.columns}, []
    for name in held:
        column = read.source.by_name.get(name)
        if column is None or not column_is_on(pipe.selection, read.source, column)[0]:
            continue
        own = name
        while own in taken:
            own += "'"
        taken.add(own)
        found.append(
            ColumnRead(replace(column, name=own, key=0), column, hashed(pipe.selection, read.source.ref, name))
        )
    return tuple(found)
