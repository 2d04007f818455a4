"""Runs reported as OpenLineage events: START, then COMPLETE, FAIL or ABORT with the tables that were read and written;
between them an event for each table that a change has altered.

They are made from the store's own log of events, as metrics are. So no run waits for a receiver, one that was killed
is told, too, and what could not be delivered is sent later, in order, at least once.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from instep import __version__
from instep.egress.guard import EgressGuard
from instep.egress.http import post
from instep.errors import InstepError
from instep.logs import clean
from instep.model import Run, TableRun
from instep.monitoring.lineage_changes import CHANGES, Versions, altered
from instep.monitoring.openlineage import LineageTables, State, dataset_event, event, facet, run_id
from instep.project.project import Project
from instep.project.sections.channels import LineageSection
from instep.store.history.recorded_event import LoggedEvent
from instep.store.store import Store

_log = logging.getLogger("instep.lineage")
NAME = "lineage"
RUNS = ("run.started", "run.ended")
TYPES = (*RUNS, *CHANGES)
FIRST = 100
"""Events that are told when lineage is switched on over a store that has a past."""
BATCH = 100
TURN = 120.0
"""Seconds for which one process sends and the others do not."""
AGAIN = 30.0
"""Seconds after which a receiver that has failed is tried again."""
PASSING = (408, 425, 429)
_STATES: dict[str, State] = {"done": "COMPLETE", "failed": "FAIL", "partial": "FAIL"}
"""The state of an event by the status of a run; others were stopped, as those whose process died."""


class NotTaken(InstepError):
    """The receiver could not be reached, or failed; it may take the event later."""


@dataclass(frozen=True)
class Lineage:
    store: Store
    project: Project
    settings: LineageSection
    guard: EgressGuard

    @cached_property
    def _versions(self) -> Versions:
        return Versions(self.project, self.store)

    def send(self, seconds: float = 60.0) -> int:
        """Send what is new, unless another process does; begins with no event after so many seconds. Answers how many
        events went out. Raises NotTaken if the receiver fails: what is left comes later."""
        if not self.store.events.after(self.store.positions.at(NAME), types=TYPES, limit=1):
            return 0
        number = self.store.positions.claim(NAME, TURN)
        if number is None:
            return 0
        begun, sent, wait = time.monotonic(), 0, 0.0
        try:
            for logged in self._new(number):
                for document in self.documents(logged):
                    self._deliver(logged, document)
                    sent += 1
                self.store.positions.advance(NAME, logged.number)
                if time.monotonic() - begun > min(seconds, TURN / 2):
                    break
        except NotTaken:
            wait = AGAIN
            raise
        finally:
            self.store.positions.leave(NAME, wait)
        return sent

    def _new(self, number: int) -> Iterator[LoggedEvent]:
        if not number:
            past = self.store.events.latest(types=TYPES, limit=FIRST)
            number = past[-1].number - 1 if past else 0
        while events := self.store.events.after(number, types=TYPES, limit=BATCH):
            yield from events
            number = events[-1].number

    def documents(self, logged: LoggedEvent) -> list[dict[str, Any]]:
        """Return the documents of one event; none for a purged run, or a connection that is not in the project."""
        if logged.type in CHANGES:
            return [dataset_event(logged.at, dataset) for dataset in altered(self._versions, self.store, logged)]
        try:
            run = self.store.runs.get(logged.data["run"])
        except InstepError:
            return []
        if logged.type == "run.started":
            return [event("START", logged.at, self._run(run), self._job(run))]
        state: State = "ABORT" if run.error.startswith("interrupted: ") else _STATES.get(run.status, "ABORT")
        inputs, outputs = self._tables(run, logged)
        why = str(logged.data.get("error") or _failures(self.store.runs.tables(run.id)))
        return [event(state, logged.at, self._run(run, why), self._job(run), inputs, outputs)]

    def _run(self, run: Run, error: str = "") -> dict[str, Any]:
        facets = facet("processing_engine", name="instep", version=__version__)
        if error:
            facets |= facet("errorMessage", message=clean(error), programmingLanguage="python")
        return {"runId": run_id(self._namespace, run.connection, run.id), "facets": facets}

    def _job(self, run: Run) -> dict[str, Any]:
        kind = facet("jobType", processingType="BATCH", integration="INSTEP", jobType=run.kind.upper())
        return {"namespace": self._namespace, "name": f"{run.connection}.{run.kind}", "facets": kind}

    @property
    def _namespace(self) -> str:
        return self.settings.namespace or self.project.name

    def _tables(self, run: Run, logged: LoggedEvent) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the tables that the run has loaded, as they were accepted when it ended. Nothing of a connection that
        is no longer in the project."""
        done = [t for t in self.store.runs.tables(run.id) if t.status == "done"]
        if not done:
            return [], []
        try:
            tables = LineageTables.at(self.project, self.store, run.connection, logged.at)
        except InstepError:
            return [], []
        pairs = [pair for run_of_table in done if (pair := tables.pair(run_of_table)) is not None]
        return [p[0] for p in pairs], [p[1] for p in pairs]

    def _deliver(self, logged: LoggedEvent, document: dict[str, Any]) -> None:
        body = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
        if self.settings.file:
            _append(Path(self.settings.file), body)
            return
        settings, headers = self.settings, {**self.settings.headers, "Content-Type": "application/json"}
        try:
            answer = post(self.guard, settings.url, body, headers, timeout=settings.timeout, ca=settings.ca)
        except InstepError as error:
            raise NotTaken(error.message, hint=error.hint) from None
        if answer.status >= 500 or answer.status in PASSING:
            raise NotTaken(f"the receiver answers {answer.status}")
        if not 200 <= answer.status < 300:  # it would refuse it for ever, and all later ones would wait
            _log.warning(
                "the receiver of lineage refuses an event of connection %s (%s, number %d): %d",
                logged.connection,
                logged.type,
                logged.number,
                answer.status,
            )


def _failures(tables: list[TableRun]) -> str:
    failed = [t for t in tables if t.status == "failed"]
    return "; ".join(f"{'.'.join(filter(None, t.table))}: {t.error}" for t in failed[:5])


def _append(file: Path, line: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as opened:
            opened.write(line + b"\n")
    except OSError as error:
        raise NotTaken(f"{file} cannot be written: {error.strerror}", hint="name another file") from None
