"""Detects and decides: what the source has against what was accepted, and what policy says about each change.

In this order: `gather` reads store and destination, `compare` finds the changes, `sample` reads what they raise
questions about, `decide_changes` decides; `record` writes the result in one transaction. `compare` and `decide_changes`
read nothing.

What a sync takes for the source's schema: a new look, or the last one while it is fresh enough.

A fresh one counts only as long as every accepted table is as it was seen then: rows are never read by a schema that
has moved, however young the last look is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace

from instep.errors import one_line
from instep.events import (
    ChangeDetected,
    ChangeIgnored,
    ChangeReopened,
    ChangeWaiting,
    Event,
    RenameSuspected,
    ReviewNeeded,
)
from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Table, fingerprint
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    NameCollided,
    TableAdded,
    change_from_dict,
    change_to_dict,
    column_of,
    describe,
    key,
    table_of,
)
from instep.schema.changes.diff import WEAK
from instep.schema.changes.version import Counts, counts
from instep.schema.planning.accept import accept, defer_blocked
from instep.schema.planning.collisions import collide
from instep.schema.planning.naming import assign, with_custom_names
from instep.schema.planning.overflow import explained, left_behind
from instep.schema.planning.projection import pair_tables
from instep.schema.policy.new_objects import stay_off
from instep.schema.policy.policy import Decision, decide
from instep.schema.policy.removal import MASS_REMOVAL, awaited, confirm_removals, decide_all
from instep.schema.policy.safeguards import (
    COLUMN_LIMIT,
    WINDOW,
    Retype,
    added_columns,
    block_flapping,
    limit_columns,
    retypes,
    text_sentences,
    waits_for_rebuild,
)
from instep.schema.policy.similarity import RenameInference
from instep.schema.selection.overrides import Switch, moves
from instep.schema.selection.selection import Pattern, is_on, unmatched
from instep.sources.base import Discovery, Snapshot, TableStats, object_path
from instep.sources.stream import MigratedSource, Streams
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.catalogs.reviews import DetectedChange
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.approval_fingerprint import ApprovalFingerprint, reopened
from instep.sync.detection.backfill_since import note_cursors
from instep.sync.detection.comparison import Comparison, DetectionInputs, compare, gather
from instep.sync.detection.drift import Drift
from instep.sync.detection.four_eyes import out_of_sight, second_person
from instep.sync.detection.new_objects import new_objects_left_out, record_listing
from instep.sync.detection.privacy import PrivacyGuard, Suspects, find_personal_columns, split
from instep.sync.detection.privacy import require_reviews as hold_personal
from instep.sync.detection.refused import state_of, still_refused
from instep.sync.detection.rename_inference import Opened, RenameCandidate, infer_renames
from instep.sync.detection.table_renames import TableRenames

KINDS = ("table.removed", "column.removed")


def returned_objects(
    existing: Mapping[str, Review], keys: Collection[str], accepted: Catalog, source: Catalog
) -> Iterator[tuple[Ref, str]]:
    """Yield accepted tables, and why, of the `existing` removals (by content key) that are no longer `keys`."""
    for content_key, review in existing.items():
        if review.kind not in KINDS or content_key in keys:
            continue
        table, now = accepted.get(review.table), source.get(review.table)
        if table is None or now is None or table.retained:
            continue
        if not review.column:
            yield table.ref, f"{table.path} was missing and is back"
        elif review.column in now.by_name and review.column in {c.name for c in table.live}:
            yield table.ref, f"{table.path}.{review.column} was missing and is back"


KEYS = ("key.changed", "key.removed")


@dataclass(frozen=True)
class DetectionResult:
    """`source` is the source catalog, as far as it may be read, with the keys and cursors of the settings; `accepted`
    what was accepted as `version`; `denied` the accepted tables that fail, because they may no longer be read or could
    not be changed, `hidden` what could never be read, or has a name that no destination can hold. `rebound`: the source
    is another server, ids were taken anew by name. `stored`: the store has the discovery. `unmatched`: patterns of the
    selection that match nothing,
    `missing`: those of `include` and exact names of columns, each with an error (`others`: some table is switched on),
    `ineffective_settings`: what else the project file says in vain. `stale`: content keys of approvals that no longer
    count, because their table has moved since."""

    source: Catalog
    accepted: Catalog
    version: int
    decisions: tuple[Decision, ...]
    proposals: tuple[RenameInference, ...]
    discovery: Discovery
    denied: Mapping[Ref, str]
    reviews: Mapping[str, Review]
    hidden: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    rebound: bool = False
    stored: bool = False
    unmatched: tuple[str, ...] = ()
    stale: frozenset[str] = frozenset()
    counts: Counts = field(default=Counts(), kw_only=True)
    inferred_renames: RenameCandidate = field(default_factory=RenameCandidate, kw_only=True)
    drift: Drift = field(default_factory=Drift, kw_only=True)
    ineffective_settings: tuple[str, ...] = field(default=(), kw_only=True)
    missing: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    others: bool = field(default=True, kw_only=True)
    born: tuple[Decision, ...] = field(default=(), kw_only=True)
    """Decisions about objects that came since the last look and are left out, also those that are not read."""
    broken: Mapping[Ref, str] = field(default_factory=dict, kw_only=True)
    """Tables among `hidden` that would be loaded for the first time, if they could be read as they are."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes about objects that are left out although nobody has said so."""
        left = sorted((path, why) for path, why in self.hidden.items() if path not in self.broken)
        hidden = (f"{'.'.join(filter(None, path))} is not synced: {why}" for path, why in left)
        noted = (one_line(text) for text in self.unmatched if text not in self.missing)
        patterns = (f"the pattern '{text}' in the project file matches nothing" for text in noted)
        as_text = text_sentences(added_columns(d.change for d in self.applied))
        return (
            *hidden,
            *(f"{object_path(ref)}: {why}" for ref, why in sorted(self.discovery.unread.items())),
            *patterns,
            *self.ineffective_settings,
            *as_text,
            *waits_for_rebuild(self.decisions, self.accepted),
        )

    @property
    def replaced(self) -> frozenset[Ref]:
        """Accepted tables whose replacement under the same name is not accepted."""
        places = TableRenames.of(self.decisions)
        pending = (d.change for d in self.decisions if d.change.kind == "table.replaced" and not d.applied)
        return frozenset(map(places.before, pending))

    def unkeyed(self, *, moved: bool) -> Mapping[Ref, str]:
        """Return accepted tables whose key differs from the source's and was not accepted: rows that differ would
        count as one. `moved`: by their names after renames, once they are applied."""
        places = TableRenames.of(self.decisions)
        pending = [d for d in self.decisions if d.change.kind in KEYS and not d.applied]
        keyed = [d for d in pending if (t := self.accepted.get(places.before(d.change))) and t.key]
        place = places.after if moved else places.before
        return {place(d.change): f"{describe(d.change)}: not applied, {self.state_of(d)}" for d in keyed}

    def state_of(self, decision: Decision) -> str:
        """Return the state of a change that is not accepted, in words."""
        return state_of(decision, self.reviews.get(key(decision.change)))

    @property
    def applied(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.decisions if d.applied)

    @property
    def waiting(self) -> tuple[Decision, ...]:
        """Return the decisions that need a person, sooner or later."""
        return tuple(d for d in self.decisions if d.needs_review)


