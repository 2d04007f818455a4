"""The way that large work of a plan takes: by tasks of Spark, part by part in this process, or in the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.destinations.facets import Destination
    from instep.model import EngineUse
    from instep.schema.planning.step import Step
    from instep.sync.schema_changes.evolve import PlanPreview

Line = tuple[str, str]
_DATABASES = ("duckdb", "postgres")
_JOINED = ("upsert", "cdc", "stream")
"""Modes whose rows are joined with those of the table."""


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

    naming = app.sync_context(connection).naming
    joined = [
        t for t in preview.plan.after.tables if t.ref in preview.choices and preview.choices[t.ref].mode in _JOINED
    ]
    sizes = destination.schema.sizes([destination_ref(t, naming) for t in joined])
    for ref, size in sizes.items():
        if size.rows and destination.write.is_large(ref):
            needs = engine.name != "spark" and destination.kind == "iceberg"
            yield _entry(ref, "merge", size.rows, "by Spark alone: set `engine: spark`" if needs else _parts(engine))


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
