"""Detects and decides: what the source has against what was accepted, and what policy says about each change.

Everything between the two catalogs and the decisions is pure; the store is read at the start and written by
`record` in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from instep.schema.catalog.catalog import Catalog, Table, fingerprint, unbound
from instep.schema.catalog.types import String
from instep.schema.changes.counts import Counts, counts
from instep.schema.changes.describe import (
    AccessLost,
    Change,
    ColumnAdded,
    KeyChanged,
    NameCollided,
    change_from_dict,
    change_to_dict,
    column_of,
    describe,
    key,
    table_of,
)
from instep.schema.changes.diff import WEAK, diff
from instep.schema.planning.accept import settle
from instep.schema.planning.collisions import collide
from instep.schema.planning.naming import unusable
from instep.schema.planning.overflow import explained, left_behind
from instep.schema.planning.projection import pair_tables
from instep.schema.planning.reread import LoadedColumn
from instep.schema.policy.new_objects import stay_off
from instep.schema.policy.policy import Decision, Explicit, decide
from instep.schema.policy.removal import MASS_REMOVAL, awaited, confirm_removals, decide_all
from instep.schema.policy.safeguards import COLUMN_LIMIT, WINDOW, hold_flapping, limit_columns, retypes
from instep.schema.policy.similarity import RenameInference
from instep.schema.policy.type_choice import (
    added_columns,
    is_type_choice,
    text_sentences,
    waits_for_rebuild,
    with_types,
)
from instep.schema.selection.overrides import Switch, moves, said, sides
from instep.schema.selection.selection import Pattern, Selection, hashed, is_on, select_columns, unmatched
from instep.sources.base import Discovery, Snapshot, TableStats
from instep.sources.stream import Streams
from instep.spans import span, tell
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.catalogs.reviews import DetectedChange
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.access import Access, restrict
from instep.sync.detection.approval_fingerprint import ApprovalFingerprint, asked_again
from instep.sync.detection.backfill_since import note_cursors
from instep.sync.detection.chosen_keys import with_choices
from instep.sync.detection.drift import Drift, compare, remembered
from instep.sync.detection.four_eyes import out_of_sight, own_word, second_person
from instep.sync.detection.ineffective_settings import ineffective_settings, missing_columns, missing_includes
from instep.sync.detection.new_objects import NewObjects, left_out_at_birth, listing_of, record_listing
from instep.sync.detection.pii import hold as hold_personal
from instep.sync.detection.pii import split, suspects
from instep.sync.detection.privacy import PrivacyGuard
from instep.sync.detection.refused import state_of, still_refused
from instep.sync.detection.rename_inference import Opened, RenameCandidate, suspect
from instep.sync.detection.table_renames import TableRenames
from instep.sync.table_mode import with_settings


def moved(last: CachedDiscovery | None, now: Discovery) -> bool:
    """Whether the ids of `now` are those of another server than the accepted ones."""
    return last is not None and last.identity != now.identity


def rebind(accepted: Catalog, source: Catalog) -> Catalog:
    """Ids of another server prove nothing: the accepted tables take the ids of the source's by name."""
    return Catalog.of(_rebound(t, source.get(t.ref)) for t in accepted.tables)


def _rebound(table: Table, source: Table | None) -> Table:
    if source is None or table.retained:
        return unbound(table)
    ids = {c.name: c.id for c in source.columns}
    columns = (replace(c, id=None if c.retained else ids.get(c.name)) for c in table.columns)
    return replace(table, id=source.id, columns=tuple(columns))


KINDS = ("table.removed", "column.removed")


