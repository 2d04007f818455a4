"""The lock file of a connection's accepted schema, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.sync.changes.evolve import Preview


def lock_lines(app: App, document: dict[str, Any], here: str, *, kept: bool = True) -> list[str]:
    """The diff from the lock file to a document; without `kept` columns and tables that were kept after their removal
    do not count."""
    from instep.project.lock import lock_diff, lock_file, read_lock
    from instep.schema.lock import without_kept

    root, name = app.project.root, document["connection"]
    locked = read_lock(root, name)
    if locked is not None and not kept:
        locked, document = without_kept(locked), without_kept(document)
    return lock_diff(locked, document, there=str(lock_file(root, name).relative_to(root)), here=here)


def plan_check(app: App, connection: str, found: Preview) -> list[str]:
    """What the accepted schema and the lock file lack, by lines; empty if both are up to date. A store that has
    accepted nothing yet, as in CI, compares the lock file with what the source leads to."""
    from instep.schema.change import describe
    from instep.schema.lock import lock_document

    detection = found.detection
    new = [d for d in detection.decisions if d.applied or d.needs_review or d.effect == "waiting"]
    lines = [f"not accepted yet: {describe(d.change)}" for d in new if detection.version]
    document = lock_document(connection, found.plan.after)
    lock = lock_lines(app, document, "after this plan", kept=bool(detection.version))
    return [*lines, *lock]
