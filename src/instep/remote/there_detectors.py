"""Scheduled detection at a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control.detector import Standing
from instep.control.detector_settings import patch
from instep.remote.client import Client, part
from instep.remote.records import record


@dataclass(frozen=True)
class DetectorsThere:
    client: Client

    def standing(self, connection: str) -> Standing:
        found = dict(self.client.get(f"/connections/{part(connection)}/detector"))
        disabled = found.pop("internal_disabled_detect_schema_changes")
        jobs = {"job": self._job(found.pop("current")), "last": self._job(found.pop("last"))}
        return record(Standing, {**found, **jobs, "internal_disabled": disabled})

    def _job(self, told: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The whole job of a detection."""
        return dict(self.client.get(f"/queue/{part(told['job'])}")) if told else None

    def enable(self, connection: str) -> bool:
        return bool(self.client.post(f"/connections/{part(connection)}/detector/enable", {})["changed"])

    def set(self, connection: str, options: Mapping[str, Any], table: str) -> None:
        path = f"/connections/{part(connection)}/settings"
        found, tag = self.client.read(path)
        self.client.patch(path, {"spec": patch(found["spec"], options, table)}, tag)
