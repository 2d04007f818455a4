"""Silence has an end, and what it leaves behind is closed once it can be."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from instep.stage.timeouts import CallTimeout, Silence, call_within, timed_connection
from postgres_server import Database


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


def numbers(gate: threading.Event, ended: Callable[[], None]) -> Generator[int, None, None]:
    try:
        yield 1
        gate.wait(300)
        yield 2
    finally:
        ended()


def test_what_is_answered_in_time_is_passed_on() -> None:
    for seconds in (0.0, 30.0):
        timeout, last = CallTimeout(seconds), threading.Event()
        assert timeout.call(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            timeout.call(lambda: 1 // 0)
        assert list(timeout.each(n for n in range(3))) == [0, 1, 2]
        timeout.close(last.set)
        assert last.is_set()
        assert not timeout.broken


def test_silence_ends_a_call_and_the_rest_is_closed_by_whoever_is_stuck(gate: threading.Event) -> None:
    timeout, closed = CallTimeout(0.05), list[str]()
    items = timeout.each(numbers(gate, lambda: closed.append("items")))
    assert next(items) == 1
    with pytest.raises(Silence, match=r"no word from the server for 0\.05 s"):
        next(items)
    timeout.close(lambda: closed.append("connection"))
    assert closed == []
    gate.set()
    until = time.monotonic() + 300
    while len(closed) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert closed == ["items", "connection"]


def test_what_comes_too_late_is_given_back(gate: threading.Event) -> None:
    late = list[int]()

    def slow() -> int:
        gate.wait(300)
        return 7

    with pytest.raises(Silence):
        call_within(0.05, slow, late.append)
    assert late == []
    gate.set()
    until = time.monotonic() + 300
    while not late and time.monotonic() < until:
        time.sleep(0.01)
    assert late == [7]
    assert call_within(300, lambda: 8, late.append) == 8
    assert late == [7]


def test_a_word_starts_the_clock_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that moves only while there is somebody who looks at it."""
    timeout, now, looks = CallTimeout(0.05), 0.0, 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now

    monkeypatch.setattr("instep.stage.timeouts.time", SimpleNamespace(monotonic=clock))

    def slow() -> int:
        nonlocal now
        for _ in range(4):
            now, enough = now + 0.04, looks + 3
            while looks < enough and not timeout.broken:
                time.sleep(0.001)
            timeout.restart()
        return 1

    assert timeout.call(slow) == 1
    timeout.close(lambda: None)


def test_items_that_are_left_early_are_closed(gate: threading.Event) -> None:
    timeout, ended = CallTimeout(30), threading.Event()
    items = timeout.each(numbers(gate, ended.set))
    next(items)
    items.close()
    assert ended.is_set()
    timeout.close(lambda: None)


def test_psycopg_waits_for_words_not_for_the_whole(postgres: Database) -> None:
    from instep.sources.postgres.connect import conninfo

    with timed_connection(60).connect(conninfo(postgres.config)) as connection:
        [(rows,)] = connection.execute("SELECT count(*) FROM generate_series(1, 1000)").fetchall()
        assert rows == 1000
        connection.__class__ = timed_connection(0.5)  # a slow machine may need more for what comes before
        with pytest.raises(psycopg.OperationalError, match=r"no word from the server for 0\.5 s"):
            connection.execute("SELECT pg_sleep(20)")
        assert connection.closed


@pytest.mark.slow
def test_each_address_of_a_host_has_a_time_of_its_own(postgres: Database) -> None:
    """Two that take connections and say nothing come before the one that is at work."""
    from instep.sources.postgres.connect import conninfo

    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [one.getsockname()[1], two.getsockname()[1], postgres.config.port]
        given = conninfo(postgres.config.model_copy(update={"connect_timeout": 4}))
        hosts = {"host": ",".join(["127.0.0.1"] * 3), "port": ",".join(map(str, ports))}
        with timed_connection(60).connect(make_conninfo(given, **hosts)) as connection:
            assert connection.info.port == postgres.config.port
