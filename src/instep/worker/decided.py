"""Jobs that carry out what people have decided: a plan made and applied, a change taken back, a connection ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from instep.bootstrap import App
from instep.errors import InstepError
from instep.model import Job
from instep.sync.pipe import Pipe


def make_plan(app: App, job: Job) -> Mapping[str, Any]:
    """What applying the open changes does; `plan` is what `apply` takes. `drops`: what has to be named for it."""
    from instep.schema.explain import explain
    from instep.schema.plan import plan_to_dict, unnamed_drops
    from instep.sync.changes.evolve import preview

    found = preview(_pipe(app, job))
    return {
        "id": found.id,
        "plan": plan_to_dict(found.plan),
        "lines": list(explain(found.plan, found.impact)),
        "notes": [*found.partial, *found.old_names, *found.detection.notes],
        "waiting": list(found.waiting),
        "drops": [s.object for s in unnamed_drops(found.plan)],
    }


def apply(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: plan (the job that has made it), allow (patterns of what may be dropped)."""
    from instep.schema.plan import plan_from_dict
    from instep.sync.changes.evolve import evolve

    made = made_plan(app, job.connection, str(job.options.get("plan", "")))
    allowed = tuple(job.options.get("allow", ()))
    version = evolve(_pipe(app, job), plan_from_dict(made["plan"]), allowed, id=str(made["id"]))
    return {"version": version, "id": app.store.plans.history(job.connection, 1)[0].id}


def made_plan(app: App, connection: str, job: str) -> Mapping[str, Any]:
    """The result of a job that has made a plan for this connection; InstepError for any other."""
    made = app.store.jobs.get(job)
    if (made.connection, made.kind, made.status) != (connection, "plan", "done"):
        raise InstepError(f"job {job} has made no plan for connection {connection}", hint="make a plan first")
    return made.result


def undo(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: what (a change, run or plan), allow, preview (only say what it would do). Done, too, if the change was
    taken back before: by an attempt of this job that did not live to say so, or by somebody else."""
    from instep.sync.changes.undo import find, prepare, takeback, undone

    pipe, said = _pipe(app, job), job.options
    what, preview = str(said.get("what", "")), bool(said.get("preview"))
    if not preview and (version := undone(pipe, what)) is not None:
        return {"changes": [], "does": [], "drops": [], "limits": [], "left": {}, "version": version}
    made = prepare(pipe, find(pipe, what))
    found = {
        "changes": list(made.changes), "does": list(made.does), "drops": [s.object for s in made.drops],
        "limits": list(made.limits), "left": dict(made.left),
    }  # fmt: skip
    return found if preview else {**found, "version": takeback(pipe, made, tuple(said.get("allow", ())))}


def delete(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: tables (keep or drop), named (the connection's name again), abandon."""
    from instep.sync.leave import leave

    said = job.options
    drop = said.get("tables") == "drop"
    left = leave(
        _pipe(app, job), "drop" if drop else "keep", named=str(said.get("named", "")), abandon=bool(said.get("abandon"))
    )
    if app.store.objects.get("connection", job.connection):
        app.objects.delete("connection", job.connection)
    return asdict(left)


def _pipe(app: App, job: Job) -> Pipe:
    return replace(app.pipe(job.connection), who=job.who or "worker")
