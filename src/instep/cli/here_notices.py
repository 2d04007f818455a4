"""Channels and deliveries at the project of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.store.outbox import Attempt, Delivery


class NoticesHere:
    def __init__(self, app: App) -> None:
        self.app = app

    def test(self, channel: str) -> int:
        from instep.notify.trial import try_channel
        from instep.store.store import utc_now

        return try_channel(self.app.channel(channel), channel, utc_now())

    def log(self, channel: str | None, limit: int) -> Sequence[Delivery]:
        from instep.notify.hooks import PREFIX

        outbox = self.app.store.outbox
        if channel and not channel.startswith(PREFIX) and not outbox.knows(channel):
            self.app.project.channel(channel)
        return outbox.log(channel, limit=limit)

    def attempts(self, delivery: int) -> Sequence[Attempt]:
        return self.app.store.outbox.attempts(self.app.store.outbox.get(delivery).number)
