"""Work on rows at the project of this machine: backfills, quarantine, upkeep, rows of before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.sync.progress import Progress
    from instep.sync.schema_changes.backfill_plan import FillEstimate

    Watch = Callable[[], AbstractContextManager[Progress]]


class LocalRows:
    """`watch` shows what is told while rows are read."""

    def __init__(self, app: App, watch: Watch) -> None:
        self.app, self.watch = app, watch

    def estimate(self, connection: str, table: str, columns: Sequence[str]) -> tuple[FillEstimate, str]:
        from instep.sync.schema_changes.backfill_plan import estimated

        return estimated(self.app.sync_context(connection), table, columns)
