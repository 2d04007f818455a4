"""Work that takes long, put into the server's queue for its workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instep import model
from instep.control import detector
from instep.control.queue import ask, request_key
from instep.errors import InstepError
from instep.operations.registry import policy_of
from instep.server.context import OpenProject, Queued
from instep.store.store import Store
from instep.store.work.jobs import serves

NO_WORKER = "no worker is running: the job starts once there is one (`instep worker`, or `instep server --with-worker`)"


class StoredQueue:
    """Both calls take part in the store's transaction that is open."""

    def __init__(self, opened: OpenProject) -> None:
        self._opened, self._store = opened, opened.store

    def enqueue(self, connection: str, kind: str, *, options: Mapping[str, Any], who: str) -> Queued:
        """Queue a job, or return the one with the same work that waits or runs already. `note` says if no worker is
        there to do it."""
        values = {name: value for name, value in options.items() if value}
        with self._store.transaction():
            running = self._store.jobs.running(connection, kind)
            if running and not running.stop and self._same(running, request_key(kind, who, values), who):
                return shown(self._store, running, fresh=False)
            if kind == "detect":
                request = detector.ask(self._store, self._opened.project, connection, who)
            else:
                request = ask(self._store, connection, kind, who, values)
            return shown(self._store, request.job, fresh=request.new)

    def _same(self, running: model.Job, key: str, who: str) -> bool:
        """Return True if what runs does it."""
        if running.kind == "detect":
            return True
        four_eyes = policy_of(running.kind).shared and self._opened.project.model.four_eyes
        return running.key == key and (not four_eyes or serves(running.who, who))

    def get(self, job: str) -> Queued | None:
        try:
            stored = self._store.jobs.get(job)
        except InstepError:
            return None
        return shown(self._store, stored, fresh=False) if stored.id == job else None


def shown(store: Store, job: model.Job, *, fresh: bool) -> Queued:
    """Return a job as the API shows it, with the reason why it waits."""
    note = ""
    if job.status == "queued":
        pause = store.pauses.connection(job.connection) if not policy_of(job.kind).runs_while_paused else None
        note = f"connection {job.connection} is paused, so it waits: {pause.reason}" if pause else ""
        note = note or ("" if store.workers.live() else NO_WORKER)
    return Queued(job.id, job.connection, job.kind, job.status, fresh, note)
