"""The lock file of a connection's accepted schema, compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.plans.planned import Planned


def lock_lines(root: Path, document: dict[str, Any], here: str, *, retained: bool = True) -> list[str]:
    """Return the diff from the lock file in this folder to a document; without `retained` columns and tables that were
    kept after their removal do not count."""
    from instep.project.files.lock import lock_diff, lock_file, read_lock
    from instep.schema.contracts.lock import without_retained

    name = document["connection"]
    locked = read_lock(root, name)
    if locked is not None and not retained:
        locked, document = without_retained(locked), without_retained(document)
    return lock_diff(locked, document, there=str(lock_file(root, name).relative_to(root)), here=here)


def plan_check(root: Path, made: Planned) -> list[str]:
    """Return what the accepted schema and the lock file lack, by lines; empty if both are up to date. A store that has
    accepted nothing yet, as in CI, compares the lock file with what the source leads to."""
    from instep.schema.contracts.lock import lock_document
    from instep.schema.planning.plan import plan_from_dict

    document = lock_document(made.connection, plan_from_dict(made.document["plan"]).after)
    return [*made.unaccepted, *lock_lines(root, document, "after this plan", retained=made.begun)]
