"""A store with changes of one connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.model import Review
from instep.store.catalogs.reviews import DetectedChange
from instep.store.store import Store

ORDER, ITEM = ("public", "order"), ("public", "item")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'state.db'}") as opened:
        yield opened


def found(
    kind: str = "column.added", table: tuple[str, str] = ORDER, column: str = "note", action: str = "review"
) -> DetectedChange:
    path = ".".join(filter(None, (*table, column)))
    return DetectedChange(
        f"{kind} {path}", kind, table, column, f"{path} {kind}", {}, action, "rule 1", "waits for a review"
    )


def recorded(store: Store, *findings: DetectedChange, connection: str = "shop") -> list[Review]:
    return store.reviews.record(connection, findings, "f")


def events(store: Store) -> list[str]:
    """Type and what it is about, oldest first."""
    return [
        f"{e.event.type} {e.event.data().get('change') or ''}".strip() for e in store.events.after(connection="shop")
    ]
