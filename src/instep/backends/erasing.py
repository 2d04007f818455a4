"""Quarantined entries are discarded, and every trace of a row erased, at either backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from instep.errors import Conflict
from instep.operations.queries.quarantine import MatchQuarantined
from instep.operations.repair.discard_quarantine import DiscardQuarantineRequest
from instep.operations.repair.erase import EraseRequest

if TYPE_CHECKING:
    from instep.backends.protocol import Backend

IDS = 10_000
"""The most ids that one request may name."""
ROUNDS = 3
"""Rounds of looking up what is quarantined of a row and erasing it: a run in between may quarantine more."""


def discard_entries(backend: Backend, connection: str, ids: Sequence[str]) -> list[str]:
    """Discard entries by their whole ids; return those whose originals went."""
    gone: list[str] = []
    for at in range(0, len(ids), IDS):
        request = DiscardQuarantineRequest(ids=tuple(ids[at : at + IDS]))
        gone += backend.operations.run(connection, request).discarded
    return gone


def erase_row(backend: Backend, connection: str, table: str, key: Mapping[str, str | None]) -> int:
    """Erase the entries of the rows with this key (texts by column); return how many there were.

    The key is looked up and kept nowhere: what the queue and the audit log hold are ids of entries. Raises Conflict
    while a run is under way, and if the row is held again and again.
    """
    erased = 0
    for _ in range(ROUNDS):
        ids = _matches(backend, connection, table, key, erased)
        if not ids:
            return erased
        for at in range(0, len(ids), IDS):
            request = EraseRequest(table=table, ids=tuple(ids[at : at + IDS]))
            erased += int(backend.operations.run(connection, request).erased)
    if left := _matches(backend, connection, table, key, erased):
        raise Conflict(
            f"{erased:,} entries of this row were erased, and {len(left):,} more are quarantined in {table} by now",
            hint=f"`instep pause {connection}`, then erase them",
        )
    return erased


def _matches(backend: Backend, connection: str, table: str, key: Mapping[str, str | None], erased: int) -> list[str]:
    try:
        return list(backend.query(MatchQuarantined(connection, table, dict(key))).ids)
    except Conflict as error:
        if not erased:
            raise
        message = f"{erased:,} entries of this row were erased, and more may be quarantined: {error.message}"
        raise Conflict(message, hint=error.hint) from None
