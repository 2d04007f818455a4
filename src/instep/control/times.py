"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(text: str) -> datetime:
    """A date or time in ISO 8601, in UTC where it does not say otherwise. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