def detect(
    context: SyncContext,
    discovery: Discovery,
    *,
    count: bool = True,
    stored: bool = False,
    assumed: Mapping[str, Review] | None = None,
    snapshot: Snapshot | None = None,
    recalled: bool = False,
) -> DetectionResult:
    """Compare the source with what was accepted and decide about each change; nothing is written, but for what was
    accepted at another product: it is adopted before the first look.

    `count`: this is a detection of its own, which may confirm a removal. `stored`: the discovery is the one that the
    store has. `assumed`: reviews by content key as if they were answered so, for looking at what an answer leads to.
    Rows for suspected renames are read in `snapshot`, else in one that is opened for it; none are read, and the
    destination is not looked at, if the detection is `recalled` from the store.
    """
    inputs = gather(context, discovery, stored=stored, recalled=recalled)
    if inputs.version == 0 and not recalled and _adopt_catalog(context):
        inputs = gather(context, discovery, stored=stored, recalled=recalled)
    comparison = compare(inputs)
    evidence = sample(inputs, comparison, assumed, _opened(context, snapshot, recalled=recalled))
    return decide_changes(inputs, comparison, evidence, count=count, stored=stored)


def _adopt_catalog(context: SyncContext) -> bool:
    """Accept what was accepted at the product that read the source before, so that what has come since is a change.
    Return whether there was anything. Its tables are made by the next plan, as any that the destination has not."""
    source = context.source
    previous = source.accepted_elsewhere() if isinstance(source, MigratedSource) else None
    if previous is None or not isinstance(source, MigratedSource):
        return False
    detection = detect(context, previous, count=False, recalled=True)
    catalog = accept(detection.decisions, Catalog(), detection.source)
    named = assign(with_custom_names(catalog, Catalog(), {}, context.naming).catalog, context.naming)
    with context.transaction():
        why = "accepted at the product that it was imported from"
        run = context.run.id if context.run else ""
        context.store.accepted.add(context.name, named, who=context.who, why=why, base="", run=run)
        remember(context, detection)
        source.adopted()
    return True


