"""Upgrade the connector of a source to another version, or take the last upgrade back.

Both versions are asked for their specification and their streams first. The preview has what differs: configuration,
types, what goes, how rows are written, states; and what that does to each connection and to the models behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.errors import InstepError
from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import LeadsTo, Length, SettingText


@dataclass(frozen=True)
class UpgradeSourceRequest(Request):
    """The version to use from now on, for all connections of the source."""

    to: SettingText = ""
    """The version; none: the newest one of the package index."""
    rollback: bool = False
    """Go back to the version before the last upgrade, with the states of that moment."""
    metadata: Annotated[str, Length(0, 50_000), LeadsTo("setting")] = ""
    """The metadata of the connector as text, in YAML or JSON: `releases.breakingChanges` of it counts, beside what the
    source's own file and the package have."""
    preview: bool = False
    """Show what would happen without changing anything."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rollback and self.to:
            raise InstepError("rollback goes to the previous version", hint="leave `to` out, or rollback")


SPEC = OperationSpec(
    "upgrade_source",
    role="admin",
    route="POST /connections/{connection}/upgrade-source",
    request=UpgradeSourceRequest,
    work="instep.plans.source_upgrade:UpgradeSource",
    job=JobPolicy(attempts=1, two_person=True, retry_command="instep source upgrade"),
)
