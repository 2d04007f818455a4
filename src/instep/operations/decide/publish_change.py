"""Publish a change that was previewed: approve it, apply exactly the steps of its preview, and read its new values.

Refused if the steps, or a table that they touch, are not as they were in the preview. `allow` names the objects that
may be dropped. With four_eyes a destructive change takes two people: one approves it, another one publishes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import ConsentList, LeadsTo, Length, Name


@dataclass(frozen=True)
class PublishChangeRequest(Request):
    """The change, and the preview that was shown of it."""

    change: Name
    """The change's id, c-..."""
    fingerprint: Annotated[str, Length(1, 64), LeadsTo("setting")]
    """The fingerprint that its preview has answered."""
    allow: ConsentList = ()
    """Patterns of objects that may be dropped."""


SPEC = OperationSpec(
    "publish_change",
    role="approver",
    route="POST /connections/{connection}/changes/publish",
    request=PublishChangeRequest,
    result="instep.plans.publish_change:PublishedChange",
    work="instep.plans.publish_change:PublishChange",
    job=JobPolicy(attempts=1, two_person=True, retry_command="instep preview --publish"),
)
