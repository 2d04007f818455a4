"""Jobs that carry out what people have decided: a plan made and applied, a change taken back, a connection ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

from instep.bootstrap import App
from instep.errors import InstepError
from instep.model import Job
from instep.sync.context import SyncContext


def make_plan(app: App, job: Job) -> Mapping[str, Any]:
    """What applying the open changes does; `plan` is what `apply` takes. `drops`: what has to be named for it.
    `options`: sample (rows to try type changes on; without it, nothing of what it costs), all (how every table is
    synced), current (refused if an approval does not count any more)."""
    from instep.plans.planned import planned
    from instep.schema.planning.plan import unnamed_drops
    from instep.sync.schema_changes.answer import refuse_stale
    from instep.sync.schema_changes.evolve import preview

    said = job.options
    found = preview(pipe_of(app, job))
    if said.get("current"):
        refuse_stale(found.detection)
    made = planned(app, job.connection, found, sample=said.get("sample"), every=bool(said.get("all")), keys=False)
    drops = [s.object for s in unnamed_drops(found.plan)]
    return {**made.to_dict(), "waiting": list(found.waiting), "drops": drops}


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


def apply(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: plan (the job that has made it), allow (patterns of what may be dropped)."""
    from instep.schema.planning.plan import plan_from_dict
    from instep.sync.schema_changes.evolve import evolve

    made = made_plan(app, job.connection, str(job.options.get("plan", "")))
    allowed = tuple(job.options.get("allow", ()))
    version = evolve(pipe_of(app, job), plan_from_dict(made["plan"]), allowed, id=str(made["id"]))
    return {"version": version, "id": app.store.plans.history(job.connection, 1)[0].id}


def made_plan(app: App, connection: str, job: str) -> Mapping[str, Any]:
    """The result of a job that has made a plan for this connection; InstepError for any other."""
    made = app.store.jobs.get(job)
    if (made.connection, made.kind, made.status) != (connection, "plan", "done"):
        raise InstepError(f"job {job} has made no plan for connection {connection}", hint="make a plan first")
    return made.result


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
