"""A person's answers to changes.

Switch what is read of a connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import Answer, ChangeView, LeadsTo, Length, Name, NameList, NameText, Verb


@dataclass(frozen=True)
class ApproveChangeRequest(ImmediateRequest):
    """Approve a change: the next plan, apply or sync carries it out."""

    change: Name
    """The change's id, c-..."""


@dataclass(frozen=True)
class RejectChangeRequest(ImmediateRequest):
    """Reject a change: it is not applied."""

    change: Name
    """The change's id, c-..."""


@dataclass(frozen=True)
class IgnoreChangeRequest(ImmediateRequest):
    """Ignore a change: it is not applied, and no notification is sent until it differs."""

    change: Name
    """The change's id, c-..."""


@dataclass(frozen=True)
class SnoozeChangeRequest(ImmediateRequest):
    """Hide an open change until a given time. Give exactly one of `duration` and `until`."""

    change: Name
    """The change's id, c-..."""
    duration: Annotated[str, Length(0, 10), LeadsTo("setting")] | None = None
    """The length of the snooze: `90m`, `4h`, `3d`, `2w`."""
    until: Annotated[str, Length(0, 40), LeadsTo("setting")] | None = None
    """The end of the snooze: `2026-12-01` or `2026-12-01T08:00`, UTC unless it has an offset."""


@dataclass(frozen=True)
class ReopenChangeRequest(ImmediateRequest):
    """Take back the answer to a change, or its snooze: it is open and waits for a person again."""

    change: Name
    """The change's id, c-..."""


@dataclass(frozen=True, kw_only=True)
class ChangesRequest(ImmediateRequest):
    """Base of requests about many changes: by id, or all that match the filters. Different filters are combined with
    AND, the values of one filter with OR."""

    ids: Annotated[tuple[Name, ...], Length(0, 10_000)] = ()
    """Full ids of the changes."""
    connection: Name | None = None
    """Only changes of this connection."""
    patterns: NameList = ()
    """Patterns of `schema.table.column`, or of kinds."""
    kinds: NameList = ()
    """Kinds such as column.added, or families such as column."""
    tables: NameList = ()
    """Patterns of `schema.table`."""
    view: ChangeView | None = None
    """Only changes of this view; null: only open changes."""
    search: NameText = ""
    """Only changes that this text or regular expression finds, as in the list of changes."""
    tag: NameText = ""
    """Only changes of connections with this tag."""
    assigned_to: NameText = ""
    """Only changes assigned to this person."""


@dataclass(frozen=True, kw_only=True)
class AssignChangesRequest(ChangesRequest):
    """Assign many changes to a person: by id, or all that match the filters. With `dry_run` the response is a
    preview."""

    assignee: Annotated[str, Length(0, 80), LeadsTo("name")] = ""
    """The person, such as the name of an API key; "" for nobody."""


@dataclass(frozen=True, kw_only=True)
class AnswerChangesRequest(ChangesRequest):
    """Give the same answer to many changes: by id, or to all open changes that match the filters. Different filters are
    combined with AND, the values of one filter with OR. With `dry_run` the response is a preview."""

    answer: Answer
    """The answer to each change."""
    hash: bool = False
    """Replicate the approved columns as salted SHA-256 hashes; then either all changes are answered or none."""


@dataclass(frozen=True, kw_only=True)
class SnoozeChangesRequest(ChangesRequest):
    """Hide many open changes until a given time: by id, or all that match the filters. Give exactly one of `duration`
    and `until`. With `dry_run` the response is a preview."""

    duration: Annotated[str, Length(0, 10), LeadsTo("setting")] | None = None
    """The length of the snooze: `90m`, `4h`, `3d`, `2w`."""
    until: Annotated[str, Length(0, 40), LeadsTo("setting")] | None = None
    """The end of the snooze: `2026-12-01` or `2026-12-01T08:00`, UTC unless it has an offset."""


@dataclass(frozen=True, kw_only=True)
class ReopenChangesRequest(ChangesRequest):
    """Take back the answers to many changes, or their snoozes: by id, or all that match the filters, such as those of
    the view `rejected`. With `dry_run` the response is a preview."""


