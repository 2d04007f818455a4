"""Detects and decides: what the source has against what was accepted, and what policy says about each change.

Everything between the two catalogs and the decisions is pure; the store is read at the start and written by
`record` in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from instep.events import ChangeDetected, ChangeIgnored, Event, ReviewNeeded
from instep.model import Review
from instep.schema.change import AccessLost, Change, change_to_dict, column_of, describe, key, table_of
from instep.schema.diff import diff
from instep.schema.policy import Decision, Explicit
from instep.schema.read import pair_tables
from instep.schema.removal import Suspicion, confirm_removals, decide_all
from instep.schema.selection import hashed, is_on, select_columns
from instep.schema.table import Catalog, Table, fingerprint
from instep.schema.types import String
from instep.sources.base import Discovery, TableStats
from instep.store.discoveries import CachedDiscovery
from instep.store.reviews import Finding
from instep.store.store import Store
from instep.sync.choose import with_settings
from instep.sync.pipe import Pipe, Ref


@dataclass(frozen=True)
class Detection:
    """`source` is the whole source catalog with the keys and cursors of the settings, `accepted` what was
    accepted as `version`, `denied` the accepted tables that may no longer be read."""

    source: Catalog
    accepted: Catalog
    version: int
    decisions: tuple[Decision, ...]
    proposals: tuple[Suspicion, ...]
    discovery: Discovery
    denied: Mapping[Ref, str]
    reviews: Mapping[str, Review]

    @property
    def replaced(self) -> frozenset[Ref]:
        """Accepted tables whose replacement under the same name is not accepted."""
        kinds = ("table.replaced",)
        return frozenset(
            table_of(d.change) or ("", "") for d in self.decisions if d.change.kind in kinds and not d.applied
        )

    @property
    def applied(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.decisions if d.applied)

    @property
    def waiting(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.decisions if d.needs_review)


def detect(pipe: Pipe, discovery: Discovery) -> Detection:
    """Compares and decides; writes nothing."""
    store = pipe.store
    latest = store.accepted.latest(pipe.name)
    version, accepted = latest.version if latest else 0, store.accepted.catalog(pipe.name)
    source = _settled(pipe, discovery.catalog, accepted)
    if not _same_identity(store, pipe.name, discovery):
        accepted = rebind(accepted, source)
    denied = {t.ref: discovery.denied[t.ref] for t in accepted.tables if t.ref in discovery.denied}
    changes = [*_changes(pipe, source, accepted, denied), *(_lost(ref, why) for ref, why in denied.items())]
    answers = store.reviews.standing(pipe.name)
    decisions, proposals = decide_all(
        changes, pipe.policy, explicit=lambda c: _answer(c, answers.get(key(c)), first=version == 0), tags=pipe.tags
    )
    seen = {k: r.seen + 1 for k, r in answers.items()}
    confirmed = confirm_removals(decisions, accepted, seen=seen, proven=discovery.proves_absence)
    return Detection(source, accepted, version, confirmed, proposals, discovery, denied, answers)


def _settled(pipe: Pipe, source: Catalog, accepted: Catalog) -> Catalog:
    """The source with the keys and cursors of the settings; a hashed column is text."""
    by_id = {t.id: t for t in accepted.tables if t.id}
    tables = (with_settings(t, accepted.get(t.ref) or by_id.get(t.id or ""), pipe.settings(t)) for t in source.tables)
    return Catalog.of(_with_hashes(pipe, t) for t in tables)


def _with_hashes(pipe: Pipe, table: Table) -> Table:
    if not (pipe.selection.hashed or pipe.selection.exclude_columns or pipe.selection.off):
        return table
    columns = (replace(c, type=String()) if hashed(pipe.selection, table.ref, c.name) else c for c in table.columns)
    return replace(table, columns=tuple(columns))


def _same_identity(store: Store, connection: str, discovery: Discovery) -> bool:
    last = store.discoveries.get(connection)
    return last is None or last.identity == discovery.identity


def rebind(accepted: Catalog, source: Catalog) -> Catalog:
    """Ids of another server prove nothing: the accepted tables take the ids of the source's by name."""
    return Catalog.of(_rebound(t, source.get(t.ref)) for t in accepted.tables)