@dataclass(frozen=True)
class Evidence:
    """Evidence for the changes from rows and history of the source, and the current reviews."""

    personal: Suspects
    """New columns that look personal."""
    changes: tuple[Change, ...]
    """The changes, with columns that look personal as changes of their own."""
    overflow: tuple[Change, ...]
    """Columns that wait and whose values are kept as JSON, which are still at the source."""
    collisions: tuple[NameCollided, ...]
    """Names in use that a person was asked about."""
    fingerprint: ApprovalFingerprint
    """Fingerprints of the changes' tables, to which approvals are bound."""
    stale: frozenset[str]
    """Content keys of approvals that no longer count."""
    answers: Mapping[str, Review]
    """The unsettled reviews: stale ones are open again, assumed ones are answered."""
    inferred_renames: RenameCandidate
    """Suspected renames."""
    past: tuple[Catalog, ...]
    """Earlier schemas of the source, oldest first, where a type has changed."""


def sample(
    inputs: DetectionInputs, comparison: Comparison, assumed: Mapping[str, Review] | None, opened: Opened | None
) -> Evidence:
    """Read what the changes raise questions about: values of new columns, rows of suspected renames, earlier types."""
    context, answers = inputs.context, dict(inputs.answers)
    personal = find_personal_columns(context, comparison.changes, inputs.source, answers, look=assumed is None)
    changes = split(comparison.changes, personal)
    left = left_behind(_columns_answered(answers), changes, inputs.accepted, inputs.source)
    streams = isinstance(context.source, Streams)
    fingerprint = ApprovalFingerprint.of([*changes, *left], inputs.source, inputs.accepted, streams=streams)
    recorded = (change_from_dict(r.change) for r in answers.values() if r.kind == NameCollided.kind)
    collisions = [change for change in recorded if isinstance(change, NameCollided)]
    stale = fingerprint.stale([*changes, *left, *collisions], answers)
    answers |= {k: replace(answers[k], status="open") for k in stale} | dict(assumed or {})
    explicit = replace(inputs, answers=answers).explicit
    inferred_renames = infer_renames(context, changes, inputs.discovery, fingerprint, answers, explicit, opened)
    past = _past(context) if any(isinstance(c, Retype) for c in inferred_renames.changes) else ()
    return Evidence(
        personal, tuple(changes), tuple(left), tuple(collisions), fingerprint, stale, answers, inferred_renames, past
    )


def decide_changes(
    inputs: DetectionInputs, comparison: Comparison, evidence: Evidence, *, count: bool, stored: bool
) -> DetectionResult:
    """Decide about each change by what people and policy say, and by the safeguards; nothing is read."""
    context, accepted, source, answers = inputs.context, inputs.accepted, inputs.source, evidence.answers
    inputs = replace(inputs, answers=answers)
    decisions, proposals = decide_all(
        [*evidence.inferred_renames.changes, *evidence.overflow],
        context.policy,
        explicit=inputs.explicit,
        tags=context.tags,
        suspected=evidence.inferred_renames.proposals,
    )
    decisions = reopened(evidence.inferred_renames.explained(stay_off(decisions, inputs.listing.is_off)), answers)
    seen = {k: r.seen + count for k, r in answers.items()}
    pending = {k for k, r in answers.items() if r.rule == MASS_REMOVAL and r.status == "open"}
    proven = inputs.discovery.proves_absence
    decisions = confirm_removals(decisions, accepted, seen=seen, proven=proven, pending=pending)

    def name(fact: NameCollided) -> Decision:
        return decide(fact, context.policy, explicit=inputs.explicit(fact), tags=context.tags)

    met = collide(decisions, accepted, source, context.naming, name, evidence.collisions)
    before = inputs.last.catalog if inputs.last and not inputs.rebound else Catalog()
    guard = PrivacyGuard(inputs.chosen, source, accepted, before, answers)
    decisions = hold_personal(guard.require_reviews(met.decisions), evidence.personal)
    bounded = _bounded(inputs, evidence, decisions)
    decisions = explained(bounded, evidence.overflow, f"{context.naming.prefix}extra")
    decisions = second_person(context, met.block_names(defer_blocked(decisions, accepted)), answers)
    return _result(inputs, comparison, evidence, decisions, proposals, stored=stored)


