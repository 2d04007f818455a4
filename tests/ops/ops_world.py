"""A clock that stands still until it is told, and one change."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from instep.store.catalogs.reviews import DetectedChange


@dataclass
class Moved:
    """`now` for a store."""

    time: datetime = field(default=datetime(2026, 3, 1, 12, 0, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.time

    def forward(self, **by: float) -> None:
        self.time += timedelta(**by)


def change(key: str = "k") -> DetectedChange:
    return DetectedChange(key, "column.removed", ("public", "t"), "a", "t.a is gone", {}, "review", "preset", "why", {})
