"""Jobs that people ask for: what changes do downstream, and a connection ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

from instep.bootstrap import App
from instep.model import Job
from instep.sync.context import SyncContext


def impact(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: change (the first characters of its id; else all that are open or planned), configured (models are
    those of the connection's `downstream`, and are judged), dialect. Else what is going to happen to the tables, for a
    client that has models."""
    from instep.plans.downstream import configured_models, impact_document
    from instep.sync.operations.impact import judged, looked
    from instep.sync.schema_changes.evolve import preview

    context, said = pipe_of(app, job), job.options
    models = configured_models(app, job.connection, str(said.get("dialect", ""))) if said.get("configured") else None
    found = looked(context, preview(context), str(said.get("change", "")))
    return asdict(found) if models is None else impact_document(judged(found, models))


def delete_connection(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: tables (keep or drop), named (the connection's name again), abandon."""
    from instep.control.connectors import forget_operations
    from instep.sync.operations.delete_connection import leave

    said = job.options
    fate: Literal["keep", "drop"] = "drop" if said.get("tables") == "drop" else "keep"
    named, abandon = str(said.get("named", "")), bool(said.get("abandon"))
    left = leave(pipe_of(app, job), fate, named=named, abandon=abandon)
    forget_operations(app.project, app.store, job.connection)
    if app.store.objects.get("connection", job.connection):
        app.objects.delete("connection", job.connection)
    return asdict(left)


def pipe_of(app: App, job: Job) -> SyncContext:
    """In the name of who has asked for the job."""
    return replace(app.sync_context(job.connection), who=job.who or "worker")
