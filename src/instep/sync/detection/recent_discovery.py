"""What a sync takes for the source's schema: a new look, or the last one while it is fresh enough.

A fresh one counts only as long as every accepted table is as it was seen then: rows are never read by a schema that
has moved, however young the last look is.
"""

from __future__ import annotations

from instep.schema.planning.projection import pair_tables
from instep.sources.base import Discovery, Snapshot
from instep.sync.context import SyncContext
from instep.sync.detection.detect import has_weak_ids, seen_then


def seen_now(pipe: SyncContext, snapshot: Snapshot, *, rely: bool) -> tuple[Discovery, bool]:
    """(the source's schema, whether it is the stored one, so that nothing is detected anew)."""
    known = _recent(pipe) if rely else None
    if known is None:
        return snapshot.discover(), False
    if not has_weak_ids(known.catalog) and pipe.source.fingerprint() == known.fingerprint:
        return known, True
    now = snapshot.discover()
    return (known, True) if _as_accepted(pipe, known, now) else (now, False)


def _recent(pipe: SyncContext) -> Discovery | None:
    """The last look, if it is younger than the connection's setting and something was accepted since."""
    age = pipe.store.discoveries.age(pipe.name)
    if age is None or not 0 <= age < pipe.detect_every or pipe.store.accepted.latest(pipe.name) is None:
        return None
    known = pipe.store.discoveries.get(pipe.name)
    return seen_then(known) if known else None


def _as_accepted(pipe: SyncContext, known: Discovery, now: Discovery) -> bool:
    """Whether the accepted tables are the same as then, on the same server, and may be read as then."""
    if now.identity != known.identity:
        return False
    tables = pair_tables(pipe.store.accepted.catalog(pipe.name).tables, known.catalog).values()
    closed = {path[:2] for path in now.denied.keys() - known.denied.keys()}
    return all(now.catalog.get(t.ref) == t and t.ref not in closed for t in tables)