@dataclass(frozen=True)
class AnswerPreview:
    """The effect of an answer."""

    lines: tuple[str, ...] = ()
    """The plan's lines about these changes."""
    steps: tuple[str, ...] = ()
    """The steps at the destination because of the answer."""


Path = Annotated[str, Length(1, 1000), LeadsTo("name")]


@dataclass(frozen=True)
class SwitchSelectionRequest(ImmediateRequest):
    """Select, deselect, hash or unhash schemas, tables and columns, all or none. The source is not opened. With
    `dry_run` the response shows the effect."""

    connection: Name
    """The connection."""
    verb: Verb
    """The action: on, off, hash or unhash."""
    objects: Annotated[tuple[Path, ...], Length(0, 10_000)] = ()
    """Paths of schemas, tables or columns."""
    matching: Annotated[tuple[Path, ...], Length(0, 1000)] = ()
    """Patterns of tables and columns: globs, or regular expressions after `re:`."""


SPECS = (
    ImmediateSpec(
        "approve_change",
        role="approver",
        route="POST /changes/{change}/approve",
        request=ApproveChangeRequest,
        result="instep.control.immediate.decisions:AnsweredChange",
        work="instep.control.immediate.decisions:Approval",
        audit="change.approved",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "reject_change",
        role="approver",
        route="POST /changes/{change}/reject",
        request=RejectChangeRequest,
        result="instep.control.immediate.decisions:AnsweredChange",
        work="instep.control.immediate.decisions:Rejection",
        audit="change.rejected",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "ignore_change",
        role="approver",
        route="POST /changes/{change}/ignore",
        request=IgnoreChangeRequest,
        result="instep.control.immediate.decisions:AnsweredChange",
        work="instep.control.immediate.decisions:Ignoring",
        audit="change.ignored",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "snooze_change",
        role="approver",
        route="POST /changes/{change}/snooze",
        request=SnoozeChangeRequest,
        result="instep.control.immediate.decisions:AnsweredChange",
        work="instep.control.immediate.decisions:Snoozing",
        audit="change.snoozed",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "reopen_change",
        role="approver",
        route="POST /changes/{change}/reopen",
        request=ReopenChangeRequest,
        result="instep.control.immediate.decisions:AnsweredChange",
        work="instep.control.immediate.decisions:Reopening",
        audit="change.reopened",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "answer_changes",
        role="approver",
        route="POST /changes/answers",
        request=AnswerChangesRequest,
        result="instep.control.immediate.decisions:ChangeAnswers",
        work="instep.control.immediate.decisions:AnsweringMany",
        audit="changes.{answer}",
        target="connection",
    ),
    ImmediateSpec(
        "snooze_changes",
        role="approver",
        route="POST /changes/snoozes",
        request=SnoozeChangesRequest,
        result="instep.control.immediate.decisions:ChangeAnswers",
        work="instep.control.immediate.decisions:SnoozingMany",
        audit="changes.snoozed",
        target="connection",
    ),
    ImmediateSpec(
        "reopen_changes",
        role="approver",
        route="POST /changes/reopenings",
        request=ReopenChangesRequest,
        result="instep.control.immediate.decisions:ChangeAnswers",
        work="instep.control.immediate.decisions:ReopeningMany",
        audit="changes.reopened",
        target="connection",
    ),
    ImmediateSpec(
        "assign_changes",
        role="operator",
        route="POST /changes/assignments",
        request=AssignChangesRequest,
        result="instep.control.immediate.decisions:ChangeAnswers",
        work="instep.control.immediate.decisions:AssigningMany",
        audit="changes.assigned",
        target="connection",
    ),
    ImmediateSpec(
        "switch_selection",
        role="approver",
        route="POST /connections/{connection}/selection",
        request=SwitchSelectionRequest,
        result="instep.control.immediate.decisions:SwitchedSelection",
        work="instep.control.immediate.decisions:SelectionSwitching",
        audit="connection.selection",
        target="connection",
        match="selection",
    ),
)
