"""Jobs about one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from instep.bootstrap import App
from instep.model import Job
from instep.worker.decided import pipe_of


def list_savepoints(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: table (a path)."""
    from instep.sync.changes.restore import savepoints

    table, points = savepoints(pipe_of(app, job), str(job.options.get("table", "")))
    times = ("at", "made")
    found = [asdict(p) | {t: moment.isoformat() for t in times if (moment := getattr(p, t))} for p in points]
    return {"table": table.path, "savepoints": [{**one, "id": str(one["id"])} for one in found]}
