"""Who calls, by the API keys of the server, and how often a key may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from instep.api.compat.ports import Allowance, Caller, Role
from instep.api.rates import Rates
from instep.control.keys import authenticate
from instep.store.store import Store


@dataclass(frozen=True)
class StoredKeys:
    """Keys as the store has them."""

    store: Store

    def caller(self, key: str | None, secret: str) -> Caller | None:
        found = authenticate(self.store, secret, key)
        if found is None:
            return None
        return Caller(f"{found.name} ({found.id})", cast(Role, found.role), frozenset(found.groups), found.id)


@dataclass(frozen=True)
class SharedRates:
    """The windows of the server's own API: a key has one allowance for both."""

    rates: Rates

    def take(self, key: str) -> Allowance:
        allowed, left = self.rates.take(key)
        return Allowance(left.limit, left.remaining, 0 if allowed else left.reset)

    def fail(self, address: str) -> int:
        allowed, left = self.rates.take_failure(address)
        return 0 if allowed else left.reset
