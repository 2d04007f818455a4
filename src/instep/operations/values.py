"""Value types of requests: their bounds and what they may reference.

The closed lists of words that requests, queries and answers use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from instep.errors import InstepError

Leads = Literal["name", "setting", "consent", "reason", "parts", "spec"]
"""A `name` is looked up; a `setting` chooses among what the product does; a `consent` says what may be lost; a `reason`
is a text for people; `parts` have fields of their own; a `spec` is the document of an object."""


@dataclass(frozen=True)
class LeadsTo:
    """Possible effects of a value."""

    what: Leads


@dataclass(frozen=True)
class Length:
    """The least and the greatest length of a text, a list or a mapping."""

    least: int
    most: int

    def __get_pydantic_core_schema__(self, source: Any, inner: Any) -> Any:
        """Tell pydantic, which validates the requests that come over HTTP."""
        bounds = {"min_length": self.least, "max_length": self.most}
        return {**inner(source), **{name: value for name, value in bounds.items() if value}}

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value; "" for nothing."""
        if self.least <= len(value) <= self.most:
            return ""
        what = "characters" if isinstance(value, str) else "entries"
        return f"has {len(value):,} {what}, not {self.least:,} to {self.most:,}"


@dataclass(frozen=True)
class TextPattern:
    """The regular expression that a text matches."""

    text: str

    def __get_pydantic_core_schema__(self, source: Any, inner: Any) -> Any:
        """Tell pydantic, which validates the requests that come over HTTP."""
        return {**inner(source), "pattern": self.text}

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value; "" for nothing."""
        return "" if re.search(self.text, value) else f"does not match {self.text}"


@dataclass(frozen=True)
class NumberRange:
    """The least and the greatest number."""

    least: int
    most: int

    def __get_pydantic_core_schema__(self, source: Any, inner: Any) -> Any:
        """Tell pydantic, which validates the requests that come over HTTP."""
        return {**inner(source), "ge": self.least, "le": self.most}

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value; "" for nothing."""
        return "" if self.least <= value <= self.most else f"is {value:,}, not {self.least:,} to {self.most:,}"


@dataclass(frozen=True)
class ProjectOnly:
    """A value that no request over a server has: its answer holds rows, which do not pass through one."""


@dataclass(frozen=True)
class OwnUse:
    """A value that no request of a client has: the product's own jobs say it."""


Name = Annotated[str, Length(1, 200), LeadsTo("name")]
"""A name or an id."""
TableName = Name
"""An accepted table as `schema.table`."""
NameText = Annotated[str, Length(0, 1000), LeadsTo("name")]
"""A name, the beginning of an id, or a pattern; "" for none."""
NameList = Annotated[tuple[Name, ...], Length(0, 10_000), LeadsTo("name")]
"""Some names or ids."""
SettingText = Annotated[str, Length(0, 1000), LeadsTo("setting")]
"""A short text; "" for none."""
Reason = Annotated[str, Length(0, 1000), LeadsTo("reason")]
"""A text for people."""
ConsentList = Annotated[tuple[Name, ...], Length(0, 100), LeadsTo("consent")]
"""Names or patterns of what may be lost."""
ConsentIds = Annotated[tuple[Name, ...], Length(0, 10_000), LeadsTo("consent")]
"""Whole ids of what may be lost."""
Consent = Annotated[bool, LeadsTo("consent")]
"""True if something may be lost."""
Snapshot = Annotated[str, TextPattern(r"^-?[0-9]{1,20}$"), LeadsTo("setting")]
"""The id of a snapshot: a text, because its number is larger than some readers of JSON can hold."""
_PLAIN = (bool, int, float, datetime)
_TAKEN_FOR: dict[Any, Any] = {str: str, int: int, float: (int, float), tuple: (tuple, list), dict: Mapping}
"""Types of fields with bounds, and those whose values are taken for them."""


def check_bounds(record: Any) -> None:
    """Raise InstepError for a field of a record that is longer, shorter, larger or smaller than its type says, of
    another type, or none of its words."""
    kind: Any = type(record)
    for name, hint in _hints(kind).items():
        for problem in _problems(getattr(record, name), hint):
            raise InstepError(f"{name} {problem}", hint="`--help` and docs/reference/openapi.json list what is allowed")


