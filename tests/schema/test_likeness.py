"""How alike removed and added columns are: names, schema, data; which pair is chosen; what is let in by itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import catalog, column, table

from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    TableRenamed,
    describe,
    key,
)
from instep.schema.changes.diff import diff
from instep.schema.policy.policy import Override, Policy, Rule
from instep.schema.policy.removal import decide_all
from instep.schema.policy.similarity import (
    Candidate,
    RenameInference,
    Sample,
    alike,
    as_renames,
    assign,
    automatic,
    candidates,
    select_inferences,
    swap_candidate,
    swapped_types,
    threshold_of,
    with_sample,
)

LIKE = [
    ("case and separators", "customerName", "CUSTOMER_NAME", 0.95, 1),
    ("order of words", "name_first", "first_name", 0.9, 1),
    ("abbreviated", "cust_name", "customer_name", 0.9, 1),
    ("letters left out", "qty", "quantity", 0.85, 1),
    ("two abbreviations", "cust_addr", "customer_address", 0.85, 1),
    ("initials", "dob", "date_of_birth", 0.85, 1),
    ("one word more", "name", "full_name", 0.6, 0.95),
    ("one word in common", "customer_name", "client_name", 0.6, 0.85),
    ("a number at the end", "address", "address2", 0.7, 0.99),
    ("nothing in common", "amount", "zip", 0, 0.35),
    ("another script", "имя", "имя_клиента", 0.5, 1),
    ("no letters", "_", "__", 0, 1),
]


@pytest.mark.parametrize(("a", "b", "low", "high"), [c[1:] for c in LIKE], ids=[c[0] for c in LIKE])
def test_names(a: str, b: str, low: float, high: float) -> None:
    assert low <= alike(a, b) <= high


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)


@given(NAMES, NAMES)
def test_likeness_of_names_is_symmetric_and_within_bounds(a: str, b: str) -> None:
    assert alike(a, b) == alike(b, a)
    assert 0 <= alike(a, b) <= 1
    assert alike(a, a) == 1


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_the_assignment_is_the_best_one(height: int, width: int, data: st.DataObject) -> None:
    cell = st.integers(0, 100).map(lambda n: n / 100)
    scores = data.draw(st.lists(st.lists(cell, min_size=width, max_size=width), min_size=height, max_size=height))
    pairs = assign(scores)
    assert len(pairs) == min(height, width) == len({i for i, _ in pairs}) == len({j for _, j in pairs})
    small, large = sorted((height, width))
    cells = scores if height <= width else [list(c) for c in zip(*scores, strict=True)]
    best = max(sum(cells[i][j] for i, j in enumerate(p)) for p in permutations(range(large), small))
    assert sum(scores[i][j] for i, j in pairs) == pytest.approx(best)


def pairs(before: Table, now: Table) -> dict[str, Candidate]:
    """`old>new` to the candidate."""
    found = candidates(diff(catalog(before), catalog(now)))
    return {f"{c.rename.before.name}>{c.rename.after.name}": c for c in found}


ID, TAIL = "id:int64!", "n:int32"
ONE = table("t", ID, "name:string", TAIL)


def candidate(now: str = "client:string", before: Table = ONE, place: int = 1) -> Candidate:
    columns = [c for c in before.columns if c.name in ("id", "n")]
    columns.insert(place, column(now))
    (found,) = pairs(before, table("t", *columns)).values()
    return found


SCHEMA = [
    ("same name but for its case", "Name:string", 1, 0.99, 1),
    ("in its place", "full_name:string", 1, 0.9, 1),
    ("in its place, another name", "zip:string", 1, 0.8, 0.95),
    ("elsewhere, like name", "full_name:string", 2, 0.5, 0.7),
    ("elsewhere, another name", "zip:string", 2, 0.4, 0.6),
    ("a longer text", "full_name:string(20)", 1, 0.8, 0.95),
]


@pytest.mark.parametrize(("now", "place", "low", "high"), [c[1:] for c in SCHEMA], ids=[c[0] for c in SCHEMA])
def test_by_schema_alone(now: str, place: int, low: float, high: float) -> None:
    found = with_sample(candidate(now, place=place))
    assert low <= found.score <= high
    assert found.proven is False


@pytest.mark.parametrize("kind", ["date", "int64", "boolean", "binary"])
def test_another_family_of_types_is_no_candidate(kind: str) -> None:
    assert pairs(ONE, table("t", ID, f"name2:{kind}", TAIL)) == {}


def test_places_are_counted_among_the_columns_that_stay() -> None:
    before, now = table("t", ID, "a:string", "b:string", TAIL), table("t", ID, "x:string", "y:string", TAIL)
    found = pairs(before, now)
    assert "same position" in found["a>x"].signs and "same position" in found["b>y"].signs  # noqa: PT018
    assert "between the same columns" in found["a>y"].signs
    moved = pairs(before, table("t", "new:date", ID, "x:string", "b:string", TAIL))
    assert "same position" in moved["a>x"].signs


def sample(same: int = 998, rows: int = 1000, **more: object) -> Sample:
    return replace(Sample("key", 1000, rows, same, (0, 0), (900, 900), range=True), **more)  # type: ignore[arg-type]


DATA = [
    ("nearly all rows", "zip:string", sample(), 0.9, 1, True),
    ("all rows, elsewhere", "zip:string@2", sample(1000), 0.9, 1, True),
    ("half of the rows", "full_name:string", sample(500), 0.4, 0.65, True),
    ("no row", "full_name:string", sample(0, distinct=(900, 900)), 0, 0.2, True),
    ("the new one is empty", "full_name:string", sample(0, nulls=(0, 1000), distinct=(900, 0)), 0, 0.2, True),
    ("few rows", "full_name:string", sample(3, 3, sampled=3, distinct=(3, 3)), 0.9, 1, False),
    ("nine rows", "full_name:string", sample(9, 9, sampled=9, distinct=(9, 9)), 0.9, 1, False),
    ("ten rows", "full_name:string", sample(10, 10, sampled=10, distinct=(10, 10)), 0.9, 1, True),
    ("one row that differs", "full_name:string", sample(0, 1, sampled=1, distinct=(1, 1)), 0.7, 0.95, False),
    ("all NULL", "zip:string@2", sample(0, 0, nulls=(1000, 1000), distinct=(0, 0), range=None), 0, 0.6, False),
    ("constant", "zip:string@2", sample(1000, distinct=(1, 1)), 0, 0.6, False),
    ("a flag in numbers", "zip:string@2", sample(1000, distinct=(2, 2)), 0, 0.6, False),
    ("constants that differ", "full_name:string", sample(0, distinct=(1, 1), range=False), 0, 0.6, False),
    ("flags that differ", "full_name:string", sample(500, distinct=(2, 2)), 0, 0.75, False),
    ("mostly NULL", "full_name:string", sample(20, 20, nulls=(980, 980), distinct=(20, 20)), 0.9, 1, True),
    ("by values", "full_name:string", sample(by="values"), 0.9, 1, False),
    ("by values, elsewhere", "zip:string@2", sample(by="values"), 0.7, 0.9, False),
    ("other values", "full_name:string", sample(20, by="values", range=False), 0, 0.45, False),
    ("another range, few rows changed", "full_name:string", sample(990, range=False), 0.9, 1, True),
]


@pytest.mark.parametrize(("now", "data", "low", "high", "proven"), [c[1:] for c in DATA], ids=[c[0] for c in DATA])
def test_with_data(now: str, data: Sample, low: float, high: float, proven: bool) -> None:
    text, _, place = now.partition("@")
    found = with_sample(candidate(text, place=int(place or 1)), data)
    assert low <= found.score <= high, found.line
    assert found.proven is proven


def test_the_line_shows_the_score_and_its_parts() -> None:
    before = table("t", ID, "customer_name:string", TAIL)
    (found,) = pairs(before, table("t", ID, "client_name:string", TAIL)).values()
    line = with_sample(found, sample(nulls=(120, 121), range=False)).line
    assert line.startswith(
        "customer_name -> client_name: 0.97: 998 of 1,000 sampled rows have the same value; 12% NULL"
    )
    for part in ("900 distinct values", "different smallest or largest", "same position", "same type string", "alike"):
        assert part in line
    assert "flags" not in line
    nothing = with_sample(found, Sample(note="no rows at the destination to compare with yet"))
    assert nothing.score == found.schema
    assert nothing.evidence[-1] == "no rows at the destination to compare with yet"


COUNTS = st.integers(0, 1000)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    sampled = draw(st.integers(1, 1000))
    rows = draw(st.integers(0, sampled))
    nulls, distinct = ((draw(st.integers(0, sampled)), draw(st.integers(0, sampled))) for _ in range(2))
    return Sample(
        draw(st.sampled_from(["key", "values"])), sampled, rows, draw(st.integers(0, rows)), nulls, distinct,
        draw(st.sampled_from([True, False, None])),
    )  # fmt: skip


@given(samples())
def test_scores_are_within_bounds_and_the_same_both_ways(data: Sample) -> None:
    there, back = candidate("zip:string"), candidate("name:string", table("t", ID, "zip:string", TAIL))
    score = with_sample(there, data).score
    assert 0 <= score <= 1
    mirrored = replace(data, nulls=data.nulls[::-1], distinct=data.distinct[::-1])
    assert with_sample(back, mirrored).score == score


@given(samples())
def test_data_that_says_nothing_never_raises_a_score(data: Sample) -> None:
    found = candidate("zip:string", place=2)
    for mute in (replace(data, rows=0, same=0), replace(data, distinct=(1, 1)), replace(data, distinct=(2, 1))):
        weighed = with_sample(found, mute)
        assert weighed.score <= found.schema
        assert not weighed.proven
    flag = replace(found, flag=True)
    assert with_sample(flag, data).score <= found.schema
    assert not with_sample(flag, data).proven


LET_IN = Rule(on=("column.renamed",), decide="apply", modifiers={"rename_threshold": 0.95})


@given(samples(), st.floats(0, 1), st.sampled_from(["zip:string", "full_name:string"]))
def test_nothing_is_automatic_below_the_threshold(data: Sample, threshold: float, now: str) -> None:
    rule = replace(LET_IN, modifiers={"rename_threshold": threshold})
    found = with_sample(candidate(now), data)
    for one in automatic([found], [found.removed, found.added], Policy(rules=(rule,))):
        assert one.score >= threshold
        assert one.proven
        assert data.by == "key"
        assert data.rows >= 10


def proven(now: str = "client:string", **more: object) -> RenameInference:
    return replace(with_sample(candidate(now), sample()), **more)  # type: ignore[arg-type]


MANY = replace(LET_IN, match=("s.t.nam*",))
AUTOMATIC = [
    ("the preset alone", Policy(), proven(), False),
    ("a rule", Policy(rules=(LET_IN,)), proven(), True),
    ("a rule about the old name", Policy(rules=(MANY,)), proven(), True),
    ("a rule about other columns", Policy(rules=(replace(LET_IN, match=("s.u.*",)),)), proven(), False),
    ("a rule without a threshold", Policy(rules=(replace(LET_IN, modifiers={}),)), proven(), False),
    ("a threshold of the policy", Policy(rules=(replace(LET_IN, modifiers={}),), modifiers={"rename_threshold": 0.5}),
     proven(), False),
    ("a rule that asks", Policy(rules=(replace(LET_IN, decide="review"),)), proven(), False),
    ("an earlier rule that asks", Policy(rules=(replace(MANY, decide="review"), LET_IN)), proven(), False),
    ("a rule of the table", Policy("p", "block_all", (), (Override("s.t", rules=(LET_IN,)),)), proven(), True),
    ("below the threshold", Policy(rules=(LET_IN,)), proven(score=0.949), False),
    ("at the threshold", Policy(rules=(LET_IN,)), proven(score=0.95), True),
    ("a tie", Policy(rules=(LET_IN,)), proven(tied=True), False),
    ("without data", Policy(rules=(LET_IN,)), proven(proven=False), False),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "found", "expected"), [c[1:] for c in AUTOMATIC], ids=[c[0] for c in AUTOMATIC])
def test_what_is_let_in_by_itself(policy: Policy, found: RenameInference, expected: bool) -> None:
    changes = [found.removed, found.added]
    assert bool(automatic([found], changes, policy)) is expected


def test_columns_of_the_key_and_the_cursor_are_never_let_in_by_themselves() -> None:
    policy = Policy(rules=(LET_IN,))
    keyed = diff(catalog(table("t", "name:string!", TAIL)), catalog(table("t", "code:string!", TAIL)))
    (found,) = candidates(keyed)
    assert automatic([replace(with_sample(found, sample()), score=1.0)], keyed, policy) == ()
    moved = diff(catalog(replace(ONE, cursor="name")), catalog(table("t", ID, "client:string", TAIL)))
    (found,) = candidates(moved)
    assert automatic([replace(with_sample(found, sample()), score=1.0)], moved, policy) == ()


def chosen(before: Table, now: Table, agreement: dict[str, int], threshold: float = 0.8) -> dict[str, RenameInference]:
    found = candidates(diff(catalog(before), catalog(now)))
    names = {key(c.rename): f"{c.rename.before.name}>{c.rename.after.name}" for c in found}
    data = {k: sample(agreement[n]) for k, n in names.items() if n in agreement}
    policy = Policy(modifiers={"rename_threshold": threshold})
    return {names[key(s.rename)]: s for s in select_inferences(found, threshold_of(policy), data)}


TWO, NEW = table("t", ID, "a:string", "b:string"), table("t", ID, "x:string", "y:string")
CHOICES = [
    ("by place", {}, {"a>x", "b>y"}),
    ("crossed by data", {"a>y": 1000, "b>x": 1000, "a>x": 3, "b>y": 3}, {"a>y", "b>x"}),
    ("one of them is new", {"a>x": 1000, "a>y": 0, "b>x": 0, "b>y": 0}, {"a>x"}),
    ("the best total", {"a>x": 990, "a>y": 985, "b>x": 980, "b>y": 100}, {"a>y", "b>x"}),
    ("neither", {"a>x": 0, "a>y": 0, "b>x": 0, "b>y": 0}, set()),
]


@pytest.mark.parametrize(("agreement", "expected"), [c[1:] for c in CHOICES], ids=[c[0] for c in CHOICES])
def test_which_pairs_are_chosen(agreement: dict[str, int], expected: set[str]) -> None:
    assert set(chosen(TWO, NEW, agreement)) == expected


def test_ties_are_told_and_never_let_in() -> None:
    found = chosen(TWO, table("t", ID, "x:string"), {"a>x": 1000, "b>x": 1000})
    (one,) = found.values()
    assert one.tied
    assert "is as likely" in one.line
    clear = chosen(TWO, table("t", ID, "x:string"), {"a>x": 1000, "b>x": 10})
    assert not clear["a>x"].tied


def test_what_a_person_rejected_is_no_candidate() -> None:
    changes = diff(catalog(ONE), catalog(table("t", ID, "client:string", TAIL)))
    (one,) = candidates(changes)
    assert candidates(changes, refused={key(one.rename)}) == ()


@pytest.mark.parametrize("now", ["client:string", "client:string(9)"])
def test_pairs_become_renames_in_their_place(now: str) -> None:
    before = table("t", ID, "old:date", "name:string(5)" if "(" in now else "name:string", TAIL)
    after = table("t", ID, replace(column(now), nullable=False), TAIL, "new:date")
    changes = diff(catalog(before), catalog(after))
    (one,) = [s for s in select_inferences(candidates(changes), lambda c: 0.0) if s.rename.before.name == "name"]
    kinds = [c.kind for c in as_renames(changes, [one])]
    widened = ["column.widened"] if "(" in now else []
    assert kinds == ["column.renamed", *widened, "column.nullability", "column.removed", "column.added"]
    assert as_renames(changes, []) == changes


TABLES = [
    ("equal columns, like name", table("orders_2", "a:int32!", "b:string"), 0.9, 1),
    ("equal columns, another name", table("zzz", "a:int32!", "b:string"), 0.8, 0.9),
    ("a column more", table("orders_2", "a:int32!", "b:string", "c:date"), 0.6, 0.8),
    ("another key", table("orders_2", "a:int32", "b:string!"), 0.75, 0.9),
    ("nothing in common", table("zzz", "x:date", "y:binary"), 0, 0.2),
]


@pytest.mark.parametrize(("now", "low", "high"), [c[1:] for c in TABLES], ids=[c[0] for c in TABLES])
def test_tables(now: Table, low: float, high: float) -> None:
    before = table("orders", "a:int32!", "b:string")
    (found,) = [c for c in candidates(diff(catalog(before), catalog(now))) if isinstance(c.rename, TableRenamed)]
    assert low <= found.schema <= high
    weighed = with_sample(found, Sample("key", 1000, 1000, 999, whole=True, note=""))
    assert weighed.score > found.schema or found.schema > 0.95
    assert "999 of 1,000 sampled rows are there with the same values" in weighed.line
    assert automatic([replace(weighed, score=1.0)], [], Policy(rules=(replace(LET_IN, on=("table.renamed",)),))) == ()


def test_both_sides_are_decided_with_the_line_as_their_reason() -> None:
    changes: tuple[Change, ...] = diff(catalog(ONE), catalog(table("t", ID, "client:string", TAIL)))
    (one,) = select_inferences(candidates(changes), lambda c: 0.5)
    decisions, proposals = decide_all(changes, Policy(preset="propagate_all"), suspected=[one])
    assert proposals == (one,)
    assert {d.modifiers.removed for d in decisions if isinstance(d.change, ColumnRemoved)} == {"retain"}
    assert all("name -> client: " in d.why for d in decisions if isinstance(d.change, ColumnAdded | ColumnRemoved))
    assert isinstance(one.rename, ColumnRenamed)
    assert describe(one.rename) == "column s.t.name renamed to client"


CROSSED = [
    ("exchanged", table("t", ID, "a:int32", "b:string"), 1),
    ("one of them", table("t", ID, "a:int32", "b:int32"), 0),
    ("both to a third", table("t", ID, "a:date", "b:date"), 0),
    ("neither", table("t", ID, "a:string", "b:int32"), 0),
]


@pytest.mark.parametrize(("now", "count"), [c[1:] for c in CROSSED], ids=[c[0] for c in CROSSED])
def test_columns_that_exchange_their_types(now: Table, count: int) -> None:
    found = swapped_types(diff(catalog(table("t", ID, "a:string", "b:int32")), catalog(now)))
    assert len(found) == count
    for a, b in found:
        assert with_sample(swap_candidate(a, b)).score >= 0.8
        assert with_sample(swap_candidate(a, b), sample(10)).score < 0.5
    with_ids = diff(catalog(table("t", "a:string#1", "b:int32#2")), catalog(table("t", "a:int32#1", "b:string#2")))
    assert swapped_types(with_ids) == ()
