"""Work on rows at a server, done by its workers: backfills, quarantine, upkeep, rows of before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from instep.backends.decode import record
from instep.backends.http.client import part
from instep.backends.remote_jobs import Works
from instep.sync.schema_changes.backfill_plan import FillEstimate


@dataclass(frozen=True)
class RemoteRows:
    works: Works

    def estimate(self, connection: str, table: str, columns: Sequence[str]) -> tuple[FillEstimate, str]:
        path = f"/connections/{part(connection)}/backfills/estimate"
        found = self.works.client.get(path, table=table, column=list(columns))
        return record(FillEstimate, found), str(found["waits"])