def _result(
    inputs: DetectionInputs,
    comparison: Comparison,
    evidence: Evidence,
    decisions: tuple[Decision, ...],
    proposals: tuple[RenameInference, ...],
    *,
    stored: bool,
) -> DetectionResult:
    context, source, accepted, listing = inputs.context, inputs.source, inputs.accepted, inputs.listing
    born = (
        ()
        if stored or inputs.rebound
        else new_objects_left_out(context, inputs.last, inputs.discovery, accepted, listing, decisions)
    )
    return DetectionResult(
        source,
        accepted,
        inputs.version,
        decisions,
        proposals,
        inputs.discovery,
        {ref: why for ref, (_, why) in inputs.access.lost.items()},
        evidence.answers,
        inputs.access.hidden,
        inputs.rebound,
        stored,
        _unmatched(context, inputs.discovery, inputs.switches),
        evidence.stale,
        counts=counts(comparison.before, comparison.after, evidence.changes),
        inferred_renames=evidence.inferred_renames,
        drift=inputs.drift,
        ineffective_settings=inputs.ineffective,
        missing=inputs.missing,
        others=any(is_on(context.selection, t)[0] for t in source.tables),
        born=born,
        broken=_broken(inputs),
    )


def _broken(inputs: DetectionInputs) -> dict[Ref, str]:
    """Return the tables that a sync should load for the first time and cannot read as they are, with why."""
    context, broken = inputs.context, dict[Ref, str]()
    for path, why in inputs.access.hidden.items():
        new = TableAdded(Table(path[0], path[1], ()))
        if len(path) != 2 or not is_on(context.selection, new.after)[0]:
            continue
        named = path not in inputs.discovery.denied  # it could be read, and no destination can hold it
        if named or path in inputs.discovery.broken:
            decision = decide(new, context.policy, explicit=inputs.explicit(new), tags=context.tags)
            if decision.applied or not inputs.version:  # what the first detection finds is on
                broken[new.after.ref] = f"{why}: rename it in the source, or exclude the table" if named else why
    return broken


def _columns_answered(answers: Mapping[str, Review]) -> list[Change]:
    return [change_from_dict(r.change) for r in answers.values() if r.kind == ColumnAdded.kind]


def _opened(context: SyncContext, snapshot: Snapshot | None, *, recalled: bool) -> Opened | None:
    if recalled:
        return None
    return context.source.snapshot if snapshot is None else lambda: nullcontext(snapshot)