def returned(
    standing: Mapping[str, Review], found: Collection[str], accepted: Catalog, source: Catalog
) -> Iterator[tuple[Ref, str]]:
    """Accepted tables, and why: of the `standing` removals (by content key) those that are not `found` any more."""
    for content_key, review in standing.items():
        if review.kind not in KINDS or content_key in found:
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
    `ineffective_settings`: what else the project file says in vain. `stale`: content keys of approvals that do not
    count any more, because their table has moved since."""

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
    doubt: RenameCandidate = field(default_factory=RenameCandidate, kw_only=True)
    drift: Drift = field(default_factory=Drift, kw_only=True)
    ineffective_settings: tuple[str, ...] = field(default=(), kw_only=True)
    missing: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    others: bool = field(default=True, kw_only=True)
    born: tuple[Decision, ...] = field(default=(), kw_only=True)
    """Decisions about objects that came since the last look and are left out, also those that are not read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left out without anybody having said so: people want to know why it is not there."""
        hidden = (f"{'.'.join(filter(None, path))} is not synced: {why}" for path, why in sorted(self.hidden.items()))
        noted = (one_line(text) for text in self.unmatched if text not in self.missing)
        patterns = (f"the pattern '{text}' in the project file matches nothing" for text in noted)
        as_text = text_sentences(added_columns(d.change for d in self.applied))
        return (
            *hidden,
            *patterns,
            *self.ineffective_settings,
            *as_text,
            *waits_for_rebuild(self.decisions, self.accepted),
        )

    @property
    def replaced(self) -> frozenset[Ref]:
        """Accepted tables whose replacement under the same name is not accepted."""
        places = TableRenames.of(self.decisions)
        held = (d.change for d in self.decisions if d.change.kind == "table.replaced" and not d.applied)
        return frozenset(map(places.before, held))

    def unkeyed(self, *, moved: bool) -> Mapping[Ref, str]:
        """Accepted tables whose key is not the source's any more, which has not been let in: rows that differ would
        meet as one. `moved`: by the names that renames give them, once they are applied."""
        places = TableRenames.of(self.decisions)
        held = [d for d in self.decisions if d.change.kind in KEYS and not d.applied]
        keyed = [d for d in held if (t := self.accepted.get(places.before(d.change))) and t.key]
        place = places.after if moved else places.before
        return {place(d.change): f"{describe(d.change)}: not applied, {self.state_of(d)}" for d in keyed}

    def state_of(self, decision: Decision) -> str:
        """Say how a change stands that is not let in."""
        return state_of(decision, self.reviews.get(key(decision.change)))

    @property
    def applied(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.decisions if d.applied)

    @property
    def waiting(self) -> tuple[Decision, ...]:
        """What needs a person, sooner or later."""
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
    """Compares and decides; writes nothing. `count`: this is a detection of its own, which may confirm a removal.
    `stored`: the discovery is the one that the store has. `assumed`: reviews by content key as if they were answered
    so, for looking at what an answer leads to. Samples for suspected renames are read in `snapshot`, else in one that
    is opened for it; not at all if the detection is `recalled` from the store."""
    store = context.store
    latest = store.accepted.latest(context.name)
    version, accepted = latest.version if latest else 0, store.accepted.catalog(context.name)
    last = None if stored else store.discoveries.get(context.name)
    rebound = moved(last, discovery)
    if rebound:
        accepted = rebind(accepted, discovery.catalog)
    switches = store.switches.of(context.name)
    chosen = sides(context.said, switches, discovery.catalog, accepted, discovery.identity)
    context = replace(context, selection=chosen.now, before=chosen.before)
    closed = {**unusable(discovery.catalog, accepted), **discovery.denied}
    access = restrict(discovery.catalog, accepted, closed, context.selection)
    source = _settled(context, access.source, accepted)
    answers = store.reviews.standing(context.name)
    compared = _compared(context, source, accepted, access)
    with span("diff"):
        changes = [*_without_hashes(context, diff(*compared)), *(AccessLost(r, *why) for r, why in access.lost.items())]
        tell(found=len(changes))
    drift = Drift() if recalled else compare(context, accepted)
    changes += remembered(answers) if recalled else drift.changes
    listing = listing_of(context, discovery, source, version, switches, answers)

    def explicit(change: Change) -> Explicit | None:
        review = answers.get(key(change))
        counts = None if own_word(context, change.kind, review) else review
        typed: Explicit | None = "typed" if is_type_choice(change) else None
        return _answer(change, counts, listing) or said(chosen.now, change, source) or typed

    changes = listing.split(changes, lambda c: decide(c, context.policy, explicit=explicit(c), tags=context.tags))
    personal = suspects(context, changes, source, answers, look=assumed is None)
    changes = split(changes, personal)
    kept = left_behind(_columns_asked(answers), changes, accepted, source)
    sight = ApprovalFingerprint.of([*changes, *kept], source, accepted)
    asked = _names_asked(answers)
    stale = sight.stale([*changes, *kept, *asked], answers)
    answers |= {k: replace(answers[k], status="open") for k in stale} | dict(assumed or {})
    doubt = suspect(
        context, changes, discovery, sight, answers, explicit, _opened(context, snapshot, recalled=recalled)
    )
    decisions, proposals = decide_all(
        [*doubt.changes, *kept], context.policy, explicit=explicit, tags=context.tags, suspected=doubt.proposals
    )
    decisions = stay_off(decisions, listing.is_off)
    seen = {k: r.seen + count for k, r in answers.items()}
    decisions = asked_again(doubt.explained(decisions), answers)
    held = {k for k, r in answers.items() if r.rule == MASS_REMOVAL and r.status == "open"}
    decisions = confirm_removals(decisions, accepted, seen=seen, proven=discovery.proves_absence, held=held)
    before = last.catalog if last and not rebound else Catalog()

    def name(fact: NameCollided) -> Decision:
        return decide(fact, context.policy, explicit=explicit(fact), tags=context.tags)

    met = collide(decisions, accepted, source, context.naming, name, asked)
    decisions = hold_personal(PrivacyGuard(chosen, source, accepted, before, answers).hold(met.decisions), personal)
    decisions = explained(_bounded(context, decisions, answers), kept, f"{context.naming.prefix}extra")
    decisions = second_person(context, met.settled(settle(decisions, accepted)), answers)
    denied = {ref: why for ref, (_, why) in access.lost.items()}
    return DetectionResult(
        source,
        accepted,
        version,
        decisions,
        proposals,
        discovery,
        denied,
        answers,
        access.hidden,
        rebound,
        stored,
        _unmatched(context, discovery, switches),
        stale,
        counts=counts(*compared, changes),
        doubt=doubt,
        drift=drift,
        ineffective_settings=ineffective_settings(context, discovery.catalog, source, discovery.denied),
        missing={
            **missing_includes(context, discovery, accepted, recalled=recalled),
            **missing_columns(context, discovery),
        },
        others=any(is_on(context.selection, t)[0] for t in source.tables),
        born=() if stored or rebound else left_out_at_birth(context, last, discovery, accepted, listing, decisions),
    )


def _names_asked(answers: Mapping[str, Review]) -> list[NameCollided]:
    found = (change_from_dict(r.change) for r in answers.values() if r.kind == NameCollided.kind)
    return [change for change in found if isinstance(change, NameCollided)]


def _columns_asked(answers: Mapping[str, Review]) -> list[Change]:
    return [change_from_dict(r.change) for r in answers.values() if r.kind == ColumnAdded.kind]


def _opened(context: SyncContext, snapshot: Snapshot | None, *, recalled: bool) -> Opened | None:
    if recalled:
        return None
    return context.source.snapshot if snapshot is None else lambda: nullcontext(snapshot)


def _bounded(
    context: SyncContext, decisions: Sequence[Decision], answers: Mapping[str, Review]
) -> tuple[Decision, ...]:
    """Without floods of new columns and types that go back and forth; what was held for that stays held until it is
    answered."""
    rules = {k: r.rule for k, r in answers.items()}
    held = [place for place, d in enumerate(decisions) if rules.get(key(d.change)) == COLUMN_LIMIT]
    decisions = limit_columns(decisions, context.max_new_columns, held)
    if not retypes(decisions):
        return decisions
    versions = context.store.schemas.history(context.name, "source")[:WINDOW]
    past = [context.store.schemas.catalog(context.name, "source", v.version) for v in reversed(versions)]
    return hold_flapping(decisions, past)


def _unmatched(context: SyncContext, discovery: Discovery, switches: Sequence[Switch]) -> tuple[str, ...]:
    closed = {*(".".join(path) for path in discovery.denied), *(s.path for s in switches)}
    found = (Pattern(text) for text in unmatched(context.selection, discovery.catalog) if text not in closed)
    return tuple(p.text for p in found if p.is_exact or not any(map(p.matches, closed)))


def _settled(context: SyncContext, source: Catalog, accepted: Catalog) -> Catalog:
    """The source with the keys and cursors of the settings; a hashed column is text."""
    known = {now.ref: accepted.by_ref[ref] for ref, now in pair_tables(accepted.tables, source).items()}
    chosen = context.store.choices.of(context.name)

    def one(table: Table) -> Table:
        before, settings = known.get(table.ref), context.settings(table)
        typed = with_types(table, before, settings.types, settings.source_types)
        return with_choices(with_settings(typed, before, settings), before, chosen, settings)

    tables = map(one, source.tables)
    return Catalog.of(_with_hashes(context, t, known.get(t.ref)) for t in tables)


def _with_hashes(context: SyncContext, table: Table, known: Table | None) -> Table:
    """A column is hashed under its own name or under the one that it was accepted by."""
    selection, was = context.selection, context.selected_before
    if not selection.covers_columns:
        return table
    old = {c.id: c.name for c in known.live if c.id} if known else {}

    def is_hashed(name: str, id: str | None) -> bool:
        return hashed(selection, table.ref, name) or bool(known and id in old and hashed(was, known.ref, old[id]))

    columns = (replace(c, type=String()) if is_hashed(c.name, c.id) else c for c in table.columns)
    return replace(table, columns=tuple(columns))


def _without_hashes(context: SyncContext, changes: Iterable[Change]) -> Iterator[Change]:
    """Leave out that a key has another type where its columns are, or were, hashed: the selection answers for that."""
    loaded: Mapping[Ref, Sequence[LoadedColumn]] | None = None
    for change in changes:
        if isinstance(change, KeyChanged) and change.before == change.after:
            loaded = context.store.loaded.of(context.name) if loaded is None else loaded
            were = {c.name for c in loaded.get(change.table, ()) if c.hashed}
            if any(name in were or hashed(context.selection, change.table, name) for name in change.after):
                continue
        yield change


def _compared(context: SyncContext, source: Catalog, accepted: Catalog, access: Access) -> tuple[Catalog, Catalog]:
    """What is switched on of both sides. A table that is off under its name today is off on both sides."""
    pairs = pair_tables(accepted.tables, source)
    off = {t.ref for t in source.tables if not is_on(context.selection, t)[0]}
    off_before = {ref for ref, now in pairs.items() if now.ref in off}
    off_before |= {t.ref for t in accepted.tables if t.ref not in pairs and not is_on(context.selected_before, t)[0]}
    before = Catalog.of(t for t in accepted.tables if t.ref not in off_before and t.ref not in access.lost)
    after = Catalog.of(t for t in source.tables if t.ref not in off)
    return _columns_on(context.selected_before, before), _columns_on(context.selection, after)


def _columns_on(selection: Selection, catalog: Catalog) -> Catalog:
    return Catalog.of(select_columns(selection, t) for t in catalog.tables)


def _answer(change: Change, review: Review | None, listing: NewObjects) -> Explicit | None:
    """What a person has said: in a review, or by selecting the tables of a connection that has none yet."""
    if beside := listing.beside_schema(change):
        return beside
    if review is not None and review.status in ("approved", "rejected"):
        return "approved" if review.status == "approved" else "rejected"
    return "on" if listing.lets_in(change) and change.kind.endswith(".added") else None


def record(context: SyncContext, detection: DetectionResult, *, count: bool = True) -> dict[str, Review]:
    """Stores the detection with its reviews and events in one transaction and answers the reviews by content key.

    The same detection twice adds nothing but its count (`count` false: not even that). What tables that may not be
    read had waiting keeps waiting.
    """
    store, source_print = context.store, fingerprint(detection.source)
    sight = ApprovalFingerprint.of((d.change for d in detection.decisions), detection.source, detection.accepted)
    with context.transaction():
        known = store.reviews.standing(context.name)  # another detection may have been recorded since this one was made
        decided = (still_refused(d, known.get(key(d.change))) for d in detection.decisions)
        findings = [_finding(d, sight, detection.doubt) for d in decided]
        findings += detection.doubt.findings(sight)
        stale = frozenset(k for k in detection.stale if k in known and known[k].status == "approved")
        detection = replace(detection, reviews=known, stale=stale)
        if not (detection.rebound or detection.stored):
            remember(context, detection)
        seen = detection.discovery
        store.switches.follow(context.name, moves(store.switches.of(context.name), seen.catalog, seen.identity))
        left = (*detection.decisions, *detection.born)
        record_listing(context, left, seen, detection.accepted, store.switches.of(context.name))
        note_cursors(context, detection.decisions, detection.accepted)
        catalogs = seen.catalog, detection.source
        hidden = out_of_sight(context, known, {f.key for f in findings}, detection.accepted, catalogs)
        for ref, why in returned(known, {f.key for f in findings}, detection.accepted, detection.source):
            store.backfills.want(context.name, ref, why=why)
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
        for review, found in zip(reviews[len(detection.decisions) :], detection.doubt.proposals, strict=False):
            if review.key not in detection.reviews:
                news.append(RenameSuspected(context.name, review.id, review.summary, found.score, found.evidence))
        if news:
            store.events.add(*news)
    return {r.key: r for r in reviews}


def asked(context: SyncContext, detection: DetectionResult, reviews: Mapping[str, Review]) -> tuple[str, ...]:
    """The ids of the changes that wait for a person now; snoozed ones wait later."""
    held = [reviews[key(d.change)] for d in detection.waiting]
    held += [r for s in detection.doubt.proposals if (r := reviews.get(key(s.rename))) and r.status == "open"]
    return tuple(r.id for r in held if not context.store.reviews.is_asleep(r))


def remember(context: SyncContext, detection: DetectionResult) -> None:
    """Keeps what the source looked like. After a move to another server this waits for the accepted catalog."""
    context.store.discoveries.save(
        context.name, _cached(detection.discovery), run=context.run.id if context.run else ""
    )


def look(context: SyncContext, *, count: bool = True) -> DetectionResult:
    """Detects without reading the source's catalog, if the source says that it is the stored one."""
    known = None if isinstance(context.source, Streams) else _known(context)  # what is silent is not stored
    return detect(context, known or context.source.discover(), count=count, stored=known is not None)


