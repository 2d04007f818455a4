"""One connection of a project, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.operations.sync import SyncRequest
from instep.python.progress import ProgressCallback, Watch
from instep.python.results import SyncResult, grid

if TYPE_CHECKING:
    from instep.model import Review
    from instep.operations.spec import Preview, Request
    from instep.plans.planned import Planned
    from instep.remote.desk import Desk, Detected
    from instep.sync.verify import Verdict


@dataclass(frozen=True)
class Plan:
    """What applying the open changes does, exactly as it was shown."""

    planned: Planned
    _desk: Desk

    @property
    def lines(self) -> list[str]:
        """The plan in sentences, with what it does to models downstream."""
        return [text for text, _ in self.planned.text()]

    @property
    def pending(self) -> bool:
        """Whether there is something to apply or to decide."""
        return self.planned.pending

    @property
    def document(self) -> Mapping[str, Any]:
        """The plan as JSON has it."""
        return self.planned.document

    def apply(self, allow: Iterable[str] = ()) -> int:
        """Apply it; return the accepted version. `allow`: patterns of what may be dropped.

        Raises Blocked if something would be dropped that `allow` does not name, StalePlan if schemas or decisions have
        moved since it was made.
        """
        return self._desk.planning.apply(self.planned, tuple(allow))[0]

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(chr(10).join(self.lines))}</pre>"


class Connection:
    """One connection: a source replicated into a destination. Errors are those of `instep.errors`."""

    def __init__(self, name: str, desk: Desk, watch: Watch) -> None:
        self.name, self._desk, self._watch = name, desk, watch

    def __repr__(self) -> str:
        return f"<instep connection {self.name}>"

    def sync(
        self,
        tables: Iterable[str] = (),
        *,
        full: bool = False,
        drop_retained: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> SyncResult:
        """Bring the destination in step with the source, schema changes included.

        `tables`: only these (`schema.table`). `full`: read every row again. `drop_retained`: drop columns that the
        source has dropped, where that is needed. A table that fails leaves the others alone: see `SyncResult.failed`.
        Raises Blocked while the connection is paused, RunInProgress while another run of it is alive.
        """
        request = SyncRequest(tables=tuple(tables), full=full, drop_retained=drop_retained)
        with self._watch.telling(on_progress):
            return SyncResult.of(self._desk.rows.sync(self.name, request))

    def backfill(
        self, table: str, columns: Iterable[str] = (), *, on_progress: ProgressCallback | None = None
    ) -> SyncResult:
        """Reload a table, or fill `columns` where rows that were loaded before have NULL in them."""
        with self._watch.telling(on_progress):
            return SyncResult.of(self._desk.rows.fill(self.name, table, tuple(columns)))

    def detect(self) -> Detected:
        """Detect schema changes in the source and evaluate them against the policy; nothing is applied."""
        return self._desk.detect(self.name)

    def plan(self, *, sample: int | None = None) -> Plan:
        """Show what applying the open changes does. `sample`: also what it costs, with type changes tried on so many
        rows."""
        return Plan(self._desk.planning.plan(self.name, sample=sample), self._desk)

    def changes(self, *, all: bool = False) -> Changes:
        """Return the changes that wait for a decision, or all of them; newest first."""
        return Changes(self._desk.changes(self.name, every=all))

    def preview(self, request: Request) -> Preview:
        """Show what an operation does that is shown before it is carried out: an `UndoRequest`, `RestoreRequest`,
        `SetKeyRequest`, `SetCursorRequest` or `DeclareRenameRequest` of `instep.operations`."""
        return self._desk.operations.prepare(self.name, request)

    def run(self, preview: Preview, allow: Iterable[str] = ()) -> Mapping[str, Any]:
        """Carry out what `preview` has shown; return its result. `allow`: patterns of what may be lost."""
        return self._desk.operations.execute(preview, tuple(allow))

    def undo(self, what: str, allow: Iterable[str] = ()) -> int:
        """Take back a change (`c-...`), or all of a run (`r-...`) or a plan (`p-...`); return the accepted version."""
        from instep.operations.undo import UndoRequest

        whole, _ = self._desk.planning.owner(what, self.name)
        return int(self.run(self.preview(UndoRequest(what=whole)), allow)["version"])

    def verify(self, tables: Iterable[str] = (), *, on_progress: ProgressCallback | None = None) -> list[Verdict]:
        """Compare source and destination: one verdict a table, with its differences."""
        with self._watch.telling(on_progress):
            return self._desk.rows.verify(self.name, tuple(tables))

    def pause(self, reason: str, table: tuple[str, str] | None = None) -> bool:
        """Pause it, or one table of it (schema, name); return False if it was paused already."""
        return self._desk.pause(self.name, reason, table)

    def resume(self, table: tuple[str, str] | None = None) -> bool:
        """Resume it, or one table of it; return False if it was not paused."""
        return self._desk.resume(self.name, table)

    def status(self) -> Mapping[str, Any]:
        """Return its last run, pauses, waiting changes, tables and backfills."""
        return next(one for one in self._desk.status() if one["connection"] == self.name)

    def history(self, limit: int = 50) -> list[dict[str, Any]]:
        """Return what has happened to it, newest first."""
        return self._desk.events(self.name, limit)


class Changes(list["Review"]):
    """Changes, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [(one.id, one.status, one.summary, one.rule) for one in self]
        return grid(("id", "status", "change", "decided by"), rows)


def chosen(changes: Sequence[Review | str]) -> tuple[str, ...]:
    """Return the ids of changes, or ids as they are."""
    return tuple(one if isinstance(one, str) else one.id for one in changes)
