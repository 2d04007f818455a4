"""Results of calls: records that a notebook shows as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from instep.errors import InstepError, one_line

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from instep.model import Review, TableRun
    from instep.operations.queries.work import EstimatedBackfill
    from instep.sync.progress import SyncReport

T = TypeVar("T")
SHOWN = 100
"""Rows that a notebook shows of one result."""
_PRINTED = 10
"""Rows that a terminal shows of one result."""
_NUMBERS = ("read", "inserted", "updated", "deleted", "invalid_values")


def grid(columns: Sequence[str], rows: Sequence[Sequence[object]], total: int | None = None) -> str:
    """Return a table in HTML; every text is escaped. `total`: how many rows there are, if `rows` are the first ones."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(one)}</td>' for one in row)}</tr>" for row in rows[:SHOWN])
    left = (len(rows) if total is None else total) - SHOWN
    more = f"<p>and {left:,} more rows</p>" if left > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    if value is None:
        return "<i>NULL</i>"
    if isinstance(value, Mapping):
        return grid(("", "value"), list(value.items())) if value else ""
    if isinstance(value, tuple | list):
        if value and all(isinstance(item, Mapping) for item in value):
            return Records(value)._repr_html_()
        return "<br>".join(_cell(item) for item in value)
    return escape(str(value))


def preformatted(lines: Iterable[str]) -> str:
    """Return lines in HTML, in a font of fixed width."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


class Records(list[T], Generic[T]):
    """A list of records of one kind, which a notebook shows as a table.

    Example:
        for verdict in shop.verify():
            print(verdict.table, verdict.equal)
    """

    def __init__(self, records: Iterable[T] = (), columns: Mapping[str, Callable[[T], object]] | None = None) -> None:
        """Take records; `columns` has, for each column of the table, its value of a record. Without it, all fields
        or keys are columns."""
        super().__init__(records)
        self._columns = columns

    def __reduce__(self) -> tuple[object, ...]:
        return Records, (list(self),)  # its columns are functions, which stay in their process

    def _repr_html_(self) -> str:
        if self._columns is not None:
            return grid([*self._columns], [[of(one) for of in self._columns.values()] for one in self])
        rows = [_as_dict(one) for one in self]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return grid(names, [[row.get(name) for name in names] for row in rows])


class Changes(Records["Review"]):
    """Schema changes with their decisions."""

    def __init__(self, changes: Iterable[Review] = ()) -> None:
        super().__init__(
            changes,
            {
                "id": lambda review: review.id,
                "status": lambda review: review.status,
                "change": lambda review: review.summary,
                "decided by": lambda review: review.rule,
            },
        )

    def __reduce__(self) -> tuple[object, ...]:
        return Changes, (list(self),)


class Document(dict[str, Any]):
    """A result as JSON has it, which a notebook shows as a table of its keys and values."""

    def _repr_html_(self) -> str:
        return grid(("", "value"), list(self.items()))


def _as_dict(record: object) -> Mapping[str, object]:
    if isinstance(record, Mapping):
        return record
    if is_dataclass(record):
        return {item.name: getattr(record, item.name) for item in fields(record) if item.repr}
    return {"value": record}


@dataclass(frozen=True)
class SyncResult:
    """The outcome of one sync or backfill.

    A table that fails leaves the others alone, so that a call returns where some tables have failed.

    Example:
        result = shop.sync()
        result.raise_for_failure()
        print({table.table: table.inserted for table in result.tables})
    """

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
    """Seconds from the begin of the run to its end."""
    engine: str = ""
    """Engine that has read the rows: `spark`, with where it runs, or `local`."""

    @classmethod
    def of(cls, report: SyncReport) -> SyncResult:
        """Return the result that a report describes."""
        engine = str(report.engine or "")
        return cls(report.run, report.status, report.tables, report.notes, report.waiting, report.seconds, engine)

    @property
    def ok(self) -> bool:
        """Return whether every table was loaded. Changes may wait for a decision all the same: see `waiting`."""
        return self.status == "done"

    @property
    def failed(self) -> Mapping[str, str]:
        """Return the errors of tables that were not loaded, by `schema.table`."""
        return {_path(table.table): table.error for table in self.tables if table.status != "done" and table.error}

    def raise_for_failure(self) -> SyncResult:
        """Return the result itself.

        Raises InstepError with the errors of its tables if one of them was not loaded.
        """
        if self.ok:
            return self
        lines = "\n".join(f"{table}: {error}" for table, error in self.failed.items())
        raise InstepError(f"run {self.run} is {self.status}\n{lines}", hint="solve these problems, then sync again")

    def _repr_html_(self) -> str:
        rows = [
            (_path(table.table), table.mode, *(getattr(table, name) for name in _NUMBERS), table.status, table.error)
            for table in self.tables
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
class Detection:
    """The schema changes that a detection has found, evaluated against the policy."""

    changes: Changes
    """Every change that differs from what is accepted, whatever was decided about it."""
    pending: bool
    """True if a change waits for a person, or for the next `apply` or sync."""
    counts: Mapping[str, Mapping[str, int]]
    """Numbers of new, deleted, updated and unchanged schemas, tables and columns."""
    missing: Sequence[str] = ()
    """A sentence for each pattern of `include` that no table of the source fits."""

    def _repr_html_(self) -> str:
        missing = "".join(f"<p>{escape(one)}</p>" for one in self.missing)
        return f"{self.changes._repr_html_()}{missing}"


@dataclass(frozen=True)
class BackfillEstimate:
    """The cost of a backfill, found without opening the source or a file."""

    table: str
    """The table, as `schema.table`."""
    columns: Sequence[str]
    """The columns to fill; none: the whole table."""
    rows: int
    """Rows to read, by the source's statistics as of the last detection."""
    read_bytes: int
    """Bytes to read, by the same statistics."""
    files: int
    """Data files to write again; exact."""
    rewritten_bytes: int
    """Bytes of these files; exact."""
    why_not: str = ""
    """Reason why the columns cannot be filled; "" if they can."""
    waits: str = ""
    """Reason why a sync would not begin it by itself now; "" if it would."""

    @classmethod
    def of(cls, estimate: EstimatedBackfill) -> BackfillEstimate:
        """Return the estimate that the planner has made."""
        sizes = estimate.rows, estimate.read, estimate.files, estimate.rewritten
        return cls(estimate.table, estimate.columns, *sizes, why_not=estimate.why_not, waits=estimate.waits)

    def _repr_html_(self) -> str:
        return grid(("", "value"), list(_as_dict(self).items()))


