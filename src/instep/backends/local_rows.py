"""Work on rows at the project of this machine: backfills, quarantine, upkeep, rows of before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.destinations.facets import Savepoint
    from instep.operations.everyday.sync import SyncRequest
    from instep.sync.progress import Progress, SyncReport
    from instep.sync.schema_changes.backfill_plan import FillEstimate

    Watch = Callable[[], AbstractContextManager[Progress]]


class LocalRows:
    """`watch` shows what is told while rows are read."""

    def __init__(self, app: App, watch: Watch) -> None:
        self.app, self.watch = app, watch

    def sync(self, connection: str, request: SyncRequest) -> SyncReport:
        said = {"full": request.full, "drop_retained": request.drop_retained}
        return self._run(connection, tables=frozenset(request.tables), **said)

    def _run(self, name: str, **asked: Any) -> SyncReport:
        """Make one run; a Spark that is sure to be needed starts while modules, store and catalogs are being read."""
        engine = self.app.engine(name)
        engine.begin()
        from instep.sync.run import RunScope, sync

        with self.watch() as progress:
            return sync(self.app.sync_context(name), RunScope(**asked), progress, engine)

    def estimate(self, connection: str, table: str, columns: Sequence[str]) -> tuple[FillEstimate, str]:
        from instep.sync.schema_changes.backfill_plan import estimated

        return estimated(self.app.sync_context(connection), table, columns)

    def fill(self, connection: str, table: str, columns: Sequence[str]) -> SyncReport:
        from instep.bootstrap import user
        from instep.sync.schema_changes.backfill_plan import check_columns

        if not columns:
            return self._run(connection, tables=frozenset((table,)), full=True, kind="backfill")
        accepted, names = check_columns(self.app.sync_context(connection), table, columns)
        for name in names:
            self.app.store.backfills.want(connection, accepted.ref, column=name, why=f"asked for by {user()}")
        return self._run(connection, tables=frozenset((table,)), columns=names, kind="backfill")

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

    def savepoints(self, connection: str, table: str) -> Sequence[Savepoint]:
        from instep.sync.operations.restore import savepoints

        return savepoints(self.app.sync_context(connection), table)[1]
