"""The way that large work of a plan takes: by tasks of Spark, part by part in this process, or in the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.destinations.base import Merge, MergePath, TableSize
    from instep.destinations.facets import Destination
    from instep.model import EngineUse
    from instep.schema.catalog.catalog import Table
    from instep.schema.planning.step import Step
    from instep.sources.base import TableStats
    from instep.stage.spec import StagedFile
    from instep.sync.schema_changes.evolve import PlanPreview
    from instep.sync.table_mode import TableMode

Line = tuple[str, str]
_DATABASES = ("duckdb", "postgres")


def large_work(
    app: App, connection: str, preview: PlanPreview, engine: EngineUse, *, every: bool
) -> list[dict[str, Any]]:
    """Return the rewrites of a plan, and with `every` the merges of its tables, that are too large for one process, or
    that a database does; chosen from metadata, as they will be."""
    destination = app.destination(app.project.destination_of(connection))
    rewrites = [s for s in preview.plan.steps if s.change.kind == "column.rewritten" and s.table in preview.impact]
    out = [path for step in rewrites if (path := _rewrite(destination, step, preview.impact[step.table].rows, engine))]
    return [*out, *_merges(app, connection, destination, preview, engine)] if every else out


def _rewrite(destination: Destination, step: Step, rows: int, engine: EngineUse) -> dict[str, Any] | None:
    from instep.destinations.types import casts_exactly
    from instep.schema.planning.step import RewriteColumn

    assert isinstance(step.change, RewriteColumn), "chosen by its kind"
    if destination.kind in _DATABASES:
        exact = casts_exactly(step.change.before.type, step.change.after.type)
        by = "in the database" if exact else "through this process, value by value"
    elif destination.write.is_large(step.table):
        by = _parts(engine)
    else:
        return None
    return _entry(step.table, "rewrite", rows, by)


def _merges(
    app: App, connection: str, destination: Destination, preview: PlanPreview, engine: EngineUse
) -> Iterator[dict[str, Any]]:
    from instep.schema.planning.naming import destination_ref
    from instep.sync.loading.history import reads_by_tasks

    naming, stats = app.sync_context(connection).naming, preview.detection.discovery.stats
    tables = {destination_ref(t, naming): t for t in preview.plan.after.tables if t.ref in preview.choices}
    for ref, size in destination.schema.sizes(list(tables)).items():
        table = tables[ref]
        if not size.rows or (load := _expected(table, preview.choices[table.ref], size, stats.get(table.ref))) is None:
            continue
        if table.history and reads_by_tasks(destination.write, ref, [*load.files, *load.how.keys]):
            yield _entry(ref, "history", size.rows, _parts(engine))
        by = _merge_text(destination.write.merge_path(ref, load.files, load.how), engine)
        if by:
            yield _entry(ref, "merge", size.rows, by)


@dataclass(frozen=True)
class _ExpectedMerge:
    """The merge that a sync is expected to do. The number of rows that a cursor or a log brings is unknown."""

    how: Merge
    files: tuple[StagedFile, ...] = ()


def _expected(table: Table, choice: TableMode, size: TableSize, stats: TableStats | None) -> _ExpectedMerge | None:
    """Return the merge of the next sync, None where rows are replaced or added without one."""
    from instep.destinations.base import Merge, expected_file

    rows = (stats.rows if stats else None) or size.rows or 0
    whole = (expected_file(rows, (size.bytes or 0) * rows // max(size.rows or 0, 1)),)
    key = tuple(c.alias or c.name for c in (table.by_name[name] for name in table.key))
    if choice.mode == "append":
        cursor = table.by_name[choice.cursor] if choice.cursor else None
        return _ExpectedMerge(Merge((), since=(cursor.alias or cursor.name, ""))) if cursor else None
    if choice.mode == "full_refresh" and not (key and any(c.retained for c in table.columns)):
        return None
    if choice.mode in ("cdc", "stream"):
        return _ExpectedMerge(Merge(key))
    if choice.cursor is None or choice.mode == "full_refresh":
        return _ExpectedMerge(Merge(key, complete=True, deletes=choice.deletes), whole)
    keys = (expected_file(rows, 0),) if choice.deletes != "ignore" else ()
    return _ExpectedMerge(Merge(key, keys=keys, deletes=choice.deletes))


def _merge_text(path: MergePath, engine: EngineUse) -> str:
    """Return where the rows of a merge meet, "" where that need not be told."""
    match path:
        case "alike":
            return f"in this process if at most `upsert_rows` rows differ, otherwise {_parts(engine)}"
        case "parts":
            return _parts(engine)
        case "spark":
            return _parts(engine) if engine.name == "spark" else "by Spark alone: set `engine: spark`"
    return ""


def _parts(engine: EngineUse) -> str:
    return (
        f"in parts, by tasks of {engine}" if engine.name == "spark" else "in parts, one after the other in this process"
    )


def _entry(ref: tuple[str, str], operation: str, rows: int, by: str) -> dict[str, Any]:
    return {"table": ".".join(ref), "operation": operation, "rows": rows, "by": by}


def large_lines(rewrites: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """Yield the findings of `large_work`, for people."""
    if rewrites:
        yield "Large tables", "bold"
    for rewrite in rewrites:
        yield f"  {rewrite['table']}: {rewrite['operation']} of {rewrite['rows']:,} rows {rewrite['by']}", ""
