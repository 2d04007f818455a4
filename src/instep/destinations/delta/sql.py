"""The steps of a plan as the Spark SQL that a person would write for Delta tables: to read, never executed."""

from __future__ import annotations

from collections.abc import Sequence

from instep.destinations.iceberg import sql
from instep.schema.change import TableAdded, TableReplaced
from instep.schema.names import quote
from instep.schema.step import SetLayout, Step


def statements(steps: Sequence[Step]) -> list[str]:
    """As for Iceberg: both are Spark's. Partitions come with the table, or with its next whole load."""
    by = {s.table: _columns(s.change) for s in steps if isinstance(s.change, SetLayout)}
    anew = {s.table for s in steps if isinstance(s.change, TableAdded | TableReplaced)}
    out: list[str] = []
    for one in steps:
        if not isinstance(one.change, SetLayout):
            found = sql.statements([one], "delta")
            made = isinstance(one.change, TableAdded | TableReplaced) and by.get(one.table)
            out += [line.replace("\n) USING delta", f"\n) USING delta\nPARTITIONED BY ({made})") for line in found]
        elif one.table not in anew:
            said = f"partitioned by ({by[one.table]})" if by[one.table] else "not partitioned"
            out.append(f"-- the next whole load leaves {'.'.join(one.table)} {said}")
    return out


def _columns(change: SetLayout) -> str:
    return ", ".join(quote(term.column, "spark") for term in change.after.partition)
