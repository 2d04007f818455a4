"""Taking applied changes back, as values: which reverse, which names, and what gets in the way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import NAMING, catalog, column, table

from instep.errors import Conflict, IllegalChange
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import Change, TableAdded, TableRemoved, describe
from instep.schema.changes.diff import bare, diff
from instep.schema.planning.accept import accept
from instep.schema.planning.naming import assign
from instep.schema.planning.undo import NEVER, Applied, UndoPreview, undo
from instep.schema.policy.policy import Decision, Modifiers, Removed

T = table("t", "id:int32#1!", "a:int32#2", "b:int32#3", oid="10")
U = table("u", "id:int32#1!", "x:int32#2", oid="11")


def accepted(before: Catalog, after: Catalog, removed: Removed = "retain") -> tuple[Catalog, tuple[Change, ...]]:
    """What is accepted once every change between two source catalogs is applied."""
    changes = diff(before, after)
    decisions = [Decision(c, "apply", "test", "", Modifiers(removed=removed)) for c in changes]
    return assign(accept(decisions, before, after), NAMING), changes


@dataclass(frozen=True)
class Story:
    """One version after another, from the first catalog on."""

    versions: tuple[Catalog, ...]
    applied: tuple[Applied, ...]

    @property
    def now(self) -> Catalog:
        return self.versions[-1]

    def undo(self, *ids: str) -> UndoPreview:
        return undo([a for a in self.applied if not ids or a.id in ids], self.now, NAMING)


def story(*sources: Catalog, removed: Removed = "retain") -> Story:
    """Ids are c-1, c-2, ... in the order of the changes after the first catalog."""
    versions = [assign(sources[0], NAMING)]
    applied: list[Applied] = []
    for source in sources[1:]:
        after, changes = accepted(versions[-1], source, removed)
        applied += [Applied(f"c-{len(applied) + i}", c, versions[-1], after, removed) for i, c in enumerate(changes, 1)]
        versions.append(after)
    return Story(tuple(versions), tuple(applied))


def names(found: Table | None) -> str:
    assert found is not None
    return " ".join(f"{c.name}:{c.type}{'~' if c.retained else ''}" for c in found.columns)


def changed(*columns: str, **more: object) -> Catalog:
    return catalog(table("t", *columns, oid="10", **more))


CASES = (
    ("a rename", changed("id:int32#1!", "z:int32#2", "b:int32#3"), "id:int32 a:int32 b:int32"),
    ("a swap", changed("id:int32#1!", "b:int32#2", "a:int32#3"), "id:int32 a:int32 b:int32"),
    ("an addition", changed("id:int32#1!", "a:int32#2", "b:int32#3", "c:int32#4"), "id:int32 a:int32 b:int32 c:int32~"),
    ("a widening", changed("id:int32#1!", "a:int64#2", "b:int32#3"), "id:int32 a:int32 b:int32"),
    ("a rename and a widening", changed("id:int32#1!", "z:int64#2", "b:int32#3"), "id:int32 a:int32 b:int32"),
    (
        "a rename onto a new name",
        changed("id:int32#1!", "z:int32#2", "b:int32#3", "a:int32#4"),
        "id:int32 a:int32 b:int32 a__v1:int32~",
    ),
)


@pytest.mark.parametrize(("name", "after", "expected"), CASES, ids=[c[0] for c in CASES])
def test_a_column_goes_back(name: str, after: Catalog, expected: str) -> None:
    told = story(catalog(T), after)
    made = told.undo()
    assert made.left == {}
    assert sorted(names(made.after.get(("s", "t"))).split()) == sorted(expected.split())


def test_a_dropped_column_comes_back_as_kept() -> None:
    made = story(catalog(T), changed("id:int32#1!", "a:int32#2"), removed="drop").undo()
    assert names(made.after.get(("s", "t"))) == "id:int32 a:int32 b:int32~"
    assert made.undropped == {"c-1": (("s", "t"), "b")}


def test_a_dropped_table_comes_back_as_kept_under_its_name() -> None:
    made = story(catalog(T, U), catalog(U), removed="drop").undo()
    back = made.after.get(("s", "t"))
    assert back is not None
    assert (back.retained, back.alias, back.id) == (True, "t", "10")
    assert made.undropped == {"c-1": (("s", "t"), "")}


def test_a_renamed_table_has_its_name_at_the_destination_back() -> None:
    told = story(catalog(T), catalog(replace(T, name="v", columns=T.columns[:2])), removed="drop")
    made = told.undo()
    back = made.after.get(("s", "t"))
    assert back is not None
    assert (back.alias, names(back)) == ("t", "id:int32 a:int32 b:int32~")
    assert made.tables >= {("s", "t"), ("s", "v")}


def test_an_added_table_goes_or_stays_as_the_modifier_says() -> None:
    kept = story(catalog(T), catalog(T, U)).undo()
    assert [t.name for t in kept.after.tables if t.retained] == ["u"]
    gone = story(catalog(T), catalog(T, U), removed="drop").undo()
    assert [t.name for t in gone.after.tables] == ["t"]


def test_one_of_a_swap_alone_waits_for_the_other() -> None:
    told = story(catalog(T), changed("id:int32#1!", "b:int32#2", "a:int32#3"))
    with pytest.raises(Conflict, match="still used"):
        told.undo("c-1")


B = ("id:int32#1!", "a:int32#2", "b:int32#3")
SINCE = (
    (
        "the column has another name by now",
        (B, ("id:int32#1!", "y:int32#2", "b:int32#3"), ("id:int32#1!", "z:int32#2", "b:int32#3")),
        "is now called z",
    ),
    (
        "the type has moved on",
        (B, ("id:int32#1!", "a:int64#2", "b:int32#3"), ("id:int32#1!", "a:string#2", "b:int32#3")),
        "is now of type string",
    ),
    (
        "the column has left",
        (B, ("id:int32#1!", "y:int32#2", "b:int32#3"), ("id:int32#1!", "b:int32#3")),
        "is no longer at the source",
    ),
    ("it was never taken away", (B, ("id:int32#1!", "a:int32#2")), "nothing was removed"),
)


@pytest.mark.parametrize(("name", "steps", "why"), SINCE, ids=[c[0] for c in SINCE])
def test_what_has_moved_on_is_in_the_way(name: str, steps: tuple[tuple[str, ...], ...], why: str) -> None:
    told = story(*(changed(*s) for s in steps))
    with pytest.raises(Conflict, match=why) as raised:
        told.undo("c-1")
    assert ("nothing to undo" in raised.value.hint) == (why == "nothing was removed")


def test_a_name_that_was_used_again() -> None:
    told = story(
        changed(*B),
        changed("id:int32#1!", "a:int32#2"),
        changed("id:int32#1!", "a:int32#2", "b:string#4"),
        removed="drop",
    )
    with pytest.raises(Conflict, match="has been added to"):
        told.undo("c-1")


def test_a_new_generation_in_between() -> None:
    told = story(catalog(T), changed("id:int32#1!", "z:int32#2", "b:int32#3"), catalog(replace(T, id="99")))
    with pytest.raises(Conflict, match=r"no longer exists|new generation"):
        told.undo("c-1")


@pytest.mark.parametrize("kind", sorted(NEVER))
def test_why_never_is_said_for(kind: str) -> None:
    assert NEVER[kind]


def test_a_retyped_column_is_refused() -> None:
    with pytest.raises(IllegalChange, match="cast to the new type"):
        story(catalog(T), changed("id:int32#1!", "a:date#2", "b:int32#3")).undo()


def test_of_several_the_others_go_back() -> None:
    made = story(catalog(T), changed("id:int32#1!", "a:date#2", "z:int32#3")).undo()
    assert names(made.after.get(("s", "t"))) == "id:int32 a:date b:int32"
    assert [describe(d.change) for d in made.decisions] == ["column s.t.z renamed to b"]
    assert len(made.left) == 1


NAMES = st.sampled_from(("a", "b", "c", "d"))
KINDS = st.sampled_from(("int32", "int64"))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """`t` with the columns 2 to 5, each under any name, of two types of which one widens to the other."""
    chosen = draw(st.lists(NAMES, unique=True, max_size=4))
    numbers = draw(st.permutations(range(2, 6)))
    made = [column(f"{n}:{draw(KINDS)}#{i}") for n, i in zip(chosen, numbers, strict=False)]
    return table("t", "id:int32#1!", *made, oid="10")


@given(tables(), tables())
def test_what_goes_back_is_as_it_was(before: Table, after: Table) -> None:
    """Where nothing stays applied, the live columns are those of before, but for what the source dropped: that is
    kept."""
    told = story(catalog(before), catalog(after), removed="drop")
    going = [a for a in told.applied if a.change.kind not in ("column.reordered", "column.narrowed")]
    if not going:
        return
    try:
        made = undo(going, told.now, NAMING)
    except Conflict:
        return
    if made.left:
        return
    now, was = made.after.by_ref["s", "t"], bare(told.versions[0]).by_ref["s", "t"]
    kept = {c.name for c in now.columns}
    assert {c.name for c in was.columns} == kept
    assert {c.name: c.id for c in now.columns} == {c.name: c.id for c in was.columns}
    assert not any(isinstance(d.change, TableAdded | TableRemoved) for d in made.decisions)