@cache
def _hints(record: type[Any]) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _problems(value: Any, hint: Any) -> Iterator[str]:
    if isinstance(value, str) and _UNSTORABLE.search(value):
        yield "is not UTF-8 text"
        return
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base = _base(arguments[0])
        if base in _TAKEN_FOR and not isinstance(value, _TAKEN_FOR[base]):
            yield f"is of type {type(value).__name__}, not {base.__name__}"
            return
        bounds = {type(one): one for one in hint.__metadata__ if hasattr(one, "problem")}  # the last one of each counts
        yield from filter(None, (bound.problem(value) for bound in bounds.values()))
        yield from _problems(value, arguments[0])
    elif origin is Literal:
        if value not in arguments:
            yield f"is {value!r}, not one of {', '.join(map(str, arguments))}"
    elif origin in (Union, UnionType):
        yield from (problem for arm in arguments if isinstance(value, _base(arm)) for problem in _problems(value, arm))
    elif origin is tuple:
        yield from (one for part in value for one in _problems(part, arguments[0]))
    elif isinstance(value, Mapping) and arguments:
        for pair in value.items():
            for part, kind in zip(pair, arguments, strict=True):
                yield from _problems(part, kind)


def _base(hint: Any) -> Any:
    """Return the class of what a type allows."""
    origin = get_origin(hint)
    if origin is Literal:
        return str
    return _base(get_args(hint)[0]) if origin is Annotated else origin or hint


def leads_to(annotation: Any) -> Leads:
    """Return what a field of this type may lead to; TypeError for a text that does not say so."""
    marks = set(_marks(annotation))
    if len(marks) != 1:
        raise TypeError(f"{annotation} does not say what it leads to")
    return marks.pop()


def _marks(annotation: Any) -> Iterator[Leads]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        marks = [argument.what for argument in arguments[1:] if isinstance(argument, LeadsTo)]
        yield from marks[-1:] or _marks(arguments[0])
    elif origin in (Union, UnionType):
        yield from (mark for one in arguments if one is not NoneType for mark in _marks(one))
    elif origin is tuple:
        yield from _marks(arguments[0])
    elif is_dataclass(annotation):
        yield "parts"
    elif origin is Literal or annotation in _PLAIN:
        yield "setting"


RunKind = Literal[
    "sync", "detect", "apply", "backfill", "undo", "replay", "discard", "restore", "repair", "maintain", "delete"
]
EntryStatus = Literal["held", "replayed", "superseded", "discarded"]
"""The state of a quarantined value."""
RunStatus = Literal["running", "done", "failed", "partial", "blocked", "cancelled"]
Answer = Literal["approved", "rejected", "ignored"]
"""A person's answer to a change. An ignored one is rejected, and no notice of it is sent again."""
ReviewStatus = Literal["open", "approved", "rejected", "applied", "obsolete"]
TableOutcomeStatus = Literal["done", "failed", "paused", "missing", "unchanged"]
"""The outcome of one run for one table."""
EXISTING: tuple[ReviewStatus, ...] = ("open", "approved", "rejected")
"""The statuses of a change that still differs from what is accepted."""
ChangeView = Literal[
    "review", "blocked", "snoozed", "pending", "applied", "auto_applied", "rejected", "ignored", "obsolete"
]
"""Changes by what is to be done about them. Those for `review` wait for a person, of which the `blocked` ones pause
their table or connection; `pending` ones are accepted and not applied yet; the policy alone has `auto_applied` and
`ignored` its own."""
BackfillStatus = Literal["requested", "running", "done", "cancelled"]
DeliveryStatus = Literal["waiting", "sent", "dead"]
Side = Literal["source", "accepted", "destination"]
"""Whose schema: the source's, the accepted one, or the destination's."""
Verb = Literal["on", "off", "hash", "unhash"]
"""The action on an object of a selection."""
RolloutStatus = Literal["ready", "running", "stopped", "halted", "partial", "done"]
MemberStatus = Literal["waiting", "running", "done", "already", "failed", "blocked", "skipped", "rolled_back"]
"""The progress of a connection of a rollout."""
JobStatus = Literal["queued", "running", "done", "failed", "dead", "cancelled"]
ImportedProduct = Literal["airbyte", "fivetran"]
"""Products whose configuration can be imported."""
ObjectKind = Literal["source", "destination", "connection", "policy", "channel"]
"""The kinds of managed objects: the sections of a project that have names."""


_DURATIONS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "m"))


def duration_text(seconds: float) -> str:
    """Return a duration as a project file says it, in its largest whole unit: 90 as `90s`, 1800 as `30m`."""
    length, unit = next((duration for duration in _DURATIONS if seconds and seconds % duration[0] == 0), (1.0, "s"))
    return f"{seconds / length:g}{unit}"
