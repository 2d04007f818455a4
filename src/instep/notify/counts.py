"""How much of a connection's source is new, deleted, updated and unchanged, by what a message says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from instep.notify.lines import Line
from instep.schema.counts import Count, Counts
from instep.schema.table import Catalog
from instep.store.store import Store


def counted(store: Store, lines: Iterable[Line]) -> Mapping[str, Counts]:
    """By connection, for those whose schema has changed and has been looked at."""
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        if line.kind and line.tone != "stopped":
            by_name.setdefault(line.connection, []).append(line)
    seen = {name: store.discoveries.get(name) for name in by_name}
    return {name: counts_of(found.catalog, by_name[name]) for name, found in seen.items() if found}


def counts_of(now: Catalog, lines: Iterable[Line]) -> Counts:
    """`now`: the source as it was seen last. Of a connection of which only a part is read, what is not read counts as
    unchanged."""
    told = list(lines)
    fresh = {line.table for line in told if line.kind == "table.added"}
    touched = {line.table for line in told if line.kind.startswith(("column.", "key.", "cursor.", "table."))}
    gone = {line.table for line in told if line.kind == "table.removed"}
    columns = {(line.table, line.column) for line in told if line.column and _changed(line)}
    schemas = {table.partition(".")[0] for table in touched if "." in table}
    made = {line.table for line in told if line.kind == "schema.added"}
    return Counts(
        _count(len(made), _of(told, "schema.removed"), len(schemas - made), len({t.schema for t in now.tables})),
        _count(len(fresh), len(gone), len(touched - fresh - gone), len(now.tables)),
        _count(
            _of(told, "column.added") + sum(line.columns for line in told if line.kind == "table.added"),
            _of(told, "column.removed") + sum(line.columns for line in told if line.kind == "table.removed"),
            len(columns), sum(len(t.live) for t in now.tables),
        ),
    )  # fmt: skip


def _changed(line: Line) -> bool:
    return line.kind.startswith("column.") and not line.kind.endswith((".added", ".removed"))


def _of(lines: Iterable[Line], kind: str) -> int:
    return sum(line.kind == kind for line in lines)


def _count(new: int, deleted: int, updated: int, total: int) -> Count:
    return Count(new, deleted, updated, max(0, total - new - updated))
