"""How long the store keeps what is only worth looking at for a while."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from instep.project.values import Seconds, Section

_DAY = 86_400.0
Kept = Annotated[Seconds, Field(ge=_DAY)]


class RetentionSection(Section):
    """Of `runs` with their tables, `events` that are no history, `deliveries` of notices, and `jobs`: since they
    ended; of `rollouts` since they were last touched. At least a day."""

    runs: Kept = 90 * _DAY
    events: Kept = 90 * _DAY
    deliveries: Kept = 90 * _DAY
    jobs: Kept = 30 * _DAY
    rollouts: Kept = 90 * _DAY

    def kept(self, what: str) -> timedelta:
        return timedelta(seconds=float(getattr(self, what)))
