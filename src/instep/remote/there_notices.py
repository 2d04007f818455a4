"""Channels and deliveries at a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from instep.remote.client import Client, part
from instep.remote.records import record
from instep.store.outbox import Attempt, Delivery


@dataclass(frozen=True)
class NoticesThere:
    client: Client

    def test(self, channel: str) -> int:
        return int(self.client.post(f"/channels/{part(channel)}/test", {})["code"])

    def log(self, channel: str | None, limit: int) -> Sequence[Delivery]:
        found = self.client.pages("/deliveries", limit, channel=channel)
        return [record(Delivery, {"batch": "", "lease_until": None, **one}) for one in found]

    def attempts(self, delivery: int) -> Sequence[Attempt]:
        found = self.client.get(f"/deliveries/{delivery}")["attempts"]
        return [record(Attempt, {"delivery": delivery, **one}) for one in found]
