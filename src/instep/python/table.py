"""One table of a connection, and what can be done with it alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from instep.operations.everyday.backfill import BackfillRequest
from instep.operations.everyday.tables import TableColumn, TablesRequest, TablesResult
from instep.operations.immediate.work import CancelBackfillRequest, PauseRequest, ResumeRequest
from instep.operations.queries.history import GetObjectHistory
from instep.operations.queries.work import EstimateBackfill
from instep.operations.repair.list_savepoints import ListSavepointsRequest
from instep.operations.repair.repair import RepairRequest
from instep.operations.repair.restore import RestoreRequest
from instep.operations.repair.set_cursor import SetCursorRequest
from instep.operations.repair.set_key import SetKeyRequest
from instep.python.progress import ProgressCallback, ProgressWatch
from instep.python.requests import as_names
from instep.python.results import BackfillEstimate, Document, QueryResult, Records, SyncResult

if TYPE_CHECKING:
    from instep.backends.calls import Ref
    from instep.backends.protocol import Backend
    from instep.control.backfills import Cancelled
    from instep.control.object_history import HistoryEntry
    from instep.destinations.base import Savepoint
    from instep.operations.spec import Request


class Table:
    """One accepted table of a connection.

    Example:
        orders = shop.table("main.orders")
        orders.backfill(["note"])
        orders.set_key(["id", "version"])
        orders.repair()["verdict"]["equal"]
        orders.restore(orders.savepoints()[1].id, allow=["main.orders"])
    """

    def __init__(self, path: str, ref: Ref, connection: str, backend: Backend, watch: ProgressWatch) -> None:
        self.path, self._ref, self._connection, self._backend, self._watch = path, ref, connection, backend, watch

    def __repr__(self) -> str:
        return f"<instep table {self.path} of connection {self._connection}>"

    def backfill(self, columns: str | Iterable[str] = (), *, on_progress: ProgressCallback | None = None) -> SyncResult:
        """Load the table again, or fill `columns` in rows that were loaded before and have NULL there.

        Raises InstepError for a column that there is not, RunInProgress while another run of the connection is alive.
        """
        with self._watch.reporting_to(on_progress):
            request = BackfillRequest(table=self.path, columns=as_names(columns))
            return SyncResult.of(self._backend.operations.run(self._connection, request))

    def estimate_backfill(self, columns: str | Iterable[str] = ()) -> BackfillEstimate:
        """Return the cost of a backfill of the table, or of `columns`; neither source nor files are opened."""
        return BackfillEstimate.of(
            self._backend.query(EstimateBackfill(self._connection, self.path, as_names(columns)))
        )

    def cancel_backfill(self, columns: str | Iterable[str] = ()) -> Cancelled:
        """Cancel backfills of the table, or of `columns`, that wait or run; return those that were cancelled.

        One under way stops at its next file; what was filled stays.
        """
        request = CancelBackfillRequest(connection=self._connection, table=self.path, columns=as_names(columns))
        cancelled: Cancelled = self._backend.operations.perform(request)
        return cancelled

    def set_key(
        self,
        columns: str | Iterable[str],
        *,
        way: Literal["rekey", "rebuild", "clear"] = "rekey",
        allow: str | Iterable[str] = (),
    ) -> int:
        """Give the table another key; return the accepted version.

        `columns`: the new key, by accepted names. `way`: `rekey` leaves the rows; `rebuild` reads the table anew and
        keeps the old one as a copy; `clear` empties it now and reads it anew, for which `allow` has to name it by a
        pattern. Raises Blocked where rows would be lost: `preview` of a `SetKeyRequest` counts them.
        """
        return int(self._do(SetKeyRequest(table=self.path, key=as_names(columns), way=way), allow)["version"])

    def set_cursor(self, column: str | None, *, start: str = "") -> int:
        """Give the table another cursor; return the accepted version.

        `column`: the column that grows with every change; None: each sync reads the whole table. `start`: the value
        that the first read begins at. Raises InstepError for a column that cannot be a cursor.
        """
        return int(self._do(SetCursorRequest(table=self.path, column=column, start=start))["version"])

    def columns(self) -> Records[TableColumn]:
        """Return the columns at source and destination: types, key, whether they are read or hashed, since when."""
        return Records(self._read(TablesRequest(table=self.path)).columns)

    def preview(self, rows: int = 10) -> QueryResult:
        """Return the first rows (at most 100) as the destination has them, in no order.

        Raises InstepError for a table that was never loaded, ProjectError for the project of a server: rows do not
        pass through it.
        """
        shown = self._read(TablesRequest(table=self.path, preview=rows)).preview
        assert shown is not None, "it was asked for"
        return QueryResult(shown.arrow)

    def _read(self, request: TablesRequest) -> TablesResult:
        result: TablesResult = self._backend.operations.run(self._connection, request)
        return result

    def savepoints(self) -> Records[Savepoint]:
        """Return the snapshots that the table can be put back to, newest first."""
        return Records(
            self._backend.operations.run(self._connection, ListSavepointsRequest(table=self.path)).savepoints
        )

    def restore(
        self, snapshot: int | str | None = None, *, at: datetime | None = None, allow: str | Iterable[str] = ()
    ) -> str:
        """Put the table's rows and its cursor back; return the id of the run.

        Exactly one of `snapshot` (the id of a savepoint) and `at` (a time; UTC without an offset). `allow`: patterns,
        of which one has to name the table. Schema and source stay as they are. Raises Blocked without `allow`, Conflict
        if the table has moved meanwhile.
        """
        request = RestoreRequest(table=self.path, snapshot=None if snapshot is None else str(snapshot), at=at)
        return str(self._do(request, allow)["run"])

    def repair(self, *, allow: str | Iterable[str] = (), on_progress: ProgressCallback | None = None) -> Document:
        """Correct the rows in which the table differs from its source, and no others; return what was done.

        The result has `inserted`, `updated`, `deleted`, and `verdict`: what `verify` says of the table since. Cursor
        and schema stay. `allow`: patterns, of which one has to name the table if rows go that the source does
        not have. Raises Blocked without it, and for a table that cannot be repaired exactly.
        """
        with self._watch.reporting_to(on_progress):
            return Document(self._do(RepairRequest(table=self.path, shown=True), allow))

    def _do(self, request: Request, allow: str | Iterable[str] = ()) -> Mapping[str, Any]:
        preview = self._backend.operations.prepare(self._connection, request)
        return self._backend.operations.execute(preview, as_names(allow))

    def pause(self, reason: str) -> bool:
        """Pause the table; return False if it was paused already."""
        request = PauseRequest(connection=self._connection, reason=reason, table=self._ref)
        return bool(self._backend.operations.perform(request).changed)

    def resume(self) -> bool:
        """Resume the table; return False if it was not paused.

        Raises Blocked while a change that breaks the table waits for a decision.
        """
        request = ResumeRequest(connection=self._connection, table=self._ref)
        return bool(self._backend.operations.perform(request).changed)

    def history(self, column: str = "") -> Records[HistoryEntry]:
        """Return the schema changes of the table, or of one of its columns, oldest first."""
        path = f"{self.path}.{column}" if column else self.path
        return Records(self._backend.query(GetObjectHistory(self._connection, path)).entries)
