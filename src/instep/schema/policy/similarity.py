"""The similarity of a removed and an added column (or table) without ids, as evidence of a rename, with its reasons.

A score is a number from 0 to 1 that is made of the schema (type, place, name) and, where rows could be compared, of
the data, which then counts most. It is shown with its parts, never with values, and it asks: it decides only
where a rule of the policy says so (see `automatic`).

How alike two names are, as people shorten, join and reorder words: a number, symmetric, 1 for equal names.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import groupby
from math import inf
from typing import Any, Literal

from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.promotion import fitting
from instep.schema.catalog.types import Boolean
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnNarrowed,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    ColumnWidened,
    CursorRemoved,
    KeyRemoved,
    TableAdded,
    TableRemoved,
    TableRenamed,
    key,
)
from instep.schema.changes.diff import diff
from instep.schema.policy.policy import Modifiers, Policy, override_of, trace


def assign(scores: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Return (row, column) pairs, each row and column in at most one, with the greatest sum of `scores`; min(rows,
    columns) of them. Equal scores always give the same pairs."""
    if not scores or not scores[0]:
        return []
    if len(scores) > len(scores[0]):
        return sorted((i, j) for j, i in assign([list(column) for column in zip(*scores, strict=True)]))
    width = len(scores[0])
    rows, columns, owner = [0.0] * (len(scores) + 1), [0.0] * (width + 1), [0] * (width + 1)
    for row in range(1, len(scores) + 1):
        _add(row, scores, rows, columns, owner)
    return sorted((owner[j] - 1, j - 1) for j in range(1, width + 1) if owner[j])


def _add(
    row: int, scores: Sequence[Sequence[float]], rows: list[float], columns: list[float], owner: list[int]
) -> None:
    """Assign a column to one more row, along the cheapest chain of moves. `rows` and `columns` are the potentials;
    all are counted from 1, column 0 stands for the new row."""
    width = len(columns) - 1
    owner[0], at = row, 0
    least, way, done = [inf] * (width + 1), [0] * (width + 1), [False] * (width + 1)
    while owner[at]:
        done[at], assigned, delta, following = True, owner[at], inf, 0
        for j in range(1, width + 1):
            if done[j]:
                continue
            cost = -scores[assigned - 1][j - 1] - rows[assigned] - columns[j]
            if cost < least[j]:
                least[j], way[j] = cost, at
            if least[j] < delta:
                delta, following = least[j], j
        for j in range(width + 1):
            if done[j]:
                rows[owner[j]] += delta
                columns[j] -= delta
            else:
                least[j] -= delta
        at = following
    while at:
        owner[at] = owner[way[at]]
        at = way[at]


PROPOSAL = "rename proposal"
"""The rule of a review about a suspected rename."""
SAMPLE = 1_000
ENOUGH = 10
"""Rows with a value that must have been compared before data may decide anything."""
TELLING = 3
"""Distinct values that a column must have for its data to speak for a rename: two are a flag, one is a constant."""
NEAR = 0.05
"""Two pairs of one column whose scores are this near are a tie."""
NOWHERE = -1
"""The position of a column whose place says nothing, because records have no order."""
_BY_KEY, _BY_VALUES = 0.85, 0.6
_PAIRS = 400


@dataclass(frozen=True)
class Sample:
    """Counts of a comparison of old values at the destination with new ones at the source.

    `by` key: the rows of both sides with the same key; by values: two heaps of values, for want of a key. `sampled`
    rows were looked at, in `rows` of them at least one side has a value, `same` of those are equal. `nulls` and
    `distinct` are of the old and the new side; `range`: whether smallest and largest values are equal (None: unknown).
    `note` says why nothing could be compared (`sampled` is 0 then). `whole`: rows of a table, not values of a column.
    """

    by: Literal["key", "values"] = "key"
    sampled: int = 0
    rows: int = 0
    same: int = 0
    nulls: tuple[int, int] = (0, 0)
    distinct: tuple[int, int] = (0, 0)
    range: bool | None = None
    note: str = ""
    whole: bool = False

    @property
    def agreement(self) -> float:
        return self.same / self.rows if self.rows else 0.0

    @property
    def profile(self) -> float:
        """Return how alike the two columns are as a whole: shares of NULL, distinct values, range."""
        parts = [1 - abs(self.nulls[0] - self.nulls[1]) / max(self.sampled, 1)]
        if max(self.distinct):
            parts.append(min(self.distinct) / max(self.distinct))
        parts += [1.0 if self.range else 0.5] if self.range is not None else []
        return sum(parts) / len(parts)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Sample:
        """Read a sample from JSON."""
        pairs = {name: (data[name][0], data[name][1]) for name in ("nulls", "distinct")}
        return cls(**{**data, **pairs})


