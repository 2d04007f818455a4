"""What calls answer: records that a notebook shows as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.model import TableRun
    from instep.sync.progress import Report

_NUMBERS = ("read", "inserted", "updated", "deleted", "misfits")


def grid(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in HTML; every text is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(one)}</td>' for one in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return "<i>NULL</i>" if value is None else escape(str(value))


@dataclass(frozen=True)
class SyncResult:
    """What one sync or backfill has done."""

    run: str
    """The id of the run."""
    status: str
    """`done`; `partial` where some tables have failed; `failed`."""
    tables: Sequence[TableRun]
    """One record a table: status, rows read, inserted, updated and deleted, values in quarantine, error."""
    notes: Sequence[str] = ()
    """Sentences for people."""
    waiting: Sequence[str] = ()
    """The ids of the changes that wait for a decision."""
    seconds: float = 0.0

    @classmethod
    def of(cls, report: Report) -> SyncResult:
        """Return the result that a report tells."""
        return cls(report.run, report.status, report.tables, report.notes, report.waiting, report.seconds)

    @property
    def ok(self) -> bool:
        """Whether every table was loaded. Changes may wait for a decision all the same: see `waiting`."""
        return self.status == "done"

    @property
    def failed(self) -> Mapping[str, str]:
        """The errors of tables that were not loaded, by `schema.table`."""
        return {_path(one.table): one.error for one in self.tables if one.status != "done" and one.error}

    def raise_for_failure(self) -> SyncResult:
        """Return itself; InstepError with the errors of its tables if one of them was not loaded."""
        if self.ok:
            return self
        lines = "\n".join(f"{table}: {error}" for table, error in self.failed.items())
        raise InstepError(f"run {self.run} is {self.status}\n{lines}", hint="mend what is named, then sync again")

    def _repr_html_(self) -> str:
        rows = [
            (_path(one.table), one.mode, *(getattr(one, name) for name in _NUMBERS), one.status, one.error)
            for one in self.tables
        ]
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        waiting = f"<p>waiting for a decision: {escape(', '.join(self.waiting))}</p>" if self.waiting else ""
        names = ("table", "mode", "read", "inserted", "updated", "deleted", "quarantined", "status", "error")
        return (
            f"<p>run {escape(self.run)}: <b>{escape(self.status)}</b> in {self.seconds:.1f} s</p>"
            f"{grid(names, rows)}{f'<ul>{notes}</ul>' if notes else ''}{waiting}"
        )


def _path(table: tuple[str, str]) -> str:
    return ".".join(filter(None, table))


@dataclass(frozen=True)
class QueryResult:
    """The rows of a query."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]] = field(repr=False)

    def to_arrow(self) -> pa.Table:
        """Return them as an Arrow table; types are those of the values."""
        import pyarrow as pa

        values = list(zip(*self.rows, strict=True)) if self.rows else [()] * len(self.columns)
        return pa.table([pa.array(list(column)) for column in values], names=list(self.columns))

    def to_pandas(self) -> Any:
        """Return them as a pandas DataFrame; pandas has to be installed."""
        return self.to_arrow().to_pandas()

    def _repr_html_(self) -> str:
        more = f"<p>and {len(self.rows) - 100:,} more rows</p>" if len(self.rows) > 100 else ""
        return grid(self.columns, self.rows[:100]) + more
