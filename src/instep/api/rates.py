"""How many requests a key may make. Counted in this process: with several servers each counts its own."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from instep.api.problems import Problem


@dataclass(frozen=True)
class Left:
    """What is left of `limit` requests, and the seconds until it is whole again."""

    limit: int
    remaining: int
    reset: int

    def headers(self) -> dict[str, str]:
        names = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
        return dict(zip(names, map(str, (self.limit, self.remaining, self.reset)), strict=True))


class Rates:
    """Moving windows of a minute: `requests` for each key, `failures` for each address that sends wrong keys."""

    def __init__(self, requests: int = 600, failures: int = 30) -> None:
        self._windows = MovingWindowRateLimiter(MemoryStorage())
        self._requests, self._failures = RateLimitItemPerMinute(requests), RateLimitItemPerMinute(failures)

    def take(self, key_id: str) -> tuple[bool, Left]:
        """Counts a request; whether the key may make it, and what is left."""
        return self._windows.hit(self._requests, "key", key_id), self._left(self._requests, "key", key_id)

    def take_failure(self, address: str) -> tuple[bool, Left]:
        """Counts a wrong key."""
        allowed = self._windows.hit(self._failures, "address", address)
        return allowed, self._left(self._failures, "address", address)

    def count(self, key_id: str) -> Left:
        """Counts a request; Problem 429 if the key has made too many."""
        allowed, left = self.take(key_id)
        if not allowed:
            raise _too_many(f"this API key has made {left.limit} requests within a minute", left)
        return left

    def fail(self, address: str) -> None:
        """Counts a wrong key; Problem 429 for an address that has sent too many. Right keys from there are let in: one
        forgotten script must not shut out all who share its address."""
        allowed, left = self.take_failure(address)
        if not allowed:
            raise _too_many("too many wrong API keys have come from here", left)

    def _left(self, item: RateLimitItemPerMinute, *names: str) -> Left:
        window = self._windows.get_window_stats(item, *names)
        return Left(item.amount, window.remaining, max(1, math.ceil(window.reset_time - time.time())))


class Listeners:
    """How many streams each key has open: each costs a look at the store a second."""

    def __init__(self, most: int = 20) -> None:
        self._most, self._open = most, Counter[str]()

    def check(self, key_id: str) -> None:
        """Problem 429 if the key has as many as it may."""
        if self._open[key_id] >= self._most:
            why = f"this API key has {self._most} streams open"
            raise Problem(429, "too_many_requests", why, "close one of them", headers={"Retry-After": "10"})

    @contextmanager
    def listening(self, key_id: str) -> Iterator[None]:
        """Counts one while it lasts."""
        self._open[key_id] += 1
        try:
            yield
        finally:
            self._open[key_id] -= 1


def _too_many(detail: str, left: Left) -> Problem:
    headers = {"Retry-After": str(left.reset), **left.headers()}
    return Problem(429, "too_many_requests", detail, f"wait {left.reset} s", headers=headers)