def _bounded(inputs: DetectionInputs, evidence: Evidence, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Block floods of new columns and types that go back and forth; what was blocked stays so until answered."""
    rules = {k: r.rule for k, r in evidence.answers.items()}
    over_limit = [place for place, d in enumerate(decisions) if rules.get(key(d.change)) == COLUMN_LIMIT]
    decisions = limit_columns(decisions, inputs.context.max_new_columns, over_limit)
    return block_flapping(decisions, evidence.past) if retypes(decisions) else decisions


def _past(context: SyncContext) -> tuple[Catalog, ...]:
    versions = context.store.schemas.history(context.name, "source")[:WINDOW]
    return tuple(context.store.schemas.catalog(context.name, "source", v.version) for v in reversed(versions))


def _unmatched(context: SyncContext, discovery: Discovery, switches: Sequence[Switch]) -> tuple[str, ...]:
    closed = {*(".".join(path) for path in discovery.denied), *(s.path for s in switches)}
    patterns = (Pattern(text) for text in unmatched(context.selection, discovery.catalog) if text not in closed)
    return tuple(p.text for p in patterns if p.is_exact or not any(map(p.matches, closed)))


def record(context: SyncContext, detection: DetectionResult, *, count: bool = True) -> dict[str, Review]:
    """Store the detection with its reviews and events in one transaction and return the reviews by content key. The
    same detection twice adds nothing but its count (`count` false: not even that). Open reviews of tables that may
    not be read stay open."""
    store, source_print = context.store, fingerprint(detection.source)
    changes, streams = [d.change for d in detection.decisions], isinstance(context.source, Streams)
    approval = ApprovalFingerprint.of(changes, detection.source, detection.accepted, streams=streams)
    with context.transaction():
        # another detection may have been recorded since this one was made
        existing = store.reviews.existing(context.name)
        decided = (still_refused(d, existing.get(key(d.change))) for d in detection.decisions)
        findings = [_finding(d, approval, detection.inferred_renames) for d in decided]
        findings += detection.inferred_renames.findings(approval)
        stale = frozenset(k for k in detection.stale if k in existing and existing[k].status == "approved")
        detection = replace(detection, reviews=existing, stale=stale)
        if not (detection.rebound or detection.stored):
            remember(context, detection)
        seen = detection.discovery
        store.switches.follow(context.name, moves(store.switches.of(context.name), seen.catalog, seen.identity))
        left = (*detection.decisions, *detection.born)
        record_listing(context, left, seen, detection.accepted, store.switches.of(context.name))
        note_cursors(context, detection.decisions, detection.accepted)
        catalogs = seen.catalog, detection.source
        hidden = out_of_sight(context, existing, {f.key for f in findings}, detection.accepted, catalogs)
        for ref, why in returned_objects(existing, {f.key for f in findings}, detection.accepted, detection.source):
            store.backfills.request(context.name, ref, why=why)
        store.reviews.reopen(detection.reviews[k].id for k in detection.stale)
        reviews = store.reviews.record(
            context.name, findings, source_print, count=count, unseen=detection.denied.keys(), out_of_sight=hidden
        )
        news: list[Event] = []
        for review, decision in zip(reviews, detection.decisions, strict=False):
            if review.key not in detection.reviews:
                news += _events(context.name, review, decision, proven=seen.proves_absence)
            elif review.key in detection.stale:
                news.append(ChangeReopened(context.name, review.id, review.summary, decision.why))
        for review, evidence in zip(
            reviews[len(detection.decisions) :], detection.inferred_renames.proposals, strict=False
        ):
            if review.key not in detection.reviews:
                news.append(RenameSuspected(context.name, review.id, review.summary, evidence.score, evidence.evidence))
        if news:
            store.events.add(*news)
    return {r.key: r for r in reviews}


def waiting_ids(context: SyncContext, detection: DetectionResult, reviews: Mapping[str, Review]) -> tuple[str, ...]:
    """Return the ids of the changes that wait for a person now; snoozed ones wait later."""
    waiting = [reviews[key(d.change)] for d in detection.waiting]
    waiting += [
        r for s in detection.inferred_renames.proposals if (r := reviews.get(key(s.rename))) and r.status == "open"
    ]
    return tuple(r.id for r in waiting if not context.store.reviews.is_asleep(r))


def remember(context: SyncContext, detection: DetectionResult) -> None:
    """Store the source's schema. After a move to another server this waits for the accepted catalog."""
    context.store.discoveries.save(
        context.name, _cached(detection.discovery), run=context.run.id if context.run else ""
    )


def detect_if_changed(context: SyncContext, *, count: bool = True) -> DetectionResult:
    """Detect without reading the source's catalog, if the source says that it is the stored one."""
    cached = None if isinstance(context.source, Streams) else _known(context)  # what is silent is not stored
    return detect(context, cached or context.source.discover(), count=count, stored=cached is not None)


def detect_from_shared(context: SyncContext, cached: CachedDiscovery) -> DetectionResult:
    """Detect in what another connection of the same source has seen just now."""
    same = context.store.discoveries.fingerprint(context.name) == cached.fingerprint and not has_weak_ids(
        cached.catalog
    )
    if same:
        context.store.discoveries.touch(context.name)
    return detect(context, to_discovery(cached), stored=same)


def _known(context: SyncContext) -> Discovery | None:
    """Return the stored discovery, if the source is still as it was then. Weak ids are no part of a fingerprint: two
    tables of one shape may have swapped their names under it."""
    if context.store.discoveries.fingerprint(context.name) != context.source.fingerprint():
        return None
    cached = context.store.discoveries.get(context.name)
    if cached is None or has_weak_ids(cached.catalog):
        return None
    context.store.discoveries.touch(context.name)
    return to_discovery(cached)


def has_weak_ids(catalog: Catalog) -> bool:
    return any(t.id and t.id.startswith(WEAK) for t in catalog.tables)


def to_discovery(cached: CachedDiscovery) -> Discovery:
    """Return the stored discovery as the source gave it."""
    stats = {ref: TableStats(rows, size) for ref, (rows, size) in cached.stats.items()}
    return Discovery(
        cached.catalog,
        cached.fingerprint,
        stats,
        cached.denied,
        cached.identity,
        cached.proves_absence,
        broken=cached.broken,
        unread=cached.unread,
    )


def redetect_from_store(context: SyncContext, assumed: Mapping[str, Review]) -> DetectionResult | None:
    """Repeat the last detection, without the source, under `assumed` answers; None before the first."""
    cached = context.store.discoveries.get(context.name)
    return (
        detect(context, to_discovery(cached), count=False, stored=True, assumed=assumed, recalled=True)
        if cached
        else None
    )


def _cached(seen: Discovery) -> CachedDiscovery:
    stats = {ref: (s.rows, s.bytes) for ref, s in seen.stats.items()}
    return CachedDiscovery(
        seen.catalog,
        seen.fingerprint,
        stats,
        seen.denied,
        seen.identity,
        seen.proves_absence,
        broken=seen.broken,
        unread=seen.unread,
    )


def _finding(decision: Decision, approval: ApprovalFingerprint, inferred_renames: RenameCandidate) -> DetectedChange:
    """Build the record of a change. One that policy applies by itself needs no fingerprint: nobody approves it."""
    change = decision.change
    return DetectedChange(
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
        tables_fingerprint=""
        if decision.applied and not inferred_renames.evidence(change)
        else approval.fingerprint(change),
        evidence=inferred_renames.evidence(change),
    )


def _events(connection: str, review: Review, decision: Decision, *, proven: bool) -> list[Event]:
    events: list[Event] = [ChangeDetected(connection, review.id, review.kind, review.summary)]
    if decision.needs_review:
        events.append(ReviewNeeded(connection, review.id, review.summary, decision.why))
    elif decision.effect == "waiting":
        of = awaited(decision, review.seen, proven=proven)
        seen = review.seen if of else 0
        events.append(ChangeWaiting(connection, review.id, review.summary, decision.why, seen, of))
    elif decision.action == "ignore":
        events.append(ChangeIgnored(connection, review.id, review.summary, decision.why))
    return events


def current_discovery(context: SyncContext, snapshot: Snapshot, *, rely: bool) -> tuple[Discovery, bool]:
    """Return (the source's schema, whether it is the stored one, so that nothing is detected again)."""
    cached = _recent(context) if rely else None
    if cached is None:
        return snapshot.discover(), False
    if not has_weak_ids(cached.catalog) and context.source.fingerprint() == cached.fingerprint:
        return cached, True
    now = snapshot.discover()
    return (cached, True) if _as_accepted(context, cached, now) else (now, False)


def _recent(context: SyncContext) -> Discovery | None:
    """Return the last look, if it is younger than the connection's setting and something was accepted since."""
    age = context.store.discoveries.age(context.name)
    if age is None or not 0 <= age < context.detect_every or context.store.accepted.latest(context.name) is None:
        return None
    cached = context.store.discoveries.get(context.name)
    return to_discovery(cached) if cached else None


def _as_accepted(context: SyncContext, cached: Discovery, now: Discovery) -> bool:
    """Return whether the accepted tables are the same as then, on the same server, and may be read as then."""
    if now.identity != cached.identity:
        return False
    tables = pair_tables(context.store.accepted.catalog(context.name).tables, cached.catalog).values()
    closed = {path[:2] for path in now.denied.keys() - cached.denied.keys()}
    return all(now.catalog.get(t.ref) == t and t.ref not in closed for t in tables)