def look_at(context: SyncContext, known: CachedDiscovery) -> DetectionResult:
    """Detects in what another connection of the same source has seen just now."""
    same = context.store.discoveries.fingerprint(context.name) == known.fingerprint and not has_weak_ids(known.catalog)
    if same:
        context.store.discoveries.touch(context.name)
    return detect(context, seen_then(known), stored=same)


def _known(context: SyncContext) -> Discovery | None:
    """The stored discovery, if the source is still as it was then. Weak ids are no part of a fingerprint: two tables
    of one shape may have swapped their names under it."""
    if context.store.discoveries.fingerprint(context.name) != context.source.fingerprint():
        return None
    known = context.store.discoveries.get(context.name)
    if known is None or has_weak_ids(known.catalog):
        return None
    context.store.discoveries.touch(context.name)
    return seen_then(known)


def has_weak_ids(catalog: Catalog) -> bool:
    return any(t.id and t.id.startswith(WEAK) for t in catalog.tables)


def seen_then(known: CachedDiscovery) -> Discovery:
    """The stored discovery as the source gave it."""
    stats = {ref: TableStats(rows, size) for ref, (rows, size) in known.stats.items()}
    return Discovery(known.catalog, known.fingerprint, stats, known.denied, known.identity, known.proves_absence)