@dataclass(frozen=True)
class RenameInference:
    """A removal and an addition without ids that look like one rename; a question, never an answer."""

    removed: ColumnRemoved | TableRemoved
    added: ColumnAdded | TableAdded
    rename: ColumnRenamed | TableRenamed
    score: float
    """0 to 1."""
    evidence: tuple[str, ...]
    """Says what it is made of (never values)."""
    proven: bool = False
    """Values that tell something were compared by key."""
    tied: bool = False
    """Another pair is as likely."""
    sample: Sample | None = None

    @property
    def line(self) -> str:
        """`old -> new: score: evidence`."""
        return f"{self.pair}: {'; '.join(self.evidence)}"

    @property
    def pair(self) -> str:
        """`old -> new: score`."""
        return f"{self.rename.before.name} -> {self.rename.after.name}: {self.score:.2f}"

    @property
    def sides(self) -> tuple[str, str]:
        """The content keys of the removal and the addition."""
        return key(self.removed), key(self.added)


Samples = Mapping[str, Sample]
"""Samples by the content key of the rename."""


@dataclass(frozen=True)
class Candidate:
    """A pair that may be one rename, by its schema alone."""

    removed: ColumnRemoved | TableRemoved
    added: ColumnAdded | TableAdded
    schema: float
    signs: tuple[str, ...]
    flag: bool = False
    """Its type has two values."""

    @property
    def rename(self) -> ColumnRenamed | TableRenamed:
        if isinstance(self.removed, ColumnRemoved):
            assert isinstance(self.added, ColumnAdded)
            old = self.removed.before
            return ColumnRenamed(self.removed.table, old, replace(old, name=self.added.after.name))
        assert isinstance(self.added, TableAdded)
        old_table, new = self.removed.before, self.added.after
        return TableRenamed(old_table, replace(old_table, schema=new.schema, name=new.name))


def candidates(changes: Iterable[Change], *, refused: Collection[str] = ()) -> tuple[Candidate, ...]:
    """Return the pairs that may be renames, the likeliest first; `refused` are content keys of renames that a person
    has rejected. At most 400 pairs a table are looked at."""
    changes = tuple(changes)
    pairs = [c for c in (*_columns(changes), *_tables(changes)) if key(c.rename) not in refused]
    return tuple(sorted(pairs, key=lambda c: -c.schema))


def _columns(changes: Sequence[Change]) -> Iterator[Candidate]:
    added: dict[tuple[str, str], list[ColumnAdded]] = defaultdict(list)
    gone: dict[tuple[str, str], list[ColumnRemoved]] = defaultdict(list)
    for change in changes:
        if isinstance(change, ColumnAdded) and change.after.id is None:
            added[change.table].append(change)
        elif isinstance(change, ColumnRemoved) and change.before.id is None:
            gone[change.table].append(change)
    for table in gone.keys() & added.keys():
        old, new = _places(gone[table]), _places(added[table])
        pairs = [(a, b) for a in gone[table] for b in added[table] if fitting(a.before.type, b.after.type)]
        for a, b in pairs[:_PAIRS]:
            before_place, after_place = old.get(a.before.name), new.get(b.after.name)
            same_gap = before_place is not None and after_place is not None and before_place[0] == after_place[0]
            yield _column_pair(a, b, same_gap and before_place == after_place, same_gap)


def _places(changes: Sequence[ColumnRemoved] | Sequence[ColumnAdded]) -> dict[str, tuple[int, int]]:
    """Return for each column the number of unchanged columns before it, and its rank among the changed ones behind
    the same one."""
    positions: dict[str, tuple[int, int]] = {}
    behind: Counter[int] = Counter()
    placed = (c for c in changes if c.position != NOWHERE)
    named = [(c.position, c.before.name if isinstance(c, ColumnRemoved) else c.after.name) for c in placed]
    for number, (position, name) in enumerate(sorted(named)):
        gap = position - number
        positions[name] = gap, behind[gap]
        behind[gap] += 1
    return positions


