"""Parse points in time and durations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(text: str) -> datetime:
    """Return a date or time in ISO 8601, in UTC where it does not say otherwise. Raises ValueError."""
    return aware(datetime.fromisoformat(text))


def aware(at: datetime) -> datetime:
    """Return the time with a zone; UTC if it has none."""
    return at if at.tzinfo else at.replace(tzinfo=UTC)
