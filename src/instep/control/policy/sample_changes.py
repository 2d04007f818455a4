"""Changes that have not happened: what a person asks a policy about, as the records that a policy decides on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from instep.errors import InstepError, SchemaError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import DataType, Float, Int, String, parse
from instep.schema.changes import kinds as k
from instep.schema.changes.diff import type_change
from instep.schema.policy.presets import KINDS, unknown
from instep.suggest import closest

OF_COLUMN = frozenset(
    {
        "column.added",
        "column.removed",
        "column.renamed",
        "column.widened",
        "column.narrowed",
        "column.retyped",
        "column.nullability",
        "column.default",
        "column.comment",
    }
)
RETYPES: dict[str, type[k.ColumnWidened | k.ColumnNarrowed | k.ColumnRetyped]] = {
    c.kind: c for c in (k.ColumnWidened, k.ColumnNarrowed, k.ColumnRetyped)
}
RENAMES = ("column.renamed", "table.renamed")
_LIKELY: tuple[DataType, ...] = (Int(64), Int(32), Int(16), parse("date"), String(), String(20), Float(64))
"""Types that a column may get where nobody says which, the likeliest first."""


@dataclass(frozen=True)
class PolicyQuestion:
    """A change to be asked about. `before` and `after` are types; for a rename `after` is the new name, a table's
    with its schema if that changes too. Empty ones are made up: no policy looks at types."""

    kind: str
    table: str
    column: str = ""
    before: str = ""
    after: str = ""


def question(path: str, kind: str, accepted: Catalog, before: str = "", after: str = "") -> PolicyQuestion:
    """Return the change that `TABLE[.COLUMN] KIND` means. Tables of `accepted` are known by their paths; of others the
    last part of three is the column. InstepError if it is not clear."""
    _check_kind(kind)
    paths = {t.path for t in accepted.tables}
    may_have_column = kind in OF_COLUMN or kind == "access.lost"
    if not may_have_column or (kind == "access.lost" and path in paths):
        return PolicyQuestion(kind, path, "", before, after)
    known = [p for p in paths if path.startswith(f"{p}.")]
    if known:
        table = max(known, key=len)
        return PolicyQuestion(kind, table, path[len(table) + 1 :], before, after)
    if path in paths or path.count(".") < 2:
        if kind == "access.lost":
            return PolicyQuestion(kind, path, "", before, after)
        raise InstepError(
            f"{kind} is about a column, and {path} names none", hint=f"write {path}.COLUMN{_suggestion(path, paths)}"
        )
    table, _, column = path.rpartition(".")
    return PolicyQuestion(kind, table, column, before, after)


def _suggestion(path: str, known: set[str]) -> str:
    table, _, column = path.rpartition(".")
    near = closest(table, known) if table else []
    return f", or did you mean {near[0]}.{column}?" if near else ""


NOTHING = Catalog()


def sample(question: PolicyQuestion, accepted: Catalog = NOTHING) -> k.Change:
    """Return the change as the diff would report it, about the accepted table and column where they are known.

    SchemaError if the kind does not exist, needs a column or has none, or if the types are of another kind.
    """
    _check_kind(question.kind)
    if question.kind in OF_COLUMN:
        if not question.column:
            raise SchemaError(f"{question.kind} needs a column", hint="name the column that changes")
        table = _table(question.table, accepted)
        known = table.by_name.get(question.column) if table in accepted.tables else None
        return _of_column(question, table, known)
    if question.column and question.kind != "access.lost":
        raise SchemaError(f"{question.kind} is not about a column", hint="leave the column out")
    _no_types(question)
    if question.kind.startswith("schema."):
        return {c.kind: c for c in (k.SchemaAdded, k.SchemaRemoved)}[question.kind](question.table)
    return _of_table(question, _table(question.table, accepted))


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise unknown("kind of change", kind, KINDS)


def _no_types(question: PolicyQuestion) -> None:
    if question.before or (question.after and question.kind not in RENAMES):
        raise SchemaError(f"{question.kind} has no types", hint="leave `from` and `to` out")


def _table(path: str, accepted: Catalog) -> Table:
    table = next((t for t in accepted.tables if t.path == path), None)
    if table:
        return table
    schema, _, name = path.rpartition(".")
    if not name:
        raise SchemaError(f"{path!r} is not the name of a table", hint="write schema.table")
    return Table(schema, name, (Column("id", Int(64), nullable=False, key=1), Column("a", String())))


def _of_column(question: PolicyQuestion, table: Table, known: Column | None) -> k.Change:
    if question.kind in RETYPES:
        return _retype(question, table.ref, known)
    if question.before and question.kind != "column.removed":
        raise SchemaError(f"{question.kind} has no type to start from", hint="leave `from` out")
    column = known or Column(question.column, String())
    at = table.columns.index(known) if known else len(table.columns)
    match question.kind:
        case "column.added":
            kind = parse(question.after) if question.after else String()
            return k.ColumnAdded(table.ref, Column(question.column, kind), len(table.columns))
        case "column.removed":
            gone = replace(column, key=0, type=parse(question.before) if question.before else column.type)
            return k.ColumnRemoved(table.ref, gone, at)
        case "column.renamed":
            return k.ColumnRenamed(table.ref, column, replace(column, name=question.after or f"{question.column}_new"))
    _no_types(question)
    if question.kind == "column.nullability":
        return k.ColumnNullability(table.ref, column, replace(column, nullable=not column.nullable))
    if question.kind == "column.default":
        return k.ColumnDefault(table.ref, column, replace(column, default="0" if column.default != "0" else "1"))
    return k.ColumnComment(table.ref, column, replace(column, comment=f"{column.comment or ''} (new)".strip()))


def _retype(question: PolicyQuestion, ref: k.Ref, known: Column | None) -> k.Change:
    """Return a type change with the types that the question names; types that it leaves open are chosen to fit."""
    before = parse(question.before) if question.before else known.type if known else None
    after = parse(question.after) if question.after else None
    befores = (before,) if before else _LIKELY
    pairs = [(a, b) for a in befores for b in ((after,) if after else _LIKELY) if a != b]
    fitting = next(((a, b) for a, b in pairs if retyped(a, b) == question.kind), None)
    if fitting is None:
        raise SchemaError(_mismatch(question.kind, before, after), hint="name both types, or another kind of change")
    column = replace(known or Column(question.column, fitting[0]), type=fitting[0])
    return RETYPES[question.kind](ref, column, replace(column, type=fitting[1]))


def _mismatch(kind: str, before: DataType | None, after: DataType | None) -> str:
    if before is None or after is None:
        return f"no usual type makes a {kind} {f'from {before}' if before else f'to {after}'}"
    return f"{before} to {after} is {retyped(before, after) if before != after else 'no change'}, not {kind}"


def retyped(before: DataType, after: DataType) -> str:
    """Return `column.widened`, `column.narrowed` or `column.retyped`."""
    return type_change(before, after).kind


def _of_table(question: PolicyQuestion, table: Table) -> k.Change:
    names = tuple(c.name for c in table.live)
    match question.kind:
        case "table.added":
            return k.TableAdded(table)
        case "table.removed":
            return k.TableRemoved(table)
        case "table.renamed":
            schema, dot, name = (question.after or f"{table.name}_new").rpartition(".")
            return k.TableRenamed(table, replace(table, schema=schema if dot else table.schema, name=name))
        case "table.replaced":
            return k.TableReplaced(table, replace(table, id=f"{table.id or ''}+"))
        case "table.comment":
            return k.TableComment(table.ref, table.comment, f"{table.comment or ''} (new)".strip())
        case "column.reordered":
            return k.ColumnReordered(table.ref, names, names[::-1])
        case "key.changed":
            return k.KeyChanged(table.ref, table.key, (*table.key, "another"))
        case "key.removed":
            return k.KeyRemoved(table.ref, table.key or names[:1])
        case "cursor.changed":
            return k.CursorChanged(table.ref, table.cursor, "another")
        case "cursor.removed":
            return k.CursorRemoved(table.ref, table.cursor or names[0])
        case "destination.drifted":
            return k.DestinationDrifted(table.ref, "it was edited manually")
        case "name.collided":
            return k.NameCollided(table.ref, names[:1], "they would be one name")
        case "access.lost":
            return k.AccessLost(table.ref, question.column or None, "the grant is gone")
    raise SchemaError(f"no sample of {question.kind} can be made", hint="ask about a change that is recorded")
