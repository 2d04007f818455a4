"""Work on rows at the project of this machine: backfills, quarantine, upkeep, rows of before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

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

    def replay(self, connection: str, table: str | None, column: str, *, dry_run: bool) -> list[dict[str, Any]]:
        from instep.sync.quarantine.replay import replay

        done = replay(self.app.sync_context(connection), [table] if table else [], column, dry_run=dry_run)
        return [one.document() for one in done]

    def discard(self, connection: str, ids: Sequence[str]) -> list[str]:
        from instep.sync.quarantine.quarantine import discard

        return [e.id for e in discard(self.app.sync_context(connection), ids=ids)]

    def erase(self, connection: str, table: str, key: Mapping[str, str | None]) -> int:
        from instep.sync.quarantine.quarantine import erase

        return erase(self.app.sync_context(connection), table, key)
