"""`statement_timeout` on this side counts what a server takes, not what is done with its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from instep.errors import ReadError
from instep.sources.mysql.connect import MySqlConfig
from instep.sources.postgres.connect import PostgresConfig
from instep.sources.server import ServerConfig

CONFIGS = [kind(host="h", database="d", user="u") for kind in (MySqlConfig, PostgresConfig)]


@pytest.mark.parametrize(
    ("limit", "server", "consumer", "ends"),
    [
        (1, 0.0, 60.0, True),  # instant batches, and somebody who takes long over each
        (1, 0.25, 0.0, True),
        (1, 1.0, 0.0, False),  # a server that goes on after the limit
        (0, 60.0, 60.0, True),
    ],
)
@pytest.mark.parametrize("config", CONFIGS, ids=["mysql", "postgres"])
def test_the_time_of_a_statement(
    monkeypatch: pytest.MonkeyPatch, config: ServerConfig, limit: float, server: float, consumer: float, ends: bool
) -> None:
    """By a clock that only the two of them move."""
    now = 0.0
    monkeypatch.setattr("instep.sources.server.time", SimpleNamespace(monotonic=lambda: now))

    def batches() -> Iterator[int]:
        nonlocal now
        for number in range(10):
            now += server
            yield number

    def read() -> Iterator[int]:
        nonlocal now
        for number in limited.in_time(batches(), "shop.t"):
            yield number
            now += consumer

    limited = replace(config, statement_timeout=limit)
    if ends:
        assert list(read()) == list(range(10))
    else:
        with pytest.raises(ReadError, match=r"shop\.t: the server goes on sending after statement_timeout"):
            list(read())
