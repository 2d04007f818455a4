"""The suspected renames of one detection: new ones with their evidence, those that are still open, those accepted.

A proposal is a review of its own beside the removal and the addition, so that it stays open when both were accepted at
once. It goes when one of its sides does. What its data said is kept with it, and read again only when the table has
moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from instep.errors import ConnectError
from instep.model import Review
from instep.schema.catalog.catalog import Catalog
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    TableAdded,
    TableRemoved,
    TableRenamed,
    change_from_dict,
    change_to_dict,
    column_of,
    describe,
    key,
    table_of,
)
from instep.schema.planning.projection import pair_tables
from instep.schema.policy.policy import Decision, Explicit
from instep.schema.policy.similarity import (
    NOWHERE,
    PROPOSAL,
    Candidate,
    RenameInference,
    Sample,
    TypeChange,
    as_renames,
    automatic,
    candidates,
    select_inferences,
    swap_candidate,
    swapped_types,
    threshold_of,
    with_sample,
)
from instep.sources.base import Discovery, Snapshot
from instep.store.catalogs.reviews import DetectedChange
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.approval_fingerprint import ApprovalFingerprint

SWAPPED = 0.8
"""From which score on two columns that have exchanged their types may be two names swapped; it is that by the types
alone."""
Opened = Callable[[], AbstractContextManager[Snapshot]]


@dataclass(frozen=True)
class RenameCandidate:
    """`changes` with what was accepted as renames; `proposals` are open, `rejected` by a person, `applied` (by content
    key) accepted by a rule."""

    changes: tuple[Change, ...] = ()
    proposals: tuple[RenameInference, ...] = ()
    rejected: tuple[RenameInference, ...] = ()
    applied: Mapping[str, RenameInference] = field(default_factory=dict)
    swapped: Mapping[str, str] = field(default_factory=dict)
    """Keyed by the content keys of two new types: reason why the columns' names may have been swapped instead."""

    def explained(self, decisions: Iterable[Decision]) -> tuple[Decision, ...]:
        """Return the decisions, those on renames without ids with their evidence; new types that may be two names
        swapped wait for a person."""

        def explain(decision: Decision) -> Decision:
            inference = self.applied.get(key(decision.change))
            if inference:
                return replace(decision, why=f"{decision.why}: {inference.line}")
            swap = self.swapped.get(key(decision.change))
            if swap is None or decision.by_person or decision.pauses:
                return decision
            return replace(decision, action="review", effect="", why=f"{swap}: waits for a review")

        return tuple(map(explain, decisions))

    def evidence(self, change: Change) -> Mapping[str, Any]:
        inference = self.applied.get(key(change))
        return to_json(inference) if inference else {}

    def findings(self, approval: ApprovalFingerprint) -> list[DetectedChange]:
        """Return the findings of the proposals, to be recorded beside those of the decisions."""
        return [_finding(s, approval) for s in (*self.proposals, *self.rejected)]


def infer_renames(
    context: SyncContext,
    changes: Sequence[Change],
    discovery: Discovery,
    approval: ApprovalFingerprint,
    answers: Mapping[str, Review],
    explicit: Callable[[Change], Explicit | None],
    opened: Opened | None,
) -> RenameCandidate:
    """Pair removed with added columns and tables. `opened` gives the snapshot to read samples in (None: nothing is
    read); `explicit` is a person's answer to a change, which is final."""
    refused = {k for k, r in answers.items() if r.rule == PROPOSAL and r.status == "rejected"}
    sides = (*changes, *silent_sides(changes, discovery, approval.accepted))
    candidates_left = candidates((c for c in sides if explicit(c) is None), refused=refused)
    types = [pair for pair in swapped_types(changes) if explicit(pair[0]) is explicit(pair[1]) is None]
    turned = [(swap_candidate(a, b), swap_candidate(b, a)) for a, b in types]
    weighed = (*candidates_left, *(c for pair in turned for c in pair))
    samples = _samples(context, weighed, discovery, approval, answers, opened) if weighed else {}
    fresh = select_inferences(candidates_left, threshold_of(context.policy), samples)
    keys = {key(c) for c in changes}
    let_in = automatic((s for s in fresh if keys.issuperset(s.sides)), changes, context.policy, context.tags)
    existing = _open_proposals(
        answers, approval, {key(c.rename) for c in candidates_left}, None if opened is None else discovery.silent
    )
    matched = {side for s in fresh for side in s.sides}
    return RenameCandidate(
        as_renames(changes, let_in) if let_in else tuple(changes),
        (
            *(s for s in fresh if s not in let_in),
            *(s for r, s in existing if r.status != "rejected" and not matched & set(s.sides)),
        ),
        tuple(s for r, s in existing if r.status == "rejected"),
        {key(s.rename): s for s in let_in},
        dict(_swaps(types, turned, samples)),
    )


def _swaps(
    types: Sequence[tuple[TypeChange, TypeChange]],
    turned: Sequence[tuple[Candidate, Candidate]],
    samples: Mapping[str, Sample],
) -> Iterator[tuple[str, str]]:
    for (a, b), ways in zip(types, turned, strict=True):
        both = [with_sample(c, samples.get(key(c.rename))) for c in ways]
        if all(s.score >= SWAPPED for s in both):
            lines = "; ".join(s.line for s in both)
            why = f"the names {a.before.name} and {b.before.name} may have been swapped ({lines})"
            yield from ((key(a), why), (key(b), why))