def _column_pair(gone: ColumnRemoved, new: ColumnAdded, same_place: bool, same_gap: bool) -> Candidate:
    a, b = gone.before, new.after
    place = 1.0 if same_place else 0.6 if same_gap else 0.0
    name = alike(a.name, b.name)
    attributes = (a.nullable, a.default) == (b.nullable, b.default)
    parts = (
        (0.35, place, "same position" if same_place else "between the same columns"),
        (
            0.30,
            1.0 if a.type == b.type else 0.7,
            f"same type {a.type}" if a.type == b.type else f"{a.type} and {b.type}",
        ),
        (0.15, float(attributes), "same default and nullability"),
        (0.20, name, f"names {name:.0%} alike" if name >= 0.5 else ""),
    )
    signs = tuple(text for _, holds, text in parts if holds and text)
    score = round(sum(weight * holds for weight, holds, _ in parts), 3)
    return Candidate(gone, new, score, signs, isinstance(a.type, Boolean))


def _tables(changes: Sequence[Change]) -> Iterator[Candidate]:
    """Yield the pairs of tables to compare: where there are many, those of equal columns, so that this stays linear."""
    added = [c for c in changes if isinstance(c, TableAdded) and c.after.id is None]
    gone = [c for c in changes if isinstance(c, TableRemoved) and c.before.id is None]
    by_shape: dict[object, list[TableAdded]] = defaultdict(list)
    for new in added:
        by_shape[_shape(new.after)].append(new)
    few = len(gone) * len(added) <= _PAIRS
    for old in gone:
        for new in added if few else by_shape[_shape(old.before)][:_PAIRS]:
            if old.before.kind == new.after.kind:
                yield _table_pair(old, new)


def _shape(table: Table) -> object:
    return table.schema, table.key, frozenset((c.name, c.type) for c in table.live)


def _table_pair(gone: TableRemoved, new: TableAdded) -> Candidate:
    a, b = ({(c.name, c.type) for c in t.live} for t in (gone.before, new.after))
    share = len(a & b) / max(len(a | b), 1)
    name = alike(gone.before.name, new.after.name)
    signs = ["same columns and types" if share == 1 else f"{len(a & b)} of {len(a | b)} columns are the same"]
    same_key = gone.before.key == new.after.key
    signs += [f"same key ({', '.join(gone.before.key)})"] if same_key and gone.before.key else []
    signs += [f"names {name:.0%} alike"] if name >= 0.5 else []
    score = round(0.65 * share + 0.15 * same_key + 0.2 * name, 3)
    return Candidate(gone, new, score, tuple(signs))


def with_sample(candidate: Candidate, sample: Sample | None = None) -> RenameInference:
    """Return the pair with what its data says. Columns that are all NULL, constant or flags gain nothing by their data;
    values that differ count against every pair."""
    inference = RenameInference(
        candidate.removed, candidate.added, candidate.rename, candidate.schema, candidate.signs, sample=sample
    )
    if sample is None:
        return inference
    if not sample.sampled:
        return replace(inference, evidence=(*inference.evidence, sample.note)) if sample.note else inference
    mute = _reason_inconclusive(candidate, sample)
    score = _score(candidate.schema, sample, bool(mute))
    proven = not mute and sample.by == "key" and sample.rows >= ENOUGH
    evidence = (*_data_lines(sample), *([mute] if mute else []), *candidate.signs)
    return replace(inference, score=score, evidence=evidence, proven=proven)


def _reason_inconclusive(candidate: Candidate, sample: Sample) -> str:
    """Return why equal values say nothing; empty if they do."""
    if not sample.rows:
        return "all NULL: no evidence"
    if sample.whole:
        return ""
    if candidate.flag or max(sample.distinct) == 2:
        return "only two values: weak evidence"
    if max(sample.distinct) < TELLING:
        return "only one value: weak evidence"
    return ""


def _score(schema: float, sample: Sample, mute: bool) -> float:
    trust = sample.rows / (sample.rows + 5)
    if mute:
        weight = 0.5 * trust
        return round(min(schema, (1 - weight) * schema + weight * sample.agreement), 3)
    weight = (_BY_KEY if sample.by == "key" else _BY_VALUES) * trust
    data = 0.9 * sample.agreement + 0.1 * sample.agreement * sample.profile
    return round((1 - weight) * schema + weight * data, 3)