@dataclass(frozen=True)
class QueryResult:
    """The rows of a query, in memory.

    Example:
        totals = project.query("select id, total from shop.orders")
        totals.to_pandas().plot(x="id", y="total")
    """

    table: pa.Table = field(repr=False)
    """The rows as Arrow has them."""
    _spark: SparkSession | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        shown = [str(row) for row in QueryResult(self.table.slice(0, _PRINTED)).rows]
        more = [f"... {len(self) - _PRINTED:,} more rows"] if len(self) > _PRINTED else []
        return "\n".join([f"<{len(self):,} rows of {one_line(', '.join(self.columns))}>", *shown, *more])

    def __reduce__(self) -> tuple[object, ...]:
        return QueryResult, (self.table,)  # a session stays in its process

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, in order."""
        return list(self.table.column_names)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of Python values."""
        return list(zip(*(column.to_pylist() for column in self.table.columns), strict=True))

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame."""
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows as a Spark DataFrame.

        `spark`: the session, classic or Spark Connect; without it, the one that the project was opened with, else the
        active one. Times of day become text. Raises SetupError where
        there is no session.
        """
        from instep.spark.provided_session import chosen_session
        from instep.spark.types import schema_of

        rows = _for_spark(self.table)
        return chosen_session(spark, self._spark).createDataFrame(rows, schema_of(rows.schema))

    def _repr_html_(self) -> str:
        first = QueryResult(self.table.slice(0, SHOWN))
        return grid(self.columns, first.rows, len(self))


def _for_spark(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    def converted(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_time(column.type):
            texts = [None if one is None else str(one) for one in column.to_pylist()]
            return pa.chunked_array([pa.array(texts, pa.string())])
        return column.cast(pa.decimal128(20, 0)) if column.type == pa.uint64() else column

    return pa.Table.from_arrays([converted(one) for one in table.columns], names=table.column_names)