def _samples(
    context: SyncContext,
    candidates: Sequence[Candidate],
    discovery: Discovery,
    approval: ApprovalFingerprint,
    answers: Mapping[str, Review],
    opened: Opened | None,
) -> dict[str, Sample]:
    recorded = {
        k: s for c in candidates if (s := _known(answers.get(k := key(c.rename)), approval.fingerprint(c.rename)))
    }
    unread = [c for c in candidates if key(c.rename) not in recorded]
    if not unread or opened is None:
        return recorded
    from instep.sync.detection.evidence import CatalogSides, gather

    accepted = pair_tables(approval.accepted.tables, approval.source)
    by_now = {now.ref: approval.accepted.by_ref[ref] for ref, now in accepted.items()}
    try:
        with opened() as snapshot:
            read = gather(
                context,
                CatalogSides(approval.source, discovery.catalog, by_now, context.selected_before),
                snapshot,
                unread,
            )
    except ConnectError as error:
        note = Sample(note=f"its rows could not be compared: {error.message}")
        read = {key(c.rename): note for c in unread}
    return recorded | read


def _known(review: Review | None, now: str) -> Sample | None:
    """Return the sample that was read when the table was as it is now."""
    data = review.evidence.get("sample") if review else None
    if review is None or not data or review.tables_fingerprint != now:
        return None
    return Sample.read(data) if data["sampled"] else None


def silent_sides(
    changes: Sequence[Change], discovery: Discovery, accepted: Catalog
) -> Iterator[ColumnRemoved | ColumnAdded]:
    """Yield the sides of renames that a stream shows and no change tells.

    A column that no longer comes, though it is none of those removed, and one that was there before its first
    value came.
    """
    added = {(c.table, c.after.name) for c in changes if isinstance(c, ColumnAdded)}
    for ref, names in discovery.begun.items():
        if (table := accepted.get(ref)) is None or table.retained:
            continue
        live = {c.name: c for c in table.live if not c.key and c.name != table.cursor}
        silent = discovery.silent.get(ref, frozenset()) & live.keys()
        yield from (ColumnRemoved(ref, live[name], NOWHERE) for name in sorted(silent))
        new = (names & live.keys()) - silent
        yield from (ColumnAdded(ref, live[name], NOWHERE) for name in sorted(new) if (ref, name) not in added)


def _open_proposals(
    answers: Mapping[str, Review],
    approval: ApprovalFingerprint,
    fresh: set[str],
    silent: Mapping[Ref, frozenset[str]] | None,
) -> list[tuple[Review, RenameInference]]:
    """Return the proposals on record whose two sides are still apart, without those that were weighed anew. `silent`
    are columns that count as gone; None: nobody has looked, and every side is as it was."""
    renames = []
    for review in answers.values():
        if review.rule == PROPOSAL and review.key not in fresh:
            suspicion = _from_review(review, approval.source, approval.accepted, silent)
            renames += [(review, suspicion)] if suspicion else []
    return renames


def _from_review(
    review: Review, source: Catalog, accepted: Catalog, silent: Mapping[Ref, frozenset[str]] | None
) -> RenameInference | None:
    rename = change_from_dict(review.change)
    match rename:
        case ColumnRenamed():
            table, before = source.get(rename.table), accepted.get(rename.table)
            new = table.by_name.get(rename.after.name) if table else None
            old = before.by_name.get(rename.before.name) if before else None
            if table is None or new is None or old is None:
                return None
            quiet = silent is None or rename.before.name in silent.get(rename.table, ())
            if rename.before.name in table.by_name and not quiet:
                return None
            removed: ColumnRemoved | TableRemoved = ColumnRemoved(rename.table, rename.before, 0)
            added: ColumnAdded | TableAdded = ColumnAdded(rename.table, replace(new, key=0), table.columns.index(new))
        case TableRenamed():
            now = source.get(rename.after.ref)
            if now is None or rename.before.ref in source.by_ref or rename.before.ref not in accepted.by_ref:
                return None
            removed, added = TableRemoved(rename.before), TableAdded(now)
        case _:
            return None
    return _with(rename, removed, added, review.evidence)


def _with(
    rename: ColumnRenamed | TableRenamed,
    removed: ColumnRemoved | TableRemoved,
    added: ColumnAdded | TableAdded,
    data: Mapping[str, Any],
) -> RenameInference:
    sample = Sample.read(data["sample"]) if data.get("sample") else None
    flags = bool(data.get("proven")), bool(data.get("tied"))
    return RenameInference(
        removed, added, rename, data.get("score", 0.0), tuple(data.get("evidence", ())), *flags, sample
    )


def to_json(inference: RenameInference) -> dict[str, Any]:
    """Return the form that is stored and shown: the line with its score and its parts; counts, no values."""
    return {
        "line": inference.line,
        "score": inference.score,
        "evidence": list(inference.evidence),
        "proven": inference.proven,
        "tied": inference.tied,
        "sample": asdict(inference.sample) if inference.sample else None,
    }


def _finding(inference: RenameInference, approval: ApprovalFingerprint) -> DetectedChange:
    rename = inference.rename
    return DetectedChange(
        key=key(rename),
        kind=rename.kind,
        table=table_of(rename) or ("", ""),
        column=column_of(rename),
        summary=f"{describe(rename)}?",
        change=change_to_dict(rename),
        action="review",
        rule=PROPOSAL,
        why=f"looks like one rename: {inference.line}",
        tables_fingerprint=approval.fingerprint(rename),
        evidence=to_json(inference),
    )