def _rebound(table: Table, source: Table | None) -> Table:
    if source is None:
        return replace(table, id=None, columns=tuple(replace(c, id=None) for c in table.columns))
    ids = {c.name: c.id for c in source.columns}
    return replace(table, id=source.id, columns=tuple(replace(c, id=ids.get(c.name)) for c in table.columns))


def _changes(pipe: Pipe, source: Catalog, accepted: Catalog, denied: Mapping[Ref, str]) -> tuple[Change, ...]:
    """The diff of what is switched on. A table that is off under its name today is off on both sides."""
    pairs = pair_tables(accepted.tables, source)
    off = {t.ref for t in source.tables if not is_on(pipe.selection, t)[0]}
    off_before = {ref for ref, now in pairs.items() if now.ref in off}
    off_before |= {t.ref for t in accepted.tables if t.ref not in pairs and not is_on(pipe.selection, t)[0]}
    before = Catalog.of(t for t in accepted.tables if t.ref not in off_before and t.ref not in denied)
    after = Catalog.of(t for t in source.tables if t.ref not in off and t.ref not in denied)
    return diff(_columns_on(pipe, before), _columns_on(pipe, after))


def _columns_on(pipe: Pipe, catalog: Catalog) -> Catalog:
    return Catalog.of(select_columns(pipe.selection, t) for t in catalog.tables)


def _lost(ref: Ref, why: str) -> Change:
    return AccessLost(ref, None, why)


def _answer(change: Change, review: Review | None, *, first: bool) -> Explicit | None:
    """What a person has said: in a review, or by selecting the tables of a connection that has none yet."""
    if review is not None and review.status in ("approved", "rejected"):
        return "approved" if review.status == "approved" else "rejected"
    return "on" if first and change.kind.endswith(".added") else None


def record(pipe: Pipe, detection: Detection, *, count: bool = True) -> dict[str, Review]:
    """Stores the detection with its reviews and events in one transaction and answers the reviews by content key.

    The same detection twice adds nothing but its count (`count` false: not even that).
    """
    store, source_print = pipe.store, fingerprint(detection.source)
    findings = [_finding(d) for d in detection.decisions]
    with store.transaction():
        store.discoveries.save(pipe.name, _cached(detection.discovery))
        reviews = store.reviews.record(pipe.name, findings, source_print, count=count)
        for review, decision in zip(reviews, detection.decisions, strict=True):
            if review.key not in detection.reviews:
                for event in _events(pipe.name, review, decision):
                    store.events.add(event)
    return {r.key: r for r in reviews}


def look(pipe: Pipe) -> Discovery:
    """The source's catalog; the stored one if the source says that nothing has changed."""
    if pipe.store.discoveries.fingerprint(pipe.name) != pipe.source.fingerprint():
        return pipe.source.discover()
    known = pipe.store.discoveries.get(pipe.name)
    if known is None:
        return pipe.source.discover()
    stats = {ref: TableStats(rows, size) for ref, (rows, size) in known.stats.items()}
    return Discovery(known.catalog, known.fingerprint, stats, known.denied, known.identity, known.proves_absence)


def _cached(seen: Discovery) -> CachedDiscovery:
    stats = {ref: (s.rows, s.bytes) for ref, s in seen.stats.items()}
    return CachedDiscovery(seen.catalog, seen.fingerprint, stats, seen.denied, seen.identity, seen.proves_absence)


def _finding(decision: Decision) -> Finding:
    change = decision.change
    return Finding(
        key=key(change),
        kind=change.kind,
        table=table_of(change) or ("", ""),
        column=column_of(change),
        summary=describe(change),
        change=change_to_dict(change),
        action=decision.action,
        rule=decision.rule,
        why=decision.why,
        modifiers=asdict(decision.modifiers),
    )


def _events(connection: str, review: Review, decision: Decision) -> list[Event]:
    found: list[Event] = [ChangeDetected(connection, review.id, review.kind, review.summary)]
    if decision.needs_review:
        found.append(ReviewNeeded(connection, review.id, review.summary, decision.why))
    elif decision.action == "ignore":
        found.append(ChangeIgnored(connection, review.id, review.summary, decision.why))
    return found
