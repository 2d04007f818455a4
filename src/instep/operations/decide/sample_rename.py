"""Show sampled values of the two columns of a suspected rename side by side, as evidence for a person.

Values are texts, by key where the table has one. Hashed columns and columns that look personal are not shown. The
job's result has values of rows: only keys that may ask for this are given it, it is sealed with the server's master
keys, and it is deleted an hour after the job has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import Name

SHOWN = 20
"""Pairs of values that are shown at most."""


@dataclass(frozen=True)
class SampleRenameRequest(Request):
    """The suspected rename to look at."""

    change: Name
    """The change's id, c-..."""


@dataclass(frozen=True)
class ValuePair:
    """A value of the old column at the destination and of the new one at the source; null for NULL."""

    key: tuple[str, ...] = field(repr=False)
    """The row's key; empty where values were compared without one."""
    old: str | None = field(repr=False)
    new: str | None = field(repr=False)
    same: bool


@dataclass(frozen=True)
class RenameSample:
    """Sampled values of both columns; those that differ come first."""

    change: str
    old: str
    """`schema.table.column` as it was accepted."""
    new: str
    """`schema.table.column` at the source."""
    key: tuple[str, ...]
    """The key's columns; empty where values were compared without one."""
    compared: int
    """Rows in which one of the two has a value."""
    same: int
    """Rows among them with equal values."""
    pairs: tuple[ValuePair, ...] = field(repr=False)
    note: str = ""
    """Reason why no values are shown; "" if some are."""


SPEC = OperationSpec(
    "sample_rename",
    role="operator",
    route="POST /connections/{connection}/changes/sample-rename",
    request=SampleRenameRequest,
    result="instep.operations.decide.sample_rename:RenameSample",
    work="instep.sync.operations.sample_rename:SampleRename",
    job=JobPolicy(attempts=1, reads_catalog=True, shows_values=True),
)
