"""The detection of schema changes: at the project when a command asks for it, and as a job of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from instep.control import detector
from instep.errors import Conflict
from instep.model import Job, Review
from instep.operations.everyday.detect import Detected, DetectRequest
from instep.operations.spec import DirectWork
from instep.spans import span, tell
from instep.sync.context import SyncContext
from instep.worker.perform import error_text, is_final

if TYPE_CHECKING:
    from instep.sync.detection.detect import DetectionResult


class DetectChanges(DirectWork):
    """Compare source and accepted schema, decide, and pause what policy pauses.

    A job whose `options` say `apply` also propagates what policy accepts.
    """

    def run(self, context: SyncContext, request: DetectRequest) -> Detected:
        """Detect changes of one connection; its reviews are on record afterwards."""
        from instep.sync.detection.version_deadline import pause_if_due

        pause_if_due(context)
        return self._at_project(context) if self.job is None else self._by_worker(context, self.job)

    def document(self, result: Detected) -> Mapping[str, Any]:
        """Return the findings, or why nothing was detected."""
        document = dict(super().document(result))
        skipped = document.pop("skipped")
        return {"skipped": skipped} if skipped else document

    def _at_project(self, context: SyncContext) -> Detected:
        from instep.control.selection.unknown_tables import check_named
        from instep.sync.schema_changes.evolve import preview

        check_named(self.app.project, self.app.store, context.name)
        previewed = preview(context, count=True, pauses=True)
        return _detected(previewed.detection, previewed.reviews, previewed.waiting)

    def _by_worker(self, context: SyncContext, job: Job) -> Detected:
        from instep.sync.detection.detect import record, waiting_ids
        from instep.sync.detection.pause import pause_and_resume

        store, project = self.app.store, self.app.project
        if why := detector.idle(store, project, job):
            return Detected(skipped=why)
        begun = store.inspections.now()
        with span("detect"):
            seen_catalog, theirs = self._seen(context, job)
            reviews = record(context, seen_catalog)
            tell(changes=tuple(sorted(r.id for r in reviews.values())), shared=theirs)
        if not theirs:
            detector.share(store, project, job.connection, begun)
        pause_and_resume(context, seen_catalog, reviews)
        version = (
            _propagate(context, job)
            if job.options.get("apply") and seen_catalog.version and seen_catalog.applied
            else 0
        )
        waiting = waiting_ids(context, seen_catalog, reviews)
        done = _detected(seen_catalog, reviews, waiting, version, theirs)
        detector.disable_after_deletion(store, job, done.counts)
        return done

    def _seen(self, context: SyncContext, job: Job) -> tuple[DetectionResult, bool]:
        """Return the detection, and whether another connection of the source had looked for it."""
        from instep.sync.detection import detect as detection

        if job.kind != "detect":
            return detection.detect(context, context.source.discover()), False
        if shared := detector.shared(self.app.store, self.app.project, job):
            return detection.detect_from_shared(context, shared), True
        return detection.detect_if_changed(context), False


def _detected(
    detection: DetectionResult,
    reviews: Mapping[Any, Review],
    waiting: tuple[str, ...],
    version: int = 0,
    shared: bool = False,
) -> Detected:
    """Return the record of a detection. Pending is also what the next plan applies, or an answer that has not come."""
    return Detected(
        counts=detection.counts.to_dict(),
        changes=tuple(review.id for review in reviews.values()),
        waiting=waiting,
        pending=bool(waiting)
        or any(decision.applied or decision.effect == "waiting" for decision in detection.decisions),
        missing=tuple(detection.missing.values()),
        others=detection.others,
        version=version,
        shared=shared,
    )


def _propagate(context: SyncContext, job: Job) -> int:
    """Apply what policy accepts, unless something of it has paused the connection; return the accepted version."""
    from instep.sync.schema_changes.evolve import evolve, preview

    if context.store.pauses.connection(context.name):
        return 0
    try:
        shown = preview(context)
        return evolve(context, shown.plan, id=shown.id)
    except Exception as error:
        if is_final(job, error) and not isinstance(error, Conflict):
            detector.propagation_failed(context.store, job, error_text(error))
        raise
