"""What a sync takes for the source's schema: a new look, or the last one while it is fresh enough.

A fresh one counts only as long as every accepted table is as it was seen then: rows are never read by a schema that
has moved, however young the last look is.
"""

from __future__ import annotations

from instep.schema.planning.projection import pair_tables
from instep.sources.base import Discovery, Snapshot
from instep.sync.context import SyncContext
from instep.sync.detection.detect import has_weak_ids, to_discovery


def current_discovery(context: SyncContext, snapshot: Snapshot, *, rely: bool) -> tuple[Discovery, bool]:
    """(the source's schema, whether it is the stored one, so that nothing is detected anew)."""
    known = _recent(context) if rely else None
    if known is None:
        return snapshot.discover(), False
    if not has_weak_ids(known.catalog) and context.source.fingerprint() == known.fingerprint:
        return known, True
    now = snapshot.discover()
    return (known, True) if _as_accepted(context, known, now) else (now, False)


def _recent(context: SyncContext) -> Discovery | None:
    """Return the last look, if it is younger than the connection's setting and something was accepted since."""
    age = context.store.discoveries.age(context.name)
    if age is None or not 0 <= age < context.detect_every or context.store.accepted.latest(context.name) is None:
        return None
    known = context.store.discoveries.get(context.name)
    return to_discovery(known) if known else None


def _as_accepted(context: SyncContext, known: Discovery, now: Discovery) -> bool:
    """Return whether the accepted tables are the same as then, on the same server, and may be read as then."""
    if now.identity != known.identity:
        return False
    tables = pair_tables(context.store.accepted.catalog(context.name).tables, known.catalog).values()
    closed = {path[:2] for path in now.denied.keys() - known.denied.keys()}
    return all(now.catalog.get(t.ref) == t and t.ref not in closed for t in tables)
