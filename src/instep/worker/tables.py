"""Jobs about one table that a person has decided: another key, another cursor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instep.bootstrap import App
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
