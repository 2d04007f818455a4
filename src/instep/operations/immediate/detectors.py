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
