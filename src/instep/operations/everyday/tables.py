"""List the tables at the destination with their sizes, last runs and what blocks them.

The job's result has `tables`, for one `table` also `columns`, and `notes` on tables that could not be inspected. Rows
and bytes come from the destination's metadata; no row is read. Previews of rows are available only where the project
is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import NameText, NumberRange, ProjectOnly

MOST_ROWS = 100
"""Rows that a preview shows at most."""


@dataclass(frozen=True)
class TablesRequest(Request):
    """Tables to list, and the number of rows to preview."""

    table: NameText = ""
    """Only this table (`schema.table`), with its columns; "": all tables."""
    preview: Annotated[int, NumberRange(0, MOST_ROWS), ProjectOnly()] = 0
    """Number of rows of the table to preview; only in the project."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preview and not self.table:
            raise ValueError("name the `table` whose first rows are shown")


@dataclass(frozen=True)
class LastTableRun:
    """The last run that had the table."""

    run: str
    kind: str
    """Kind of the run: `sync`, `backfill`, `restore` and others."""
    status: str
    """Result for the table: `done`, `unchanged`, `failed`, `paused` or `missing`."""
    at: datetime | None
    """End of the run, or its start if it has not ended."""


@dataclass(frozen=True)
class TableSummary:
    """One table of a connection, as it stands at the destination."""

    table: str
    """`schema.table` by its accepted name."""
    source: str | None
    """`schema.table` at the source as of the last detection; None: it is not there."""
    destination: str | None
    """`namespace.table` at the destination; None: it has no name there yet."""
    mode: str | None
    """Load mode; None: not loaded."""
    history: bool
    """True if every version of its rows is kept (SCD2)."""
    key: tuple[str, ...]
    rows: int | None
    """Rows that stand there, soft-deleted ones and earlier versions included; None: it was never loaded."""
    bytes: int | None
    """None: it was never loaded, or the destination does not tell."""
    columns: int
    """Columns at the destination, without system columns."""
    last_run: LastTableRun | None
    quarantined: int | None
    """Values and rows in quarantine; None: it could not be looked at."""
    paused: str | None
    """Reason of the table's or the connection's pause; None: not paused."""
    error: str | None
    """Error of the last run for this table, or of its settings."""
    backfills: tuple[str, ...]
    """Columns whose backfill is pending; `*`: that of the whole table."""
    note: str = ""
    """Further remarks, with the next command."""


ColumnHandling = Literal["read", "hashed", "off", "missing", "retained", "new", "other"]
"""`hashed`: read, and hashed on its way; `off`: not read; `missing`: not at the source any more, and its removal is not
accepted; `retained`: kept after its removal; `new`: only at the source, and not accepted; `other`: only at the
destination."""


@dataclass(frozen=True)
class TableColumn:
    """One column of a table."""

    column: str
    """Accepted name, or the name at the source or destination if it is not accepted."""
    destination: str | None
    """Name at the destination; None: it is not there."""
    source_type: str | None
    """The source's own type; None: it is not there."""
    destination_type: str | None
    nullable: bool
    """True if it may be NULL at the destination, or at the source if it is only there."""
    key: int
    """Position in the key, from 1; 0: not in the key."""
    status: ColumnHandling
    """The handling of the column: see `ColumnHandling`."""
    since: datetime | None
    """Time when it was first seen; None: not recorded."""


@dataclass(frozen=True)
class TablePreview:
    """The first rows of a table, in no order, with their values as the destination has them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...] = field(repr=False)
    arrow: Any = field(default=None, repr=False, compare=False)
    """The same rows as Arrow has them."""


@dataclass(frozen=True)
class TablesResult:
    """The tables by name; of one table its columns, and its first rows where they were asked for."""

    connection: str
    tables: tuple[TableSummary, ...]
    columns: tuple[TableColumn, ...] = ()
    notes: tuple[str, ...] = ()
    preview: TablePreview | None = None


SPEC = OperationSpec(
    "tables",
    role="operator",
    route="POST /connections/{connection}/tables",
    request=TablesRequest,
    result="instep.operations.everyday.tables:TablesResult",
    work="instep.sync.operations.tables:Tables",
)
