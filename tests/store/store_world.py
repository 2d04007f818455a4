"""A clock that stands still until it is told, and small catalogs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.store.catalogs.reviews import DetectedChange

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass
class Clock:
    time: datetime = field(default=START)

    def __call__(self) -> datetime:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def catalog(*names: str) -> Catalog:
    columns = (Column("id", parse("int64"), nullable=False, key=1, id="1"), Column("né", parse("decimal(12,2)")))
    return Catalog.of(Table("public", name, columns, id=str(at)) for at, name in enumerate(names))


def finding(key: str, action: str = "review", table: str = "orders", column: str = "total") -> DetectedChange:
    return DetectedChange(
        key=key,
        kind="column.widened",
        table=("public", table),
        column=column,
        summary=f"{table}.{column} int32 -> int64",
        change={"before": "int32", "after": "int64"},
        action=action,
        rule="preset approve",
        why="waits for a review",
        modifiers={"backfill": "column"},
    )
