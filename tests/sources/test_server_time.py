"""`statement_timeout` on this side counts what a server takes, not what is done with its rows."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from instep.errors import ReadError
from instep.project.sections.databases import DatabaseSection, MySqlSourceSection, PostgresSourceSection
from instep.sources.server import in_time

LOGIN = {"host": "h", "database": "d", "user": "u"}
CONFIGS = [MySqlSourceSection.resolved(type="mysql", **LOGIN), PostgresSourceSection.resolved(type="postgres", **LOGIN)]


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
    monkeypatch: pytest.MonkeyPatch, config: DatabaseSection, limit: float, server: float, consumer: float, ends: bool
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
        for number in in_time(limited, batches(), "shop.t"):
            yield number
            now += consumer

    limited = config.model_copy(update={"statement_timeout": limit})
    if ends:
        assert list(read()) == list(range(10))
    else:
        with pytest.raises(ReadError, match=r"shop\.t: the server goes on sending after statement_timeout"):
            list(read())
