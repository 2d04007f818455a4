"""Documents of what has happened."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from instep.api.wire.base import Said


class EventOut(Said):
    number: int
    connection: str
    at: datetime
    type: str
    data: dict[str, Any]
