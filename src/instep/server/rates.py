"""Limits on the requests of a key. Counted in this process: with several servers each counts its own."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from instep.server.problems import ApiProblem


@dataclass(frozen=True)
class RateLimitState:
    """Remaining of `limit` requests, and the seconds until it is full again."""

    limit: int
    remaining: int
    reset: int

    def headers(self) -> dict[str, str]:
        names = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
        return dict(zip(names, map(str, (self.limit, self.remaining, self.reset)), strict=True))


MINUTE = 60.0


class RateWindows:
    """Moving windows of a minute, in which each name has `limit` requests. What is remembered is bounded by what came
    within the last minute: names that have been silent since are forgotten."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock, self._lock = limit, clock, threading.Lock()
        self._requests: dict[str, deque[float]] = {}
        self._tidied = clock()

    def count_request(self, name: str) -> tuple[bool, RateLimitState]:
        """Count a request; whether it is within the limit (else it is not counted), and what is left."""
        with self._lock:
            now = self._clock()
            self._tidy(now)
            taken = self._requests.setdefault(name, deque())
            while taken and taken[0] <= now - MINUTE:
                taken.popleft()
            if allowed := len(taken) < self._limit:
                taken.append(now)
            reset = max(1, math.ceil(taken[0] + MINUTE - now))
            return allowed, RateLimitState(self._limit, self._limit - len(taken), reset)

    def _tidy(self, now: float) -> None:
        if now < self._tidied + MINUTE:
            return
        self._tidied = now
        self._requests = {name: taken for name, taken in self._requests.items() if taken[-1] > now - MINUTE}

    def __len__(self) -> int:
        return len(self._requests)


class Rates:
    """`requests` a minute for each key, `failures` for each address that sends wrong keys or tries passwords, `guesses`
    of passwords for each name."""

    def __init__(self, requests: int = 600, failures: int = 30, guesses: int = 100) -> None:
        self._requests, self._failures = RateWindows(requests), RateWindows(failures)
        self._tries, self._guesses = RateWindows(failures), RateWindows(guesses)

    def count_request(self, key_id: str) -> tuple[bool, RateLimitState]:
        """Count a request; whether the key may make it, and what is left."""
        return self._requests.count_request(key_id)

    def take_failure(self, address: str) -> tuple[bool, RateLimitState]:
        """Count a wrong key."""
        return self._failures.count_request(address)

    def count(self, key_id: str) -> RateLimitState:
        """Count a request; Problem 429 if the key has made too many."""
        allowed, left = self.count_request(key_id)
        if not allowed:
            raise _too_many(f"this API key has made {left.limit} requests within a minute", left)
        return left

    def fail(self, address: str) -> None:
        """Count a wrong key; Problem 429 for an address that has sent too many. Right keys from there are let in: one
        forgotten script must not shut out all who share its address."""
        allowed, left = self.take_failure(address)
        if not allowed:
            raise _too_many("too many wrong API keys have come from here", left)

    def guess(self, address: str, name: str) -> None:
        """Count a password before it is looked at; Problem 429 for an address or a name of which too many were tried.

        A password is no 256 random bits: a right one is not let in either, or it would be found by going on.
        """
        for windows, what in ((self._tries, address), (self._guesses, name)):
            allowed, left = windows.count_request(what)
            if not allowed:
                raise _too_many("too many passwords were tried within a minute", left)


class Listeners:
    """Number of open streams per key: each reads the store once a second."""

    def __init__(self, most: int = 20) -> None:
        self._most, self._open = most, Counter[str]()

    def begin(self, key_id: str) -> None:
        """Count a stream of the key before it is opened; problem 429 if the key has as many as it may. Those that are
        asked for at the same moment count, too."""
        if self._open[key_id] >= self._most:
            why = f"this API key has {self._most} streams open"
            raise ApiProblem(429, "too_many_requests", why, "close one of them", headers={"Retry-After": "10"})
        self._open[key_id] += 1

    def open_of(self, key_id: str) -> int:
        """Return how many streams of the key are open."""
        return self._open[key_id]

    def end(self, key_id: str) -> None:
        """Forget a stream that was counted."""
        self._open[key_id] -= 1
        if not self._open[key_id]:
            del self._open[key_id]


def _too_many(detail: str, left: RateLimitState) -> ApiProblem:
    headers = {"Retry-After": str(left.reset), **left.headers()}
    return ApiProblem(429, "too_many_requests", detail, f"wait {left.reset} s", headers=headers)