def _data_lines(sample: Sample) -> Iterator[str]:
    if sample.whole:
        yield f"{sample.same:,} of {sample.rows:,} sampled rows are there with the same values"
        return
    if not sample.rows:
        return
    if sample.by == "key":
        yield f"{sample.same:,} of {sample.rows:,} sampled rows have the same value"
    else:
        yield f"{sample.same:,} of {sample.rows:,} sampled values are on both sides (no key to join them by: weaker)"
    old, new = (n / sample.sampled for n in sample.nulls)
    yield f"{old:.0%} NULL on both sides" if round(old, 2) == round(new, 2) else f"{old:.0%} and {new:.0%} NULL"
    left, right = sample.distinct
    yield f"{left:,} distinct values on both sides" if left == right else f"{left:,} and {right:,} distinct values"
    if sample.range is not None:
        yield "same smallest and largest value" if sample.range else "different smallest or largest value"


def select_inferences(
    pairs: Iterable[Candidate], threshold: Callable[[Change], float], samples: Samples | None = None
) -> tuple[RenameInference, ...]:
    """Return the pairs with the best total score, each change in at most one, those below the threshold left out."""
    weighed = [with_sample(c, (samples or {}).get(key(c.rename))) for c in pairs]
    good = [s for s in weighed if s.score >= threshold(s.rename)]
    groups = groupby(sorted(good, key=_group), key=_group)
    chosen = [s for _, group in groups for s in _chosen(list(group))]
    return tuple(sorted(chosen, key=lambda s: (-s.score, s.line)))


def _group(suspicion: RenameInference) -> tuple[str, str]:
    return suspicion.rename.table if isinstance(suspicion.rename, ColumnRenamed) else ("", "")


def _chosen(group: Sequence[RenameInference]) -> Iterator[RenameInference]:
    rows = list(dict.fromkeys(s.sides[0] for s in group))
    columns = list(dict.fromkeys(s.sides[1] for s in group))
    cells = {(rows.index(s.sides[0]), columns.index(s.sides[1])): s for s in group}
    scores = [[cells[i, j].score if (i, j) in cells else 0.0 for j in range(len(columns))] for i in range(len(rows))]
    for i, j in assign(scores):
        if (inference := cells.get((i, j))) is not None:
            yield _with_ties(inference, [s for at, s in cells.items() if at != (i, j) and (at[0] == i or at[1] == j)])


def _with_ties(inference: RenameInference, others: Sequence[RenameInference]) -> RenameInference:
    near = [s for s in others if s.score > inference.score - NEAR]
    if not near:
        return inference
    best = max(near, key=lambda s: s.score).rename
    text = f"{best.before.name} -> {best.after.name} is as likely"
    return replace(inference, tied=True, evidence=(*inference.evidence, text))


def threshold_of(policy: Policy) -> Callable[[Change], float]:
    """Return the score from which a pair is a suspected rename, set by the policy or the table's settings."""

    def threshold(change: Change) -> float:
        override = override_of(change, policy)
        modifiers = Modifiers().with_changes(policy.modifiers)
        return (modifiers.with_changes(override.modifiers) if override else modifiers).rename_threshold

    return threshold


def automatic(
    inferences: Iterable[RenameInference], changes: Iterable[Change], policy: Policy, tags: Collection[str] = ()
) -> tuple[RenameInference, ...]:
    """Return the renames of columns that a rule accepts: one that decides `apply` about `column.renamed` and names a
    `rename_threshold` itself, reached by evidence from data. Never a tie, never a column of the key or cursor."""
    keys = {(c.table, name) for c in changes if isinstance(c, KeyRemoved) for name in c.before}
    in_use = frozenset(keys | {(c.table, c.before) for c in changes if isinstance(c, CursorRemoved)})
    return tuple(
        s
        for s in inferences
        if isinstance(s.rename, ColumnRenamed)
        and s.proven
        and not s.tied
        and (s.rename.table, s.rename.before.name) not in in_use
        and _lets_in(s, policy, tags)
    )


def _lets_in(suspicion: RenameInference, policy: Policy, tags: Collection[str]) -> bool:
    traced = trace(suspicion.rename, policy, tags=tags)
    rule = traced.evaluations[-1].rule
    if rule is None or not traced.decision.applied or "rename_threshold" not in rule.modifiers:
        return False
    return suspicion.score >= float(rule.modifiers["rename_threshold"])


