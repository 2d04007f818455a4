"""Jobs about one table that a person has decided: another key, another cursor, its rows of before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from instep.bootstrap import App
from instep.errors import Conflict
from instep.model import Job
from instep.worker.decided import pipe_of


def set_key(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: table (a path), key (columns), way, allow (patterns of tables that may be emptied), preview (only say
    what it would do)."""
    from instep.sync.changes.rekey import carry_out, prepare

    pipe, said = pipe_of(app, job), job.options
    made = prepare(pipe, str(said.get("table", "")), list(said.get("key", ())), said.get("way", "rekey"))
    found = {**made.document(), "told": made.told()}
    if said.get("preview"):
        return found
    version, place = carry_out(pipe, made, tuple(said.get("allow", ())))
    return {**found, "version": version, "copy": place and list(place)}


def set_cursor(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: table (a path), column (none: no cursor), start, preview (only say what it would do)."""
    from instep.sync.changes.recursor import carry_out, prepare

    pipe, said = pipe_of(app, job), job.options
    made = prepare(pipe, str(said.get("table", "")), said.get("column"), str(said.get("start", "")))
    found = made.document()
    return found if said.get("preview") else {**found, "version": carry_out(pipe, made)}


def list_savepoints(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: table (a path)."""
    from instep.sync.changes.restore import savepoints

    table, points = savepoints(pipe_of(app, job), str(job.options.get("table", "")))
    times = ("at", "made")
    found = [asdict(p) | {t: moment.isoformat() for t in times if (moment := getattr(p, t))} for p in points]
    return {"table": table.path, "savepoints": [{**one, "id": str(one["id"])} for one in found]}


def restore(app: App, job: Job) -> Mapping[str, Any]:
    """`options`: table (a path), snapshot or at (a time), allow (patterns of tables that may be put back), preview
    (only say what it would do), base (the snapshot that the table has to be at)."""
    from instep.sync.changes.restore import prepare
    from instep.sync.changes.restore import restore as put_back

    pipe, said = pipe_of(app, job), job.options
    snapshot = int(said["snapshot"]) if said.get("snapshot") else None
    at = datetime.fromisoformat(said["at"]) if said.get("at") else None
    made = prepare(pipe, str(said.get("table", "")), snapshot, at)
    base = str(made.now.id)
    found = {**made.document(), "at": made.point.at.isoformat(), "base": base}
    if said.get("preview"):
        return found
    if said.get("base") not in (None, base):
        raise Conflict(f"table {made.table.path} has moved since it was looked at", hint="look again, then restore")
    return {**found, "run": put_back(pipe, made, tuple(said.get("allow", ()))).id}
