"""Enable scheduled detection again, and change its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import LeadsTo, Length, Name, NameText, Reason

OptionValue = bool | int | Annotated[str, Length(0, 1000)] | Annotated[tuple[Name, ...], Length(0, 1000)] | None


@dataclass(frozen=True)
class EnableDetectorRequest(ImmediateRequest):
    """Enable scheduled detection again, after it has switched itself off. Refused while the connection is paused: what
    it was off for is decided first."""

    connection: Name
    """The connection."""
    why: Reason = ""
    """The reason, for the audit log."""


@dataclass(frozen=True)
class SetDetectorOptionsRequest(ImmediateRequest):
    """Change options of scheduled detection, of the source as a whole or of tables. Refused for a connection of the
    project file."""

    connection: Name
    """The connection."""
    values: Annotated[Mapping[Name, OptionValue], Length(1, 100), LeadsTo("setting")]
    """The options by their long or short names; null takes one away."""
    table: NameText = ""
    """The pattern of the tables that they are of; "" for the source as a whole."""


SPECS = (
    ImmediateSpec(
        "enable_detector",
        role="operator",
        route="POST /connections/{connection}/detector/enable",
        request=EnableDetectorRequest,
        result="instep.control.immediate.detectors:EnabledDetector",
        work="instep.control.immediate.detectors:DetectorEnabling",
        audit="detector.enable",
        target="connection",
        match="detector",
    ),
    ImmediateSpec(
        "set_detector_options",
        role="approver",
        route="POST /connections/{connection}/detector/options",
        request=SetDetectorOptionsRequest,
        result="instep.control.immediate.detectors:SetDetector",
        work="instep.control.immediate.detectors:DetectorSetting",
        audit="detector.set",
        target="connection",
        match="detector",
    ),
)