def as_renames(changes: Iterable[Change], renames: Iterable[RenameInference]) -> tuple[Change, ...]:
    """Return the changes with each of these pairs as one rename, followed by what else is different about the
    column."""
    by_removed = {s.sides[0]: s for s in renames}
    added = {s.sides[1] for s in by_removed.values()}
    out: list[Change] = []
    for change in changes:
        if (inference := by_removed.get(key(change))) is not None:
            out.append(inference.rename)
        elif key(change) not in added:
            out.append(change)
    last = max((i for i, c in enumerate(out) if isinstance(c, ColumnRenamed)), default=-1)
    edits = [edit for s in by_removed.values() for edit in _edits(s)]
    return (*out[: last + 1], *edits, *out[last + 1 :])


def _edits(suspicion: RenameInference) -> tuple[Change, ...]:
    rename, added = suspicion.rename, suspicion.added
    assert isinstance(rename, ColumnRenamed)
    assert isinstance(added, ColumnAdded)
    before, after = (Catalog((Table(*rename.table, (c,)),)) for c in (rename.after, added.after))
    return diff(before, after)


TypeChange = ColumnWidened | ColumnNarrowed | ColumnRetyped


def swapped_types(changes: Iterable[Change]) -> tuple[tuple[TypeChange, TypeChange], ...]:
    """Return two columns of one table without ids that have exchanged their types: their names may have been
    swapped."""
    typed = [c for c in changes if isinstance(c, TypeChange) and c.before.id is None]
    return tuple(
        (a, b)
        for at, a in enumerate(typed)
        for b in typed[at + 1 :]
        if a.table == b.table and (a.before.type, a.after.type) == (b.after.type, b.before.type)
    )


def swap_candidate(old: TypeChange, new: TypeChange) -> Candidate:
    """Return whether what was `old` is `new` now: the types are equal, so that only values and names can tell."""
    name = alike(old.before.name, new.after.name)
    gone, added = ColumnRemoved(old.table, old.before, 0), ColumnAdded(new.table, new.after, 0)
    return Candidate(gone, added, round(0.8 + 0.1 * name, 3), (f"same type {old.before.type}",))


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
SHORTENED = 0.9
"""A word and its abbreviation."""


@lru_cache(maxsize=4096)
def alike(a: str, b: str) -> float:
    """Return a similarity from 0 to 1; case, separators and the order of words count little, abbreviations
    (`cust_nm`, `dob`) nearly nothing."""
    if a == b:
        return 1.0
    left, right = words(a), words(b)
    if left == right:
        return 0.99
    if _initials(left, right) or _initials(right, left):
        return SHORTENED
    return round(max(_ratio("".join(left), "".join(right)), _by_words(left, right)), 4)


def words(name: str) -> tuple[str, ...]:
    """Split `customerName`, `CUSTOMER_NAME` and `customer name` into (customer, name)."""
    return tuple(w.casefold() for w in _WORDS.findall(name)) or (name.casefold(),)


def _by_words(left: Sequence[str], right: Sequence[str]) -> float:
    """Return each word with the one that is most like it on the other side."""
    forth = [max(_word(a, b) for b in right) for a in left]
    back = [max(_word(b, a) for a in left) for b in right]
    return sum([*forth, *back]) / (len(forth) + len(back))


def _word(a: str, b: str) -> float:
    if a == b:
        return 1.0
    short, long = sorted((a, b), key=lambda w: (len(w), w))
    return max(_ratio(a, b), SHORTENED if _shortens(short, long) else 0.0)


def _shortens(short: str, long: str) -> bool:
    """Return whether both begin alike and one leaves letters out: `cust` or `cstmr` for `customer`, `qty` for
    `quantity`."""
    if len(short) < 2 or short[0] != long[0] or not short.isalpha() or len(short) == len(long):
        return False
    if long.startswith(short):
        return True
    letters = iter(long)
    return short[-1] == long[-1] and all(letter in letters for letter in short)


def _initials(short: Sequence[str], long: Sequence[str]) -> bool:
    return len(short) == 1 and len(long) > 1 and short[0] == "".join(w[0] for w in long)


def _ratio(a: str, b: str) -> float:
    """Return difflib's ratio, which depends on the order of its arguments: the higher of the two."""
    return max(SequenceMatcher(None, a, b).ratio(), SequenceMatcher(None, b, a).ratio())


__all__ = [
    "ENOUGH",
    "NEAR",
    "NOWHERE",
    "PROPOSAL",
    "SAMPLE",
    "TELLING",
    "Candidate",
    "RenameInference",
    "Sample",
    "Samples",
    "TypeChange",
    "as_renames",
    "automatic",
    "candidates",
    "select_inferences",
    "swap_candidate",
    "swapped_types",
    "threshold_of",
    "with_sample",
]
