"""Sample changes: every kind can be asked about, and what cannot be is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.control.policy.sample_changes import NOTHING, OF_COLUMN, PolicyQuestion, question, retyped, sample
from instep.errors import InstepError, SchemaError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import (
    Change,
    ColumnRemoved,
    change_from_dict,
    change_to_dict,
    column_of,
    describe,
    table_of,
)
from instep.schema.changes.diff import diff
from instep.schema.policy.policy import Policy, decide
from instep.schema.policy.presets import KINDS

ORDER = Table(
    "public",
    "order",
    (
        Column("id", parse("int32"), nullable=False, id="1", key=1),
        Column("note", parse("string"), id="2", comment="free"),
        Column("at", parse("timestamp"), id="3"),
    ),
    id="77",
    cursor="at",
)
ACCEPTED = Catalog.of([ORDER, Table("", "flat", (Column("a.b", parse("date")),))])


@pytest.mark.parametrize("accepted", [NOTHING, ACCEPTED], ids=["unknown", "accepted"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_sample(kind: str, accepted: Catalog) -> None:
    made = sample(PolicyQuestion(kind, "public.order", "id" if kind in OF_COLUMN else ""), accepted)
    assert made.kind == kind
    assert change_from_dict(change_to_dict(made)) == made
    assert describe(made)
    assert decide(made, Policy(preset="stop")).change is made
    if not kind.startswith("schema"):
        assert table_of(made) in (("public", "order"), ("public", "order_new"))


# name | table or column | kind | the table and column that are meant
MEANT = [
    ("an accepted table's column", "public.order.note", "column.removed", ("public.order", "note")),
    ("a column with a dot", "flat.a.b", "column.removed", ("flat", "a.b")),
    ("a table without a schema", "flat.x", "column.added", ("flat", "x")),
    ("an unknown table's column", "public.item.x", "column.added", ("public.item", "x")),
    ("a table", "public.order", "key.changed", ("public.order", "")),
    ("a schema", "billing", "schema.added", ("billing", "")),
    ("access to a table", "public.order", "access.lost", ("public.order", "")),
    ("access to a column", "public.order.note", "access.lost", ("public.order", "note")),
    ("access to an unknown table", "public.item", "access.lost", ("public.item", "")),
]


@pytest.mark.parametrize(("path", "kind", "meant"), [m[1:] for m in MEANT], ids=[m[0] for m in MEANT])
def test_what_a_path_means(path: str, kind: str, meant: tuple[str, str]) -> None:
    found = question(path, kind, ACCEPTED)
    assert (found.table, found.column) == meant
    made = sample(found, ACCEPTED)
    assert kind == "schema.added" or column_of(made) == meant[1]


# name | what is asked | the sentence about it
DESCRIBED = [
    ("types that are made up", PolicyQuestion("column.retyped", "public.item", "x"), "x retyped from int64 to date"),
    ("an unknown table", PolicyQuestion("column.widened", "t.t", "a"), "a widened from int64 to string"),
    ("the accepted type", PolicyQuestion("column.widened", "public.order", "id"), "id widened from int32 to int64"),
    (
        "the type that is given",
        PolicyQuestion("column.retyped", "public.order", "id", after="uuid"),
        "from int32 to uuid",
    ),
    ("both types", PolicyQuestion("column.narrowed", "public.order", "id", "int64", "int16"), "from int64 to int16"),
    ("a new column's type", PolicyQuestion("column.added", "public.order", "x", after="date"), "order.x added (date)"),
    ("the accepted column", PolicyQuestion("column.removed", "public.order", "at"), "order.at removed (timestamp)"),
    (
        "a column's new name",
        PolicyQuestion("column.renamed", "public.order", "note", after="memo"),
        "note renamed to memo",
    ),
    ("a table's new name", PolicyQuestion("table.renamed", "public.order", after="orders"), "renamed to public.orders"),
    ("a table's new schema", PolicyQuestion("table.renamed", "public.order", after="b.order"), "renamed to b.order"),
    ("nullability", PolicyQuestion("column.nullability", "public.order", "id"), "order.id may now be NULL"),
    ("the accepted key", PolicyQuestion("key.removed", "public.order"), "(was (id))"),
    ("the accepted cursor", PolicyQuestion("cursor.removed", "public.order"), "(was at)"),
]


@pytest.mark.parametrize(("wanted", "said"), [d[1:] for d in DESCRIBED], ids=[d[0] for d in DESCRIBED])
def test_what_is_asked_about(wanted: PolicyQuestion, said: str) -> None:
    assert said in describe(sample(wanted, ACCEPTED))


WRONG = [
    ("no such kind", PolicyQuestion("column.remove", "public.order", "note"), "did you mean 'column.removed'"),
    ("a column is missing", PolicyQuestion("column.added", "public.order"), "column.added needs a column"),
    ("a column too many", PolicyQuestion("key.changed", "public.order", "id"), "key.changed is not about a column"),
    ("no such type", PolicyQuestion("column.added", "public.order", "x", after="integer"), "unknown type 'integer'"),
    (
        "another kind",
        PolicyQuestion("column.widened", "t.t", "x", "int64", "int32"),
        "int64 to int32 is column.narrowed",
    ),
    ("no change", PolicyQuestion("column.retyped", "t.t", "x", "date", "date"), "date to date is no change"),
    (
        "text holds everything",
        PolicyQuestion("column.retyped", "public.order", "note"),
        "makes a column.retyped from string",
    ),
    (
        "nothing is wider",
        PolicyQuestion("column.widened", "t.t", "x", "string"),
        "no usual type makes a column.widened from string",
    ),
    ("types of a comment", PolicyQuestion("column.comment", "t.t", "x", after="date"), "column.comment has no types"),
    ("types of a key", PolicyQuestion("key.removed", "t.t", before="date"), "key.removed has no types"),
    ("a type to start from", PolicyQuestion("column.added", "t.t", "x", "date"), "no type to start from"),
    ("no table", PolicyQuestion("table.added", ""), "not the name of a table"),
]


@pytest.mark.parametrize(("wanted", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_cannot_be_asked(wanted: PolicyQuestion, said: str) -> None:
    with pytest.raises(SchemaError) as error:
        sample(wanted, ACCEPTED)
    assert said in str(error.value)
    assert error.value.hint


UNCLEAR = [
    ("a table for a column", "public.order", "column.added", "write public.order.COLUMN"),
    ("too short", "order.note", "column.added", "names none"),
    ("an unknown kind", "public.order", "key.chnged", "did you mean 'key.changed'"),
]


@pytest.mark.parametrize(("path", "kind", "said"), [u[1:] for u in UNCLEAR], ids=[u[0] for u in UNCLEAR])
def test_a_path_that_is_not_clear(path: str, kind: str, said: str) -> None:
    with pytest.raises(InstepError) as error:
        question(path, kind, ACCEPTED)
    assert said in str(error.value)


types = st.sampled_from(["int16", "int64", "decimal(10,2)", "string", "string(5)", "date", "timestamp", "json", "uuid"])


@given(types, types)
def test_given_types_make_what_the_diff_reports(before: str, after: str) -> None:
    if before == after:
        return
    kind = retyped(parse(before), parse(after))
    old = Table("s", "t", (Column("a", parse(before), id="1"),), id="9")
    new = Table("s", "t", (Column("a", parse(after), id="1"),), id="9")
    reported = [c for c in diff(Catalog.of([old]), Catalog.of([new])) if c.kind.startswith("column")]
    assert reported == [sample(PolicyQuestion(kind, "s.t", "a", before, after), Catalog.of([old]))]


def test_a_removal_is_the_diff_s() -> None:
    left = Table("public", "order", ORDER.columns[:1] + ORDER.columns[2:], id="77", cursor="at")
    reported: tuple[Change, ...] = diff(Catalog.of([ORDER]), Catalog.of([left]))
    made = sample(PolicyQuestion("column.removed", "public.order", "note"), ACCEPTED)
    assert isinstance(made, ColumnRemoved)
    assert made in reported
