"""One connection of a project, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.backends import calls
from instep.operations.decide.declare_rename import DeclareRenameRequest
from instep.operations.decide.preview_change import PreviewChangeRequest
from instep.operations.decide.publish_change import PublishChangeRequest
from instep.operations.decide.sample_rename import RenameSample, SampleRenameRequest
from instep.operations.everyday.plan import PlanRequest
from instep.operations.everyday.sync import SyncRequest
from instep.operations.everyday.tables import TablesRequest, TablesResult, TableSummary
from instep.operations.everyday.verify import VerifyRequest
from instep.operations.immediate.work import PauseRequest, ResumeRequest
from instep.operations.queries.history import (
    CompareVersions,
    GetSchema,
    ListEvents,
    ListLoads,
    ListPlans,
    ListRuns,
    ListVersions,
)
from instep.operations.queries.work import GetStatus
from instep.operations.repair.maintain import MaintainRequest
from instep.operations.repair.undo import UndoRequest
from instep.operations.set_up.upgrade_source import UpgradeSourceRequest
from instep.python.policy import Policy
from instep.python.progress import ProgressCallback, ProgressWatch
from instep.python.quarantine import Quarantine
from instep.python.requests import as_names, checked_limit
from instep.python.results import Changes, Detection, Document, Records, SyncResult, preformatted
from instep.python.selection import Selection
from instep.python.table import Table

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.model import Review
    from instep.operations.spec import Preview, Query, Request
    from instep.operations.values import Side
    from instep.plans.planned import Planned
    from instep.plans.preview_change import ChangePreview
    from instep.plans.publish_change import PublishedChange
    from instep.schema.catalog.catalog import Catalog
    from instep.sync.operations.maintain import MaintenanceReport
    from instep.sync.operations.verify import VerifyReport, VerifyResult


@dataclass(frozen=True)
class Plan:
    """The effect of applying the open changes, exactly as it was shown.

    Example:
        plan = shop.plan()
        print("\\n".join(plan.lines))
        plan.apply(allow=["shop.orders.*"])
    """

    planned: Planned
    """The record that the command `instep plan` prints."""
    _backend: Backend = field(repr=False)

    def __repr__(self) -> str:
        return "\n".join([f"<instep plan of connection {self.planned.connection}>", *self.lines])

    @property
    def lines(self) -> list[str]:
        """Return the plan in sentences, with its effect on models downstream."""
        return [text for text, _ in self.planned.text()]

    @property
    def pending(self) -> bool:
        """Return whether there is something to apply or to decide."""
        return self.planned.pending

    @property
    def document(self) -> Mapping[str, Any]:
        """Return the plan as `instep plan --output json` has it."""
        return self.planned.document

    def apply(self, allow: str | Iterable[str] = ()) -> int:
        """Apply the plan to the destination's schema; return the accepted version. Rows follow at the next sync.

        `allow`: patterns of what may be dropped, as it is called at the destination (`shop.orders.note`). Raises
        Blocked if something would be dropped that `allow` does not name, StalePlan if schemas or decisions have moved
        since the plan was made.
        """
        request = self.planned.apply_request(as_names(allow))
        return int(self._backend.operations.run(self.planned.connection, request).version)

    def _repr_html_(self) -> str:
        return preformatted(self.lines)


TABLE_COLUMNS: Mapping[str, Callable[[TableSummary], object]] = {
    **{name: attrgetter(name) for name in ("table", "destination", "mode", "key", "rows", "bytes", "columns")},
    "last run": lambda table: table.last_run and f"{table.last_run.kind} {table.last_run.status}",
    **{name: attrgetter(name) for name in ("quarantined", "paused", "error", "backfills", "note")},
}
"""Columns that a notebook shows of a table at the destination."""


class Connection:
    """One connection: a source replicated into a destination.

    Example:
        shop = project.connection("shop")
        shop.sync().raise_for_failure()
        for change in shop.changes():
            print(change.id, change.summary)

    Errors are those of `instep.errors`; every call may also raise ConnectError where a source, a destination or the
    server cannot be reached.
    """

    def __init__(self, name: str, backend: Backend, watch: ProgressWatch) -> None:
        self.name, self._backend, self._watch = name, backend, watch

    def __repr__(self) -> str:
        return f"<instep connection {self.name}>"

    def sync(
        self,
        tables: str | Iterable[str] = (),
        *,
        full: bool = False,
        drop_retained: bool = False,
        drop_columns: str | Iterable[str] = (),
        on_progress: ProgressCallback | None = None,
    ) -> SyncResult:
        """Bring the destination in step with the source, schema changes included.

        `tables`: only these (`schema.table`). `full`: read every row again. `drop_retained`: drop columns that the
        source has dropped, where that is needed. `drop_columns`: drop these (`schema.table.column`), which the source
        no longer has or which are deselected. A table that fails leaves the others alone: see `SyncResult.failed`.
        Raises Blocked while the connection is paused, RunInProgress while another run of it is alive.
        """
        named = as_names(drop_columns)
        request = SyncRequest(tables=as_names(tables), full=full, drop_retained=drop_retained, drop_columns=named)
        with self._watch.reporting_to(on_progress):
            return SyncResult.of(self._backend.operations.run(self.name, request))

    def detect(self) -> Detection:
        """Detect schema changes in the source, record them and evaluate them against the policy; nothing is applied."""
        detection, reviews = calls.detect(self._backend, self.name)
        return Detection(Changes(reviews), detection.pending, detection.counts, detection.missing)

    def plan(self, *, sample: int | None = None) -> Plan:
        """Return a plan of what applying the open changes does; nothing is applied.

        `sample`: also what it costs, with type changes tried on this many rows.
        """
        return Plan(self._backend.operations.run(self.name, PlanRequest(sample=sample)), self._backend)

    def changes(self, *, all: bool = False) -> Changes:
        """Return the changes that wait for a decision, or `all` changes; newest first."""
        return Changes(calls.list_changes(self._backend, self.name, every=all))

    def preview(self, request: Request) -> Preview:
        """Return what an operation would do; nothing is written. `run` carries it out exactly so.

        `request`: an `UndoRequest`, `RestoreRequest`, `RepairRequest`, `SetKeyRequest`, `SetCursorRequest`,
        `DeclareRenameRequest` or `UpgradeSourceRequest`.
        Raises InstepError for what cannot be done.
        """
        return self._backend.operations.prepare(self.name, request)

    def run(self, preview: Preview, allow: str | Iterable[str] = ()) -> Document:
        """Carry out what `preview` has shown; return its result.

        `allow`: patterns of what may be lost. Raises Blocked if something would be lost that `allow` does not name,
        Conflict if something has moved since.
        """
        return Document(self._backend.operations.execute(preview, as_names(allow)))

    def undo(self, what: str, allow: str | Iterable[str] = ()) -> int:
        """Take back a change (`c-...`), or all of a run (`r-...`) or a plan (`p-...`); return the accepted version.

        `allow`: patterns of what may be dropped at the destination. The source is not touched, and the next sync does
        not apply the change again. Raises Blocked with the reason if it cannot be taken back.
        """
        whole, _ = calls.find_owner(self._backend, what, self.name)
        return int(self.run(self.preview(UndoRequest(what=whole)), allow)["version"])

    def upgrade_source(self, to: str = "", *, rollback: bool = False, metadata: str = "") -> Document:
        """Give the connector of the source another version; return what that changes.

        `to`: the version, the newest one if it is not given. `rollback`: go back to the version before the last
        upgrade, with the states of that moment. `metadata`: the text of a metadata.yaml, whose `breakingChanges` are
        among what is returned. All connections of the source use it from now on. Raises Blocked if
        the configuration does not fit the version; `preview` of an `UpgradeSourceRequest` only shows what it changes.
        """
        made = self.preview(UpgradeSourceRequest(to=to, rollback=rollback, metadata=metadata))
        return Document({**made.document, **self.run(made)})

    def preview_change(self, change: Review | str) -> ChangePreview:
        """Try a waiting change on a copy of the destination's tables (Iceberg); return how rows and models differ.

        The copy is thrown away, and nothing is changed. `publish_change` does it.
        """
        (whole,) = chosen((change,))
        preview: ChangePreview = self._backend.operations.run(self.name, PreviewChangeRequest(change=whole))
        return preview

    def publish_change(self, preview: ChangePreview, allow: Iterable[str] = ()) -> PublishedChange:
        """Approve a change that was previewed and do to the tables what the preview has shown.

        `allow`: patterns of what may be dropped at the destination. Raises StalePlan if the steps or the tables are not
        those of the preview, Blocked where a consent or a second person is missing. `undo` takes it back.
        """
        request = PublishChangeRequest(change=preview.change, fingerprint=preview.fingerprint, allow=tuple(allow))
        published: PublishedChange = self._backend.operations.run(self.name, request)
        return published

    def sample_rename(self, change: Review | str) -> RenameSample:
        """Return sampled values of both columns of a suspected rename, by key where the table has one.

        Values of hashed columns, and of columns that look personal, are not in it: `note` says so.
        """
        (whole,) = chosen((change,))
        sample: RenameSample = self._backend.operations.run(self.name, SampleRenameRequest(change=whole))
        return sample

    def declare_rename(self, old: str, new: str) -> int:
        """Declare that a removal and an addition are one rename; return the accepted version.

        `old`, `new`: `schema.table` twice, or `schema.table.column` twice.
        """
        return int(self.run(self.preview(DeclareRenameRequest(old=old, new=new)))["version"])

    def tables(self) -> Records[TableSummary]:
        """Return what stands at the destination, one record a table, by path: rows, bytes, last run, what holds it up.

        Rows and bytes come from metadata; no row is read. `table(path)` has what can be done with one of them.
        """
        result: TablesResult = self._backend.operations.run(self.name, TablesRequest())
        return Records(result.tables, TABLE_COLUMNS)

    def table(self, path: str) -> Table:
        """Return the accepted table of this path (`schema.table`); InstepError if there is none."""
        accepted_tables = calls.accepted_tables(self._backend, self.name)
        if path not in accepted_tables:
            from instep.suggest import unknown_table

            raise unknown_table(f"connection {self.name} has no accepted table {path}", path, accepted_tables)
        return Table(path, accepted_tables[path], self.name, self._backend, self._watch)

    def schema(self, side: Side = "accepted", at: datetime | None = None) -> Catalog:
        """Return the schema as of now, or as of the time `at` (UTC without an offset).

        `side`: `source`, `accepted` or `destination`. Raises InstepError where nothing is on record.
        """
        from instep.schema.catalog.catalog import catalog_from_dict

        version = self._backend.query(GetSchema(self.name, side, at.isoformat() if at else None))
        return catalog_from_dict(version.catalog)

    @property
    def policy(self) -> Policy:
        """Return the connection's policy, to be shown, explained and tested."""
        return Policy(self.name, self._backend)

    @property
    def quarantine(self) -> Quarantine:
        """Return the values and rows that did not fit."""
        return Quarantine(self.name, self._backend)

    @property
    def selection(self) -> Selection:
        """Return the selection: which schemas, tables and columns are read."""
        return Selection(self.name, self._backend)

    def verify(
        self, tables: str | Iterable[str] = (), *, on_progress: ProgressCallback | None = None
    ) -> Records[VerifyResult]:
        """Compare source and destination, row by row; return one verdict a table, with its differences.

        `tables`: only these (`schema.table`). Raises InstepError for one that there is not, Blocked for a source that
        has nothing to compare with.
        """
        with self._watch.reporting_to(on_progress):
            report: VerifyReport = self._backend.operations.run(self.name, VerifyRequest(tables=as_names(tables)))
        return Records(report.tables)

    def maintain(
        self, tables: str = "", *, preview: bool = False, on_progress: ProgressCallback | None = None
    ) -> MaintenanceReport:
        """Compact files, expire snapshots and delete orphan files; no row changes. Returns what was done to each table.

        `tables`: a pattern of tables (`schema.table`); "" for all. `preview`: only find out what would be done. Raises
        RunInProgress while a run of the connection is alive.
        """
        with self._watch.reporting_to(on_progress):
            request = MaintainRequest(table=tables, preview=preview)
            report: MaintenanceReport = self._backend.operations.run(self.name, request)
        return report

    def impact(
        self,
        *,
        manifest: str | Path | None = None,
        sql: str | Path | Sequence[str | Path] = (),
        dialect: str = "",
        change: str = "",
    ) -> Document:
        """Return which views and models the open and planned changes break, change silently or leave alone.

        `manifest`: dbt's manifest.json. `sql`: folders of .sql files, or files. Without both, `downstream` of the
        connection in instep.yml says where models are. `dialect`: of the SQL; "" for that of dbt's adapter, or spark.
        `change`: only this one, by its id. Raises SetupError without the extra `lineage`.
        """
        from instep.backends.calls import impact_of
        from instep.plans.downstream import Downstream, read_models

        places = (sql,) if isinstance(sql, str | Path) else sql
        given = Downstream(Path(manifest) if manifest else None, tuple(map(Path, places)), dialect)
        models = read_models(given) if given else None
        return Document(impact_of(self._backend, self.name, models, dialect, change))

    def pause(self, reason: str) -> bool:
        """Pause the connection; return False if it was paused already."""
        return bool(self._backend.operations.perform(PauseRequest(connection=self.name, reason=reason)).changed)

    def resume(self) -> bool:
        """Resume the connection; return False if it was not paused.

        Raises Blocked while a change that stops the connection waits for a decision.
        """
        return bool(self._backend.operations.perform(ResumeRequest(connection=self.name)).changed)

    def status(self) -> Document:
        """Return the last run, pauses, waiting changes, tables and backfills."""
        return Document(calls.status_document(self._backend, self._backend.query(GetStatus(self.name))))

    def history(self, limit: int = 50) -> Records[Document]:
        """Return at most `limit` events of the connection, newest first. `table(path).history()` has one table's."""
        return self._list(ListEvents(connection=self.name), limit)

    def runs(self, limit: int = 50) -> Records[Document]:
        """Return at most `limit` runs, newest first."""
        return self._list(ListRuns(connection=self.name), limit)

    def loads(self, table: str | None = None, limit: int = 50) -> Records[Document]:
        """Return what at most `limit` runs loaded, newest first: of one table, or of all together."""
        return self._list(ListLoads(self.name, table), limit)

    def compare(self, before: int, after: int, side: Side = "accepted", limit: int = 1000) -> Records[Document]:
        """Return at most `limit` changes from one version of a schema to another; 0 is the empty schema before all."""
        query = CompareVersions(self.name, before, after, side)
        return self._list(query, limit)

    def plans(self, limit: int = 50) -> Records[Document]:
        """Return at most `limit` applied plans, newest first."""
        return self._list(ListPlans(connection=self.name), limit)

    def versions(self, limit: int = 50) -> Records[Document]:
        """Return at most `limit` versions of the accepted schema, newest first."""
        return self._list(ListVersions(connection=self.name), limit)

    def _list(self, query: Query, limit: int) -> Records[Document]:
        records = self._backend.items(query, checked_limit(limit))
        return Records(Document(asdict(record)) for record in records)


def chosen(changes: Iterable[Review | str | Iterable[Review | str]]) -> tuple[str, ...]:
    """Return the ids of changes; ids as they are; those of a list, as `changes()` returns it."""
    ids: list[str] = []
    for change in changes:
        if isinstance(change, str):
            ids.append(change)
        else:
            ids += chosen(change) if isinstance(change, Iterable) else [change.id]
    return tuple(ids)
