"""The open changes that need a person, as the store's clock has it."""

from __future__ import annotations

from instep.control.reviews import waits
from instep.model import Review
from instep.store.store import Store


def waiting(store: Store, connection: str | None = None) -> list[Review]:
    """Return what `instep changes` lists of a connection, or of all."""
    return [r for r in store.reviews.find(connection, ("open",)) if waits(r, store._db.now())]
