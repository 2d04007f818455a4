"""Scheduled detection at the project of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.control.detector import Standing


class DetectorsHere:
    def __init__(self, app: App) -> None:
        self.app = app

    def standing(self, connection: str) -> Standing:
        from instep.control.detector import standing

        return standing(self.app.store, self.app.project, connection)

    def enable(self, connection: str) -> bool:
        from instep.bootstrap import user
        from instep.control.detector import switch_on

        return switch_on(self.app.store, connection, user())

    def set(self, connection: str, options: Mapping[str, Any], table: str) -> None:
        from instep.bootstrap import user
        from instep.control.detector_settings import patch
        from instep.control.objects import merged

        spec = self.app.objects.get("connection", connection).spec
        self.app.objects.put("connection", connection, merged(spec, patch(spec, options, table)), who=user())
