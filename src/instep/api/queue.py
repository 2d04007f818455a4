"""Work that takes long, put into the server's queue for its workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from instep import model
from instep.api.server import Opened, Queued
from instep.control import detector
from instep.control.queue import ask, key_of
from instep.errors import InstepError
from instep.model import JobKind

NO_WORKER = "no worker is running: it begins once one is (`instep worker`, or `instep server --with-worker`)"


class StoredQueue:
    """Both calls take part in the store's transaction that is open."""

    def __init__(self, opened: Opened) -> None:
        self._opened, self._store = opened, opened.store

    def enqueue(self, connection: str, kind: str, *, options: Mapping[str, Any], who: str, why: str) -> Queued:
        """The same work that waits or runs already is answered instead. `note` says if nobody is there to do it."""
        said = {name: value for name, value in options.items() if value}
        with self._store.transaction():
            running = self._store.jobs.running(connection, cast(JobKind, kind))
            if running and not running.stop and (kind == "detect" or running.key == key_of(said)):
                return self._shown(running, fresh=False)
            if kind == "detect":
                asked = detector.ask(self._store, self._opened.project, connection, who)
            else:
                asked = ask(self._store, connection, cast(JobKind, kind), who, said)
            return self._shown(asked.job, asked.new)

    def get(self, job: str) -> Queued | None:
        try:
            found = self._store.jobs.get(job)
        except InstepError:
            return None
        return self._shown(found, fresh=False) if found.id == job else None

    def _shown(self, job: model.Job, fresh: bool) -> Queued:
        note = NO_WORKER if job.status == "queued" and not self._store.workers.live() else ""
        return Queued(job.id, job.connection, job.kind, job.status, fresh, note)
