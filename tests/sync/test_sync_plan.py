"""The plan-only parts of a sync: what may be read, what stays private, which table a change is about, how long it
takes. No JVM."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy import Engine
from sqlalchemy.event import listen, remove

from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Catalog, Column, Table, by_names
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import ColumnAdded, ColumnRetyped, TableRemoved, TableRenamed
from instep.schema.policy.policy import Decision
from instep.schema.selection.selection import Selection, patterns
from instep.sync.detection.approval_fingerprint import ApprovalFingerprint
from instep.sync.detection.comparison import rebind
from instep.sync.detection.ineffective_settings import restrict
from instep.sync.detection.table_renames import TableRenames
from instep.sync.loading.table_load import cursor_went_back
from sync_world import MakeWorld, World, preset


def table(name: str, *columns: str, id: str | None = None, key: int = 1) -> Table:
    made = (Column(c, parse("int32"), id=f"{i}", key=i if i <= key else 0) for i, c in enumerate(columns, 1))
    return Table("s", name, tuple(made), id=id or f"oid-{name}")


T, U = table("t", "a", "b", "c"), table("u", "a")
GONE = Catalog.of([T])
ALL = Selection()
OFF = Selection(exclude_columns=patterns(["s.t.b"]))
ACCESS = [
    ("nothing is denied", [T, U], [T], {}, ALL, {"t": "abc", "u": "a"}, {}, {}),
    ("a table", [T, U], [T, U], {("s", "t"): "why"}, ALL, {"u": "a"}, {"t": (None, "why")}, {}),
    ("a table that is not listed", [U], [T, U], {("s", "t"): "why"}, ALL, {"u": "a"}, {"t": (None, "why")}, {}),
    ("a new table", [T, U], [U], {("s", "t"): "why"}, ALL, {"u": "a"}, {}, {("s", "t"): "why"}),
    ("a retained table", [T], [replace(T, retained=True)], {("s", "t"): "w"}, ALL, {}, {}, {("s", "t"): "w"}),
    ("a renamed table", [replace(T, name="x")], [T], {("s", "x"): "why"}, ALL, {}, {"t": (None, "why")}, {}),
    ("an accepted column", [T], [T], {("s", "t", "b"): "why"}, ALL, {}, {"t": ("b", "why")}, {}),
    ("one that is off", [T], [T], {("s", "t", "b"): "why"}, OFF, {"t": "abc"}, {}, {}),
    ("a new column", [T], [table("t", "a", "b")], {("s", "t", "c"): "w"}, ALL, {"t": "ab"}, {}, {("s", "t", "c"): "w"}),
    ("a column of a new table", [T], [], {("s", "t", "b"): "w"}, ALL, {"t": "ac"}, {}, {("s", "t", "b"): "w"}),
    ("its key column", [T], [], {("s", "t", "a"): "w"}, ALL, {"t": "bc"}, {}, {("s", "t", "a"): "w"}),
]


@pytest.mark.parametrize(("name", "source", "accepted", "denied", "selection", "left", "lost", "hidden"), ACCESS)
def test_what_may_be_read(name, source, accepted, denied, selection, left, lost, hidden) -> None:  # type: ignore[no-untyped-def]
    found = restrict(Catalog.of(source), Catalog.of(accepted), denied, selection)
    assert {t.name: "".join(c.name for c in t.columns) for t in found.source.tables} == left
    assert {ref[1]: why for ref, why in found.lost.items()} == lost
    assert found.hidden == hidden


def test_a_key_without_one_of_its_columns_is_no_key() -> None:
    both = table("t", "a", "b", "c", key=2)
    found = restrict(Catalog.of([both]), Catalog(), {("s", "t", "a"): "why"}, ALL)
    assert found.source.tables[0].key == ()


def test_ids_of_another_server_are_taken_by_name() -> None:
    old = Catalog.of([table("t", "a", "b", id="1"), table("u", "a", id="2"), table("gone", "a", id="3")])
    new = Catalog.of([table("t", "b", "a", id="2"), table("u", "a", id="1")])
    found = rebind(old, new)
    assert {t.name: (t.id, [c.id for c in t.columns]) for t in found.tables} == {
        "t": ("2", ["2", "1"]), "u": ("1", ["1"]), "gone": (None, [None]),
    }  # fmt: skip
    assert all(t.id is None and all(c.id is None for c in t.columns) for t in by_names(old).tables)


def rename(old: str, new: str, action: str) -> Decision:
    return Decision(TableRenamed(table(old), table(new)), action, "", "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("decisions", "before", "after"),
    [
        ([], "t", "t"),
        ([rename("o", "t", "apply")], "o", "t"),
        ([rename("o", "t", "review")], "o", "o"),
        ([rename("t", "o", "apply"), rename("o", "t", "apply")], "o", "t"),
    ],
)
def test_which_table_a_change_is_about(decisions: list[Decision], before: str, after: str) -> None:
    places, change = TableRenames.of(decisions), ColumnAdded(("s", "t"), Column("x", parse("int32")), 0)
    assert (places.before(change)[1], places.after(change)[1]) == (before, after)
    gone = TableRemoved(table("t"))
    assert places.before(gone) == places.after(gone) == ("s", "t")


@pytest.mark.parametrize(
    ("now", "before", "back"),
    [
        ("9", "10", True), ("10", "9", False), ("10", "10", False), ("9007199254740992", "9007199254740993", True),
        ("1.10", "1.1", False), ("2024-01-01", "2023-12-31", False),
        ("2024-01-01 00:00:00", "2024-01-01 00:00:00.5", True),
    ],
)  # fmt: skip
def test_a_cursor_went_back(now: str, before: str, back: bool) -> None:
    assert cursor_went_back(now, before) is back


def test_what_was_hashed_or_excluded_is_asked_about_under_a_new_name(world: World) -> None:
    world.selection = Selection(
        hashed=patterns(["public.t.mail", "public.h.mail"]),
        exclude_columns=patterns(["public.t.pin"]),
        exclude_tables=patterns(["public.secret"]),
    )
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, mail text, pin text)", "CREATE TABLE h (id int PRIMARY KEY, mail text)"
    )
    world.run("CREATE TABLE secret (id int PRIMARY KEY)")
    world.evolve()
    world.run(
        "ALTER TABLE t RENAME mail TO post", "ALTER TABLE t RENAME pin TO code", "ALTER TABLE h RENAME TO people",
        "ALTER TABLE secret RENAME TO plain", "ALTER TABLE t ADD free int",
    )  # fmt: skip
    for _ in range(2):
        world.evolve()
        assert world.reviews() == {
            "column t.mail renamed to post": "review",
            "column t.code added (string)": "review",
            "table h renamed to people": "review",
            "table plain added (1 column)": "review",
        }
    assert world.schema("t") == "id int32!, mail string, free int32"
    world.selection = replace(
        world.selection,
        hashed=patterns(["public.t.post", "public.people.mail"]),
        exclude_columns=patterns(["public.t.code"]),
    )
    world.evolve()
    assert world.schema("t") == "id int32!, post string, free int32"
    world.answer("approved")
    world.evolve()
    assert set(world.tables()) == {"t", "people", "plain"}


@pytest.mark.parametrize("kind", ["mysql", "sqlite"])
def test_a_removal_is_believed_at_the_second_detection(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.policy = preset("propagate_all")
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "CREATE TABLE u (id int PRIMARY KEY)")
    world.evolve()
    world.run("ALTER TABLE t DROP COLUMN a")
    for _ in range(3):
        assert world.preview().plan.steps == ()
    found = world.detect()
    assert len(found.plan.steps) == 1
    world.evolve(found)
    assert [c.name for c in world.accepted("t").columns] == ["id", "b"]


def test_planning_takes_what_its_tables_take_and_starts_no_jvm(make_world: MakeWorld) -> None:
    """Calls grow with the tables, questions to the store do not."""
    world = make_world("sqlite")
    columns = ", ".join(f"c{i} text" for i in range(18))
    loaded, found = "pyspark" in sys.modules, []
    for first, last in ((0, 10), (10, 80)):
        for number in range(first, last):
            world.run(f"CREATE TABLE t{number} (id int PRIMARY KEY, v int, {columns})")
        world.evolve()
        world.preview()
        found.append(effort(world))
    (few, asked), (many, asked_of_many) = found
    assert many < 9 * few
    assert many < 80 * 6_000, "a table of twenty columns"
    assert asked_of_many == asked
    assert ("pyspark" in sys.modules) == loaded


def effort(world: World) -> tuple[int, int]:
    """How many calls of Python functions and statements of the store it takes to find that nothing is to be done."""
    seen: Counter[str] = Counter()

    def called(frame: object, event: str, argument: object) -> None:
        seen[event] += 1

    def asked(*arguments: object) -> None:
        seen["statement"] += 1

    listen(Engine, "before_cursor_execute", asked)
    sys.setprofile(called)
    try:
        assert world.preview().plan.steps == ()
    finally:
        sys.setprofile(None)
        remove(Engine, "before_cursor_execute", asked)
    return seen["call"], seen["statement"]


def test_settings_that_do_not_fit_do_not_keep_the_others_from_being_planned(world: World) -> None:
    world.run("CREATE TABLE t (a int)", "CREATE TABLE u (a int)")
    world.settings["t"] = TableSettings(mode="upsert")
    found = world.preview()
    assert [ref[1] for ref in found.choices] == ["u"]
    assert len(found.plan.steps) == 2


WIDE = replace(T.columns[1], type=parse("int64"))
SEEN = [
    ("nothing", T, T, ""),
    ("the source gained a column", table("t", "a", "b", "c", "d", id="oid-t"), T, "source"),
    ("another column was let in", T, table("t", "a", "b", "c", "d"), ""),
    ("another column took a new type", T, replace(T, columns=(*T.columns[:2], replace(WIDE, name="c"))), ""),
    ("the column took a new type", T, replace(T, columns=(T.columns[0], WIDE, T.columns[2])), "accepted schema"),
    ("the table has another name", T, replace(T, name="x"), "accepted schema"),
    ("both", replace(T, id="oid-x"), replace(T, id="oid-x"), "source and accepted schema"),
]


@pytest.mark.parametrize(("source", "accepted", "sides"), [s[1:] for s in SEEN], ids=[s[0] for s in SEEN])
def test_what_an_approval_has_seen(source: Table, accepted: Table, sides: str) -> None:
    change = ColumnRetyped(T.ref, T.columns[1], WIDE)
    places = TableRenames({T.ref: (accepted.ref, False)})
    then = ApprovalFingerprint(Catalog.of([T]), Catalog.of([T]), TableRenames({})).fingerprint(change)
    now = ApprovalFingerprint(Catalog.of([source]), Catalog.of([accepted]), places).fingerprint(change)
    assert [name for name, a, b in zip(SIDES, then.split(":"), now.split(":"), strict=True) if a != b] == (
        sides.split(" and ") if sides else []
    )


SIDES = ("source", "accepted schema")
