"""Inputs of a detection and the changes between both sides: `gather` reads all of it, `compare` reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Table, unbound
from instep.schema.catalog.types import String
from instep.schema.changes.describe import AccessLost, Change, KeyChanged, key
from instep.schema.changes.diff import diff
from instep.schema.planning.naming import unusable
from instep.schema.planning.projection import LoadedColumn, pair_tables
from instep.schema.policy.policy import Decision, Explicit, decide
from instep.schema.policy.safeguards import is_type_choice, with_types
from instep.schema.selection.overrides import SelectionSides, Switch, chosen, sides
from instep.schema.selection.selection import Selection, hashed, is_on, select_columns
from instep.sources.base import Discovery
from instep.spans import span, tell
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.chosen_keys import with_choices
from instep.sync.detection.drift import Drift, recorded_drift
from instep.sync.detection.drift import compare as drift_of
from instep.sync.detection.four_eyes import own_word
from instep.sync.detection.ineffective_settings import (
    Access,
    ineffective_settings,
    missing_columns,
    missing_includes,
    restrict,
)
from instep.sync.detection.new_objects import NewObjects, listing_of
from instep.sync.table_mode import with_settings


@dataclass(frozen=True)
class DetectionInputs:
    """Everything that a detection is made from, as it was when it began."""

    context: SyncContext
    """The settings of the connection, with the selection that its switches lead to; nothing is read by it."""
    discovery: Discovery
    """Catalog of the source."""
    accepted: Catalog
    """Accepted catalog; with the source's ids if that is another server."""
    version: int
    """The accepted version, 0 before the first."""
    last: CachedDiscovery | None
    """Catalog of the source at the last detection; None if `discovery` is that."""
    rebound: bool
    """True if the source is another server, so that ids were taken anew by name."""
    switches: tuple[Switch, ...]
    """Choices of people in the selection."""
    chosen: SelectionSides
    """The selection of both sides."""
    access: Access
    """Objects that may be read at the source, and those that no longer may."""
    source: Catalog
    """The source's tables that may be read, with the keys and cursors of the settings; a hashed column is text."""
    answers: Mapping[str, Review]
    """The unsettled reviews, by content key."""
    loaded: Mapping[Ref, Sequence[LoadedColumn]]
    """The columns that each table was last loaded with."""
    drift: Drift
    """Drift of the destination; empty if it was not inspected."""
    recalled: bool
    """True if the last detection is made over again from the store."""
    listing: NewObjects
    """New objects of the source."""
    ineffective: tuple[str, ...]
    """Settings of the project file without effect."""
    missing: Mapping[str, str]
    """The patterns and names of the project file that fit nothing, each with an error."""

    def explicit(self, change: Change) -> Explicit | None:
        """Return a person's answer to a change: in a review, by selecting, or by choosing a type."""
        review = self.answers.get(key(change))
        counts = None if own_word(self.context, change.kind, review) else review
        typed: Explicit | None = "typed" if is_type_choice(change) else None
        return _answer(change, counts, self.listing) or chosen(self.chosen.now, change, self.source) or typed


def gather(context: SyncContext, discovery: Discovery, *, stored: bool, recalled: bool) -> DetectionInputs:
    """Read what store and destination know of the connection.

    `stored`: the discovery is the one that the store has. `recalled`: the destination is not looked at.
    """
    store = context.store
    latest = store.accepted.latest(context.name)
    version, accepted = latest.version if latest else 0, store.accepted.catalog(context.name)
    last = None if stored else store.discoveries.get(context.name)
    rebound = is_other_server(last, discovery)
    if rebound:
        accepted = rebind(accepted, discovery.catalog)
    switches = store.switches.of(context.name)
    chosen = sides(context.project_selection, switches, discovery.catalog, accepted, discovery.identity)
    context = replace(context, selection=chosen.now, before=chosen.before)
    closed = {**unusable(discovery.catalog, accepted), **discovery.denied}
    access = restrict(discovery.catalog, accepted, closed, context.selection)
    source = _with_settings(context, access.source, accepted)
    answers = store.reviews.existing(context.name)
    missing = missing_includes(context, discovery, accepted, recalled=recalled)
    return DetectionInputs(
        context,
        discovery,
        accepted,
        version,
        last,
        rebound,
        tuple(switches),
        chosen,
        access,
        source,
        answers,
        store.loaded.of(context.name),
        Drift() if recalled else drift_of(context, accepted),
        recalled,
        listing_of(context, discovery, source, version, switches, answers),
        ineffective_settings(context, discovery.catalog, source, discovery.denied),
        {**missing, **missing_columns(context, discovery)},
    )


