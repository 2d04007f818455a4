"""Cancel and retry jobs, cancel backfills, pause and resume, and set up scheduled detection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import LeadsTo, Length, Name, NameList, NameText, Reason, TableName


@dataclass(frozen=True)
class CancelJobRequest(ImmediateRequest):
    """Cancel a job: at once if it is queued, otherwise when its worker notices."""

    job: Name
    """The job's id, j-..., or a unique prefix of it."""


@dataclass(frozen=True)
class RetryJobRequest(ImmediateRequest):
    """Put a job that failed, died or was cancelled back into the queue. Requires the same role as requesting the job.
    Jobs that need two people, and deletions of connections, can be retried only by the person who requested them."""

    job: Name
    """The job's id, j-..., or a unique prefix of it."""


@dataclass(frozen=True)
class CancelBackfillRequest(ImmediateRequest):
    """Cancel pending and running backfills of a table or of some of its columns. A running backfill stops at its next
    file; filled values stay."""

    connection: Name
    """The connection."""
    table: TableName
    """The accepted table."""
    columns: NameList = ()
    """Only backfills of these columns; none: all backfills of the table."""


TableRef = Annotated[tuple[Annotated[str, Length(0, 200), LeadsTo("name")], ...], Length(2, 2)]
"""Schema and name of an accepted table; the schema is "" where the source has none."""


@dataclass(frozen=True)
class PauseRequest(ImmediateRequest):
    """Pause a connection, or one of its tables, until it is resumed. Pausing twice changes nothing."""

    connection: Name
    """The connection."""
    reason: Annotated[str, Length(1, 500), LeadsTo("reason")]
    """Reason shown in `status`."""
    table: TableRef | None = None
    """Only this table: its schema and its name."""


@dataclass(frozen=True)
class ResumeRequest(ImmediateRequest):
    """Resume a connection, or one of its tables. Refused while the change that paused it is open."""

    connection: Name
    """The connection."""
    table: TableRef | None = None
    """Only this table: its schema and its name."""


OptionValue = bool | int | Annotated[str, Length(0, 1000)] | Annotated[tuple[Name, ...], Length(0, 1000)] | None


@dataclass(frozen=True)
class EnableDetectorRequest(ImmediateRequest):
    """Enable scheduled detection after it has disabled itself. Refused while the connection is paused: decide the
    change that caused it first."""

    connection: Name
    """The connection."""
    why: Reason = ""
    """The reason, for the audit log."""


@dataclass(frozen=True)
class SetDetectorOptionsRequest(ImmediateRequest):
    """Change options of scheduled detection, for the whole source or for tables. Refused for connections of the project
    file."""

    connection: Name
    """The connection."""
    values: Annotated[Mapping[Name, OptionValue], Length(1, 100), LeadsTo("setting")]
    """Options by their long or short names; null removes one."""
    table: NameText = ""
    """Pattern of the tables; "" for the whole source."""


SPECS = (
    ImmediateSpec(
        "cancel_job",
        role="operator",
        route="POST /queue/{job}/cancel",
        request=CancelJobRequest,
        result="instep.control.immediate.work:ChangedJob",
        work="instep.control.immediate.work:JobCancellation",
        audit="job.cancel",
        target="job",
    ),
    ImmediateSpec(
        "retry_job",
        role="operator",  # and more by what the job does: see `server.immediate_routes`
        route="POST /queue/{job}/retry",
        request=RetryJobRequest,
        result="instep.control.immediate.work:ChangedJob",
        work="instep.control.immediate.work:JobRetry",
        audit="job.retry",
        target="job",
    ),
    ImmediateSpec(
        "cancel_backfill",
        role="operator",
        route="POST /connections/{connection}/backfills/cancel",
        request=CancelBackfillRequest,
        result="instep.control.backfills:Cancelled",
        work="instep.control.immediate.work:BackfillCancellation",
        audit="connection.backfill_cancel",
        target="connection",
    ),
    ImmediateSpec(
        "pause",
        role="operator",
        route="POST /connections/{connection}/pause",
        request=PauseRequest,
        result="instep.control.immediate.work:PauseResult",
        work="instep.control.immediate.work:Pausing",
        audit="connection.pause",
        target="connection",
        match="connection",
    ),
    ImmediateSpec(
        "resume",
        role="operator",
        route="POST /connections/{connection}/resume",
        request=ResumeRequest,
        result="instep.control.immediate.work:PauseResult",
        work="instep.control.immediate.work:Resuming",
        audit="connection.resume",
        target="connection",
        match="connection",
    ),
    ImmediateSpec(
        "enable_detector",
        role="operator",
        route="POST /connections/{connection}/detector/enable",
        request=EnableDetectorRequest,
        result="instep.control.immediate.work:EnabledDetector",
        work="instep.control.immediate.work:DetectorEnabling",
        audit="detector.enable",
        target="connection",
        match="detector",
    ),
    ImmediateSpec(
        "set_detector_options",
        role="approver",
        route="POST /connections/{connection}/detector/options",
        request=SetDetectorOptionsRequest,
        result="instep.control.immediate.work:SetDetector",
        work="instep.control.immediate.work:DetectorSetting",
        audit="detector.set",
        target="connection",
        match="detector",
    ),
)
