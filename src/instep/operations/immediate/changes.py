"""A person's answers to changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import Answer
from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import LeadsTo, Length, Name, NameList


@dataclass(frozen=True)
class ApproveChangeRequest(ImmediateRequest):
    """Approve a change: the next plan, apply or sync carries it out."""

    change: Name
    """The change's id, c-..."""


@dataclass(frozen=True)
class RejectChangeRequest(ImmediateRequest):
    """Reject a change: it stays out."""

    change: Name
    """The change's id, c-..."""


@dataclass(frozen=True)
class IgnoreChangeRequest(ImmediateRequest):
    """Ignore a change: it is not applied, and no notice of it is sent until it differs."""

    change: Name
    """The change's id, c-..."""


@dataclass(frozen=True)
class SnoozeChangeRequest(ImmediateRequest):
    """Leave an open change alone: it is not listed as waiting before then. Give one of `duration` and `until`."""

    change: Name
    """The change's id, c-..."""
    duration: Annotated[str, Length(0, 10), LeadsTo("setting")] | None = None
    """For this long: `90m`, `4h`, `3d`, `2w`."""
    until: Annotated[str, Length(0, 40), LeadsTo("setting")] | None = None
    """Until this time: `2026-12-01` or `2026-12-01T08:00`, UTC unless it has an offset."""


@dataclass(frozen=True)
class AnswerChangesRequest(ImmediateRequest):
    """Give one answer to many changes: by id, or the open ones that fit. Filters of different sorts must all fit, of
    one sort any. With `dry_run` a preview."""

    answer: Answer
    """The answer to each of them."""
    hash: bool = False
    """Let the columns of what is approved in as salted SHA-256; then all are answered, or none."""
    ids: Annotated[tuple[Name, ...], Length(0, 10_000)] = ()
    """These changes, by their whole ids."""
    connection: Name | None = None
    """Filters find changes of this connection only."""
    patterns: NameList = ()
    """Patterns of `schema.table.column`, or of kinds."""
    kinds: NameList = ()
    """Kinds such as column.added, or families such as column."""
    tables: NameList = ()
    """Patterns of `schema.table`."""


@dataclass(frozen=True)
class AnswerOutlook:
    """What an answer leads to."""

    lines: tuple[str, ...] = ()
    """The plan's lines about these changes."""
    steps: tuple[str, ...] = ()
    """What is done at the destination because of the answer."""


SPECS = (
    ImmediateSpec(
        "approve_change",
        role="approver",
        route="POST /changes/{change}/approve",
        request=ApproveChangeRequest,
        result="instep.control.immediate.changes:AnsweredChange",
        work="instep.control.immediate.changes:Approval",
        audit="change.approved",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "reject_change",
        role="approver",
        route="POST /changes/{change}/reject",
        request=RejectChangeRequest,
        result="instep.control.immediate.changes:AnsweredChange",
        work="instep.control.immediate.changes:Rejection",
        audit="change.rejected",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "ignore_change",
        role="approver",
        route="POST /changes/{change}/ignore",
        request=IgnoreChangeRequest,
        result="instep.control.immediate.changes:AnsweredChange",
        work="instep.control.immediate.changes:Ignoring",
        audit="change.ignored",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "snooze_change",
        role="approver",
        route="POST /changes/{change}/snooze",
        request=SnoozeChangeRequest,
        result="instep.control.immediate.changes:AnsweredChange",
        work="instep.control.immediate.changes:Snoozing",
        audit="change.snoozed",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "answer_changes",
        role="approver",
        route="POST /changes/answers",
        request=AnswerChangesRequest,
        result="instep.control.immediate.changes:ChangeAnswers",
        work="instep.control.immediate.changes:AnsweringMany",
        audit="changes.{answer}",
        target="connection",
    ),
)