@dataclass(frozen=True)
class Comparison:
    """The changes between what was accepted and what the source has."""

    before: Catalog
    """The accepted tables and columns that are switched on."""
    after: Catalog
    """The source's tables and columns that are switched on."""
    changes: tuple[Change, ...]
    """All changes, the destination's too; new tables without the columns that stay out."""


def compare(inputs: DetectionInputs) -> Comparison:
    """Compare both sides; nothing is read."""
    context = inputs.context
    before, after = _compared(context, inputs.source, inputs.accepted, inputs.access)
    with span("diff"):
        lost = (AccessLost(ref, *why) for ref, why in inputs.access.lost.items())
        changes = [*_without_hashes(inputs, diff(before, after)), *lost]
        tell(found=len(changes))
    changes += recorded_drift(inputs.answers) if inputs.recalled else inputs.drift.changes

    def decided(change: Change) -> Decision:
        return decide(change, context.policy, explicit=inputs.explicit(change), tags=context.tags)

    return Comparison(before, after, tuple(inputs.listing.split(changes, decided)))


def is_other_server(last: CachedDiscovery | None, now: Discovery) -> bool:
    """Return whether the ids of `now` are those of another server than the accepted ones."""
    return last is not None and last.identity != now.identity


def rebind(accepted: Catalog, source: Catalog) -> Catalog:
    """Return the accepted tables with the ids of the source's tables of the same name: ids of another server prove
    nothing."""
    return Catalog.of(_rebound(t, source.get(t.ref)) for t in accepted.tables)


def _rebound(table: Table, source: Table | None) -> Table:
    if source is None or table.retained:
        return unbound(table)
    ids = {c.name: c.id for c in source.columns}
    columns = (replace(c, id=None if c.retained else ids.get(c.name)) for c in table.columns)
    return replace(table, id=source.id, columns=tuple(columns))


def _with_settings(context: SyncContext, source: Catalog, accepted: Catalog) -> Catalog:
    """Return the source with the keys and cursors of the settings; a hashed column is text."""
    accepted_by_ref = {now.ref: accepted.by_ref[ref] for ref, now in pair_tables(accepted.tables, source).items()}
    chosen = context.store.choices.of(context.name)

    def configured(table: Table) -> Table:
        before, settings = accepted_by_ref.get(table.ref), context.settings(table)
        typed = with_types(table, before, settings.types, context.types)
        return with_choices(with_settings(typed, before, settings), before, chosen, settings)

    tables = map(configured, source.tables)
    return Catalog.of(_with_hashes(context, t, accepted_by_ref.get(t.ref)) for t in tables)


def _with_hashes(context: SyncContext, table: Table, before: Table | None) -> Table:
    """Return the table with its hashed columns marked, under their own names or those by which they were accepted."""
    selection, was = context.selection, context.selected_before
    if not selection.covers_columns:
        return table
    old = {c.id: c.name for c in before.live if c.id} if before else {}

    def is_hashed(name: str, id: str | None) -> bool:
        return hashed(selection, table.ref, name) or bool(before and id in old and hashed(was, before.ref, old[id]))

    columns = (replace(c, type=String()) if is_hashed(c.name, c.id) else c for c in table.columns)
    return replace(table, columns=tuple(columns))


def _without_hashes(inputs: DetectionInputs, changes: Iterable[Change]) -> Iterator[Change]:
    """Yield changes without new types of a key whose columns are, or were, hashed: the selection answers for those."""
    for change in changes:
        if isinstance(change, KeyChanged) and change.before == change.after:
            were = {c.name for c in inputs.loaded.get(change.table, ()) if c.hashed}
            if any(name in were or hashed(inputs.context.selection, change.table, name) for name in change.after):
                continue
        yield change


def _compared(context: SyncContext, source: Catalog, accepted: Catalog, access: Access) -> tuple[Catalog, Catalog]:
    """Return the selected objects of both sides. A table that is off under its name today is off on both sides."""
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
    """Return a person's answer: in a review, or by selecting the tables of a connection that has none yet."""
    if beside := listing.beside_schema(change):
        return beside
    if review is not None and review.status in ("approved", "rejected"):
        return "approved" if review.status == "approved" else "rejected"
    return "on" if listing.lets_in(change) and change.kind.endswith(".added") else None
