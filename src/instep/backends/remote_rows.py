"""Work on rows at a server, done by its workers: backfills, quarantine, upkeep, rows of before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.backends.decode import record
from instep.backends.http.client import part
from instep.backends.remote_jobs import Works
from instep.errors import Conflict
from instep.sync.schema_changes.backfill_plan import FillEstimate

IDS = 10_000
"""How many one request may name."""
ROUNDS = 3
"""How often what is held of a row is looked up and erased: a run in between may hold more of it."""


@dataclass(frozen=True)
class RemoteRows:
    works: Works

    def estimate(self, connection: str, table: str, columns: Sequence[str]) -> tuple[FillEstimate, str]:
        path = f"/connections/{part(connection)}/backfills/estimate"
        found = self.works.client.get(path, table=table, column=list(columns))
        return record(FillEstimate, found), str(found["waits"])

    def replay(self, connection: str, table: str | None, column: str, *, dry_run: bool) -> list[dict[str, Any]]:
        asked = {"tables": [table] if table else [], "column": column, "preview": dry_run}
        return list(self.works.done(connection, "quarantine/replay", asked).result["tables"])

    def discard(self, connection: str, ids: Sequence[str]) -> list[str]:
        asked = {"ids": list(ids)}
        return list(self.works.done(connection, "quarantine/discard", asked).result["discarded"])

    def erase(self, connection: str, table: str, key: Mapping[str, str | None]) -> int:
        """The key is looked up and kept nowhere: what the queue and the audit log hold are ids of entries. Raises
        Conflict while a run is under way, and if the row is held again and again."""
        erased = 0
        for _ in range(ROUNDS):
            ids = self._matches(connection, table, key, erased)
            if not ids:
                return erased
            parts = ({"table": table, "ids": ids[at : at + IDS]} for at in range(0, len(ids), IDS))
            erased += sum(int(self.works.done(connection, "quarantine/erase", one).result["erased"]) for one in parts)
        if left := self._matches(connection, table, key, erased):
            raise Conflict(
                f"{erased:,} entries of this row were erased, and {len(left):,} more are quarantined in {table} by now",
                hint=f"`instep pause {connection}`, then erase them",
            )
        return erased

    def _matches(self, connection: str, table: str, key: Mapping[str, str | None], erased: int) -> list[str]:
        asked = {"table": table, "key": dict(key)}
        try:
            found = self.works.client.post(f"/connections/{part(connection)}/quarantine/matches", asked)
        except Conflict as error:
            if not erased:
                raise
            said = f"{erased:,} entries of this row were erased, and more may be quarantined: {error.message}"
            raise Conflict(said, hint=error.hint) from None
        return list(found["ids"])
