"""Whether the server can serve."""

from __future__ import annotations

from typing import Literal

from instep.api.wire.base import Said


class Health(Said):
    status: Literal["ok", "unavailable"]
    version: str = ""
    detail: str = ""
