"""The history of one table or column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from instep.control.object_history import HistoryEntry, ObjectHistory, object_history
from instep.errors import InstepError
from instep.events import ChangeApplied, ChangeMapped, ChangeUndone
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import Change, ColumnRenamed, change_to_dict, column_of, describe, key, table_of
from instep.schema.changes.diff import diff
from instep.store.catalogs.reviews import DetectedChange
from instep.store.store import Store


def table(name: str, *columns: str, oid: str | None = None, schema: str = "s") -> Table:
    """`a`, `a:date`, `a#1` with an id, `a~` retained; aliases are the names."""

    def column(text: str) -> Column:
        text, kept = text.removesuffix("~"), text.endswith("~")
        text, _, number = text.partition("#")
        name, _, kind = text.partition(":")
        return Column(name, parse(kind or "int32"), id=number or None, retained=kept, alias=name)

    return Table(schema, name, tuple(map(column, columns)), id=oid, alias=name)


@dataclass
class Past:
    """Accepted versions, an hour apart; `told` ones have their changes on record, as a sync leaves them."""

    store: Store
    now: list[datetime]

    def version(self, *tables: Table, told: bool = True, changes: tuple[Change, ...] | None = None) -> None:
        self.now[0] += timedelta(hours=1)
        before, after = self.store.accepted.catalog("c"), Catalog.of(tables)
        found = diff(before, after) if changes is None else changes
        reviews = self.store.reviews.record("c", [_finding(c) for c in found], "f") if told else []
        number = self.store.accepted.add("c", after, who="ana", why="policy", run="r-1").version
        self.store.reviews.applied(r.id for r in reviews)
        self.store.events.add(*(ChangeApplied("c", r.id, r.summary, number) for r in reviews))

    def held(self, change: Change, *, reject: bool = False) -> None:
        [review] = self.store.reviews.record("c", [_finding(change)], "f")
        if reject:
            self.store.reviews.decide(review.id, "rejected", "bob")

    def of(self, text: str) -> ObjectHistory:
        return object_history(self.store, "c", text)


def _finding(change: Change) -> DetectedChange:
    ref = table_of(change) or ("", "")
    data = change_to_dict(change)
    return DetectedChange(
        key(change), change.kind, ref, column_of(change), describe(change), data, "apply", "rule 1", "as told"
    )


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    now = [datetime(2026, 3, 1, 12, tzinfo=UTC)]
    with Store(f"sqlite:///{tmp_path / 'state.db'}", now=lambda: now[0]) as store:
        yield Past(store, now)


def told(found: ObjectHistory) -> list[str]:
    return [f"{e.label or e.status}: {e.summary.replace('s.t', 't')}" for e in found.entries]


def since(found: ObjectHistory) -> dict[str, int]:
    return {c.column: c.version for c in found.columns}


STORY = (
    (table("t", "a#1", "b#2", oid="7"),),
    (table("t", "a:int64#1", "b#2", "c#3", oid="7"), table("u", "z")),
    (table("t", "a:int64#1", "bb#2", "c#3~", oid="7"), table("u", "z", "zz")),
)


@pytest.fixture(params=[True, False], ids=["on record", "from the catalogs"])
def story(past: Past, request: pytest.FixtureRequest) -> Past:
    for tables in STORY:
        past.version(*tables, told=request.param)
    return past


OF: list[tuple[str, list[str]]] = [
    ("s.t.a", ["1.0: table t added (2 columns)", "1.1: column t.a widened from int32 to int64"]),
    ("s.t.bb", ["1.0: table t added (2 columns)", "2.0: column t.b renamed to bb"]),
    ("s.t.b", ["1.0: table t added (2 columns)", "2.0: column t.b renamed to bb"]),
    ("s.t.c", ["1.1: column t.c added (int32)", "2.0: column t.c removed (int32)"]),
    ("t.c", ["1.1: column t.c added (int32)", "2.0: column t.c removed (int32)"]),
    ("u", ["1.1: table s.u added (1 column)", "2.0: column s.u.zz added (int32)"]),
]


@pytest.mark.parametrize(("text", "entries"), OF, ids=[o[0] for o in OF])
def test_what_happened(story: Past, text: str, entries: list[str]) -> None:
    assert told(story.of(text)) == entries


def test_since_when(story: Past) -> None:
    found = story.of("t")
    assert since(found) == {"a": 1, "bb": 1, "c": 2}
    assert [c.column for c in found.columns if c.retained] == ["c"]
    assert (found.table, found.column, found.names, found.gone) == ("s.t", "", ("s.t",), False)
    assert (story.of("t.b").column, story.of("t.b").names) == ("bb", ("s.t.b", "s.t.bb"))
    assert since(story.of("u.zz")) == {"zz": 3}


def test_by_whom_and_why(past: Past) -> None:
    past.version(*STORY[0])
    past.version(*STORY[1])
    *_, last = past.of("t.a").entries
    [review] = [r for r in past.store.reviews.find("c") if r.id == last.change]
    expected = HistoryEntry(past.now[0], 2, "1.1", "column.widened",
        "column s.t.a widened from int32 to int64", "applied",
                     "ana", "rule 1", "as told", "", review.id, "r-1")  # fmt: skip
    assert last == expected
    past.version(*STORY[2], told=False)
    *_, last = past.of("t.c").entries
    assert (last.who, last.rule, last.why, last.change, last.run) == ("ana", "", "policy", "", "r-1")


def test_what_was_not_let_in(past: Past) -> None:
    past.version(table("t", "a", "b"))
    [change] = diff(Catalog.of([table("t", "a", "b")]), Catalog.of([table("t", "a")]))
    past.held(change, reject=True)
    *_, last = past.of("t.b").entries
    assert (last.version, last.status, last.decided_by, last.summary) == (
        0, "rejected", "bob", "column s.t.b removed (int32)",
    )  # fmt: skip
    assert len(past.of("t.a").entries) == 1
    assert len(past.of("t").entries) == 2


def test_a_renamed_table_is_followed(past: Past) -> None:
    past.version(table("old", "a#1", oid="7"))
    past.version(table("new", "a#1", oid="7"))
    past.version(table("new", "a#1", "b#2", oid="7"))
    for name in ("old", "s.new", "new"):
        assert told(past.of(name)) == [
            "1.0: table s.old added (1 column)", "2.0: table s.old renamed to s.new",
            "2.1: column s.new.b added (int32)",
        ]  # fmt: skip
    assert past.of("old.a").names == ("s.old.a", "s.new.a")
    assert since(past.of("new")) == {"a": 1, "b": 3}


def test_a_rename_that_a_person_mapped_is_followed(past: Past) -> None:
    """Without ids the two catalogs alone say removed and added."""
    before, after = table("t", "a", "b"), table("t", "a", "c")
    past.version(before)
    past.version(after, changes=(ColumnRenamed(("s", "t"), before.columns[1], replace(after.columns[1])),))
    assert told(past.of("t.c")) == ["1.0: table t added (2 columns)", "2.0: column t.b renamed to c"]
    assert since(past.of("t.c")) == {"c": 1}


MAPPED = [
    ("nothing was let in between", (("a", "b"), ("a", "c"))),
    ("both were let in", (("a", "b"), ("a", "b~", "c"), ("a", "c", "c__v1~"))),
]


@pytest.mark.parametrize("shapes", [m[1] for m in MAPPED], ids=[m[0] for m in MAPPED])
def test_a_mapping_is_one_rename(past: Past, shapes: tuple[tuple[str, ...], ...]) -> None:
    for shape in shapes[:-1]:
        past.version(table("t", *shape))
    past.version(table("t", *shapes[-1]), told=False)
    past.store.events.add(ChangeMapped("c", "s.t", "b", "c", "eve", len(shapes)))
    found = past.of("t.c")
    assert [e.summary for e in found.entries if e.version == len(shapes)] == ["column s.t.b renamed to c"]
    assert (found.entries[-1].who, found.entries[-1].rule) == ("eve", "mapped")
    assert since(found) == {"c": 1}
    assert found.names == ("s.t.b", "s.t.c")


def test_a_column_that_left_for_good_and_came_again(past: Past) -> None:
    for columns in (("a", "b"), ("a",), ("a", "b:date")):
        past.version(table("t", *columns))
    found = past.of("t.b")
    assert since(found) == {"b": 3}
    assert told(found)[1:] == ["2.0: column t.b removed (int32)", "2.1: column t.b added (date)"]


def test_what_was_undone(past: Past) -> None:
    """The undo is an entry of its own, and its review, which is rejected then, is not told twice."""
    before, after = table("t", "a", "b"), table("t", "a", "c")
    past.version(before)
    past.version(after, changes=(ColumnRenamed(("s", "t"), before.columns[1], after.columns[1]),))
    [review] = [r for r in past.store.reviews.find("c") if r.kind == "column.renamed"]
    past.store.reviews.record("c", [_finding(ColumnRenamed(("s", "t"), before.columns[1], after.columns[1]))], "f")
    past.now[0] += timedelta(hours=1)
    number = past.store.accepted.add("c", Catalog.of([before]), who="bob", why="undo").version
    past.store.events.add(ChangeUndone("c", review.id, review.summary, number, "bob"))
    found = past.of("t.c")
    assert (found.column, since(found)) == ("b", {"b": 1})
    assert [(e.status, e.label, e.who) for e in found.entries if e.change == review.id] == [
        ("applied", "2.0", "ana"), ("undone", "3.0", "bob"),
    ]  # fmt: skip


def test_what_is_gone(past: Past) -> None:
    past.version(table("t", "a"), table("u", "z"))
    past.version(table("t", "a"))
    found = past.of("u")
    assert found.gone
    assert [e.kind for e in found.entries] == ["table.added", "table.removed"]
    assert since(found) == {"z": 1}


def test_another_server_is_no_change(past: Past) -> None:
    past.version(table("t", "a#1", "b#2", oid="7"), told=False)
    past.version(table("t", "a#2", "b#1", oid="9"), told=False)
    assert since(past.of("t")) == {"a": 1, "b": 1}
    assert len(past.of("t.a").entries) == 1


def test_names_that_are_not_clear(past: Past) -> None:
    past.version(table("t", "a"), table("t", "a", schema="r"), table("t.a", "b"))
    with pytest.raises(InstepError, match=r"t may be r.t, s.t") as error:
        past.of("t")
    assert error.value.hint == "name the schema, too"
    assert past.of("r.t").table == "r.t"
    assert (past.of("s.t.a").table, past.of("s.t.a").column) == ("s.t.a", "")
    with pytest.raises(InstepError, match=r"never had a table or column s\.tt") as error:
        past.of("s.tt")
    assert error.value.hint == "did you mean s.t?"
    with pytest.raises(InstepError, match="never had"):
        object_history(past.store, "other", "t")


def test_a_change_of_a_newer_version_is_told_by_its_table_and_column(past: Past) -> None:
    past.version(table("t", "a", "b"))
    unknown = DetectedChange(
        "k", "column.sharded", ("s", "t"), "a", "a sharded", {"kind": "column.sharded"}, "review", "r", "w"
    )
    past.store.reviews.record("c", [unknown], "f")
    assert told(past.of("t.a"))[-1] == "open: a sharded"
    assert len(past.of("t.b").entries) == 1
