"""The steps of a plan as the Spark SQL that a person would write for Delta tables: to read, never executed."""

from __future__ import annotations

from collections.abc import Sequence

from instep.destinations.iceberg import sql
from instep.schema.step import Step


def statements(steps: Sequence[Step]) -> list[str]:
    """As for Iceberg: both are Spark's."""
    return sql.statements(steps, "delta")
