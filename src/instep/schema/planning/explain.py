"""A plan in words: what is done and why, its hazards and costs, and what happens meanwhile to changes that wait.

A catalog as SQL (the dialect of DuckDB) and as Markdown: for people, reviews and scratch databases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Array, Binary, DataType, Decimal, Float, Int, String, Struct
from instep.schema.changes.describe import Change, NameCollided, describe, symbol, table_of
from instep.schema.planning.collisions import SYSTEM
from instep.schema.planning.naming import quote
from instep.schema.planning.plan import Plan
from instep.schema.planning.step import RecordIdentity, Ref, RewriteColumn, SetLayout, Step, UndropColumn
from instep.schema.policy.policy import Decision, Modifiers

NOTHING = "nothing to do: the destination is up to date"


@dataclass(frozen=True)
class Impact:
    """The size of a destination table: rows, bytes and data files."""

    rows: int = 0
    bytes: int = 0
    files: int = 0

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {size(self.bytes)}, {self.files:,} file{'s' * (self.files != 1)}"


def explain(plan: Plan, impact: Mapping[Ref, Impact] | None = None) -> list[str]:
    """Return lines for people: applied changes, changes that wait, steps by destination table, findings.

    What a first selection adds is not listed beside its steps.

    `impact` gives the size of destination tables by their name today; it is shown where a step rewrites, drops or
    reloads rows.
    """
    lines = [*_decided(plan), *_not_applied(plan), *_steps(plan, impact or {}), *_facts(plan)]
    return lines or [NOTHING]


def _steps(plan: Plan, impact: Mapping[Ref, Impact]) -> Iterator[str]:
    if plan.steps:
        yield f"{len(plan.steps)} step{'s' * (len(plan.steps) != 1)} at the destination"
    for ref, steps in groupby(plan.steps, key=lambda s: s.table):
        yield f"  {'.'.join(ref)}"
        for step in steps:
            yield f"    {sign(step)} {step.text}"
            yield from (f"        {h.level}: {h.text}" for h in step.hazards)
            if step.destructive:
                yield f"        drops {step.object}" + (
                    f" (allowed by {step.consent})" if step.consent else ": name it with --allow-destructive"
                )
            if (cost := impact.get(ref)) is not None and _touches(step):
                yield f"        touches {cost}"


def sign(step: Step) -> str:
    """Return `+`, `-` or `~`."""
    change = step.change
    if isinstance(change, UndropColumn):
        return "+"
    return "~" if isinstance(change, RewriteColumn | RecordIdentity | SetLayout) else symbol(change)


def _touches(step: Step) -> bool:
    backfills = any(h.level == "needs backfill" for h in step.hazards)
    return (
        step.destructive or backfills or isinstance(step.change, RewriteColumn) or step.change.kind == "table.replaced"
    )


def _decided(plan: Plan) -> Iterator[str]:
    done = [d for d in plan.decisions if d.applied and d.rule != "selection"]
    if done:
        yield "To apply"
    for d in done:
        yield f"  {symbol(d.change)} {_where(d.change)}{describe(d.change)}"
        yield f"        {outcome(d)}"


def _where(change: Change) -> str:
    """Return the table, unless the description begins with it."""
    path = ".".join(filter(None, table_of(change) or ()))
    return "" if not path or path in describe(change) else f"{path}: "


def outcome(decision: Decision) -> str:
    """Return the outcome of a change, who decided it, and what else to know."""
    kind, how = decision.change.kind, decision.modifiers
    done, _, more = decision.why.partition("; ")
    if decision.applied:
        about_name = decision.rule in (SYSTEM, NameCollided.kind)  # a sentence of its own
        done = done if about_name else _REMOVALS.get((kind, how.removed), f"will be {done}")
        more = "; ".join(filter(None, (more, f"backfill: {how.backfill}" if _backfills(decision) else "")))
    return f"{done} ({decision.rule}){'; ' * bool(more)}{more}"


_REMOVALS = {
    ("schema.removed", "retain"): "source schema dropped; the destination tables and their rows are kept",
    ("schema.removed", "drop"): "source schema dropped; the destination tables are dropped too",
    ("table.removed", "retain"): "source table dropped; the destination table and its rows are kept",
    ("table.removed", "drop"): "source table dropped; the destination table is dropped too",
    ("column.removed", "retain"): "source column dropped; the destination column and its values are kept",
    ("column.removed", "drop"): "source column dropped; the destination column is dropped too",
}


def when_applied(kind: str, how: Modifiers) -> str:
    """Return what applying a change does to the destination; empty where only the steps of a plan tell."""
    older = (
        "rows loaded before have NULL in it" if how.backfill == "none" else f"older rows by backfill: {how.backfill}"
    )
    return _REMOVALS.get((kind, how.removed)) or {
        "schema.added": "its tables are created and loaded",
        "table.added": "the table is created and loaded",
        "column.added": f"the column is added; {older}",
        "column.renamed": "the column gets its new name and keeps its values",
    }.get(kind, "")


def _backfills(decision: Decision) -> bool:
    return decision.change.kind == "column.added" and decision.modifiers.backfill != "none"


def _not_applied(plan: Plan) -> Iterator[str]:
    pending = [d for d in plan.decisions if not d.applied]
    if pending:
        yield "Not applied"
    for d in pending:
        yield f"  {symbol(d.change)} {_where(d.change)}{describe(d.change)}"
        yield f"        {outcome(d)}"
        if text := meanwhile(d):
            yield f"        meanwhile {text}"


def meanwhile(decision: Decision) -> str:
    """Return how values are treated while the change is blocked; empty where nothing differs."""
    if decision.action == "pause_connection":
        return "nothing is read"
    if decision.action == "pause_table":
        return "the table is not read; the others continue"
    invalid = {
        "quarantine": "values that do not fit are quarantined",
        "null": "values that do not fit become NULL, and their originals are quarantined",
        "fail": "a value that does not fit fails the table",
    }[decision.modifiers.on_invalid_value]
    return {
        "schema.added": "its tables are not read",
        "table.added": "it is not read",
        "column.added": "it is not read",
        "schema.removed": "its tables are skipped with status missing; the others continue",
        "table.removed": "it is skipped with status missing; the others continue",
        "column.removed": "new rows have NULL in it",
        "table.renamed": "it is read under its accepted name",
        "column.renamed": "it is read under its accepted name",
        "column.widened": f"values are cast to the accepted type; {invalid}",
        "column.narrowed": "the wider accepted type holds every value",
        "column.retyped": f"values are cast to the accepted type; {invalid}",
        "table.replaced": "the table is not read",
        "name.collided": "the new object is not read; the renamed one keeps its accepted name",
        "access.lost": "the table fails; the others continue",
    }.get(decision.change.kind, "")


def _facts(plan: Plan) -> Iterator[str]:
    if plan.refused or plan.notes:
        yield "Found"
    for ref, why in sorted(plan.refused.items()):
        yield f"  ! {'.'.join(filter(None, ref))} is left as it is: {why.replace(chr(10), ';')}"
    for note in plan.notes:
        yield f"  ! {describe(note)}"


def size(count: int) -> str:
    """Return bytes in binary units with one decimal: `1.5 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


_INTS = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
_FLOATS = {32: "FLOAT", 64: "DOUBLE"}
_NAMED = {
    "boolean": "BOOLEAN",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "uuid": "UUID",
    "json": "JSON",
    "unknown": "VARCHAR",
}


def to_sql(catalog: Catalog) -> str:
    """Return statements that make the schemas and the tables, views as tables; empty for an empty catalog. Names that
    differ by case only are written as they are, which DuckDB refuses."""
    schemas = (f"CREATE SCHEMA IF NOT EXISTS {quote(name)};" for name in sorted(catalog.schemas) if name)
    return "\n".join([*schemas, *(_create(t) for t in catalog.tables)])


def _create(table: Table) -> str:
    lines = [(_column_sql(c), "  -- kept after its removal" if c.retained else "") for c in table.columns]
    if table.key:
        lines.append((f"PRIMARY KEY ({', '.join(map(quote, table.key))})", ""))
    last = len(lines) - 1
    body = "\n".join(f"    {text}{',' * (at < last)}{remark}" for at, (text, remark) in enumerate(lines))
    path = ".".join(quote(name) for name in table.ref if name)
    return f"\nCREATE TABLE {path} ({'  -- kept after its removal' if table.retained else ''}\n{body}\n);"


def _column_sql(column: Column) -> str:
    return f"{quote(column.name)} {sql_type(column.type)}{'' if column.nullable else ' NOT NULL'}"


def sql_type(kind: DataType) -> str:
    """Return the type as DuckDB writes it; a length is not part of it."""
    match kind:
        case Int():
            return _INTS[kind.bits]
        case Float():
            return _FLOATS[kind.bits]
        case Decimal():
            return f"DECIMAL({kind.precision},{kind.scale})"
        case String():
            return "VARCHAR"
        case Binary():
            return "BLOB"
        case Array():
            return f"{sql_type(kind.element)}[]"
        case Struct():
            return f"STRUCT({', '.join(f'{quote(f.name)} {sql_type(f.type)}' for f in kind.fields)})"
        case _:
            return _NAMED[str(kind)]


def to_markdown(catalog: Catalog) -> str:
    """Return a heading and a table of columns for each table."""
    return "\n".join(line for table in catalog.tables for line in _page(table))


def _page(table: Table) -> Iterator[str]:
    yield f"## {_cell(table.path)}{' (retained after its removal)' if table.retained else ''}"
    if table.comment:
        yield f"\n{_cell(table.comment)}"
    yield "\n| column | type | key | null | at the destination | notes |\n| --- | --- | --- | --- | --- | --- |"
    for c in table.columns:
        notes = "; ".join(filter(None, ("kept after its removal" if c.retained else "", c.note, c.comment)))
        cells = (c.name, str(c.type), str(c.key or ""), "yes" if c.nullable else "no", c.alias, notes)
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""


def _cell(text: str) -> str:
    """Return one line, with Markdown escaped."""
    plain = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in plain)