def recall(context: SyncContext, assumed: Mapping[str, Review]) -> DetectionResult | None:
    """The last detection over again, without the source, under `assumed` answers; None before the first."""
    known = context.store.discoveries.get(context.name)
    return (
        detect(context, seen_then(known), count=False, stored=True, assumed=assumed, recalled=True) if known else None
    )


def _cached(seen: Discovery) -> CachedDiscovery:
    stats = {ref: (s.rows, s.bytes) for ref, s in seen.stats.items()}
    return CachedDiscovery(seen.catalog, seen.fingerprint, stats, seen.denied, seen.identity, seen.proves_absence)


def _finding(decision: Decision, sight: ApprovalFingerprint, doubt: RenameCandidate) -> DetectedChange:
    """What policy applies by itself is nobody's approval and needs no fingerprint."""
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
        tables_fingerprint="" if decision.applied and not doubt.evidence(change) else sight.fingerprint(change),
        evidence=doubt.evidence(change),
    )


def _events(connection: str, review: Review, decision: Decision, *, proven: bool) -> list[Event]:
    found: list[Event] = [ChangeDetected(connection, review.id, review.kind, review.summary)]
    if decision.needs_review:
        found.append(ReviewNeeded(connection, review.id, review.summary, decision.why))
    elif decision.effect == "waiting":
        of = awaited(decision, review.seen, proven=proven)
        seen = review.seen if of else 0
        found.append(ChangeWaiting(connection, review.id, review.summary, decision.why, seen, of))
    elif decision.action == "ignore":
        found.append(ChangeIgnored(connection, review.id, review.summary, decision.why))
    return found
