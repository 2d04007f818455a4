"""A PostgreSQL destination that falls silent: the error comes in time and says what to do, nothing is half done, and
the next load finds what became of the last one. Connections that are cut: destinations/test_postgres_faults.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.destinations import postgres as to_postgres
from fault_proxy import CALM, Fault, Proxy, before
from instep.destinations.base import Commit
from instep.destinations.facets import Destination
from instep.destinations.postgres.destination import PostgresDestination
from instep.errors import InstepError
from lake import REF, create, rows_of, stage
from postgres_server import Database

COMMIT, COPY = b"COMMIT\0", b"PGCOPY\n"


@pytest.fixture
def near(postgres: Database, tmp_path: Path) -> Destination:
    """A table with one row."""
    made = to_postgres(tmp_path, postgres)
    create(made)
    made.write.append(REF, [stage(made, REF, [{"id": 1}])], Commit("run-1", 1))
    made.write.claim(REF, 2)
    return made


@pytest.fixture
def proxy(postgres: Database) -> Iterator[Proxy]:
    with before(postgres.config.port) as made:
        yield made


def through(near: Any, proxy: Proxy) -> PostgresDestination:
    """It waits for a short time only where silence is the fault."""
    short = {"connect_timeout": 3, "read_timeout": 2} if proxy.fault.how == "silence" else {}
    return PostgresDestination(near.config.model_copy(update={"port": proxy.port, **short}))


def attempt(far: PostgresDestination, near: Destination, run: str) -> str:
    """What is said of an append; "" if it is done."""
    try:
        far.write.append(REF, [stage(near, REF, [{"id": 2}])], Commit(run, 2))
    except InstepError as error:
        return str(error)
    return ""


SILENT: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("login", {"down": 30}, ("timeout", "connect_timeout")),
    ("copy", {"mark": COPY, "unheard": True}, ("no word from the server for 2 s", "read_timeout")),
    ("answer to the copy", {"mark": COPY}, ("no word from the server for 2 s", "read_timeout")),
    ("commit", {"mark": COMMIT, "at": 4, "unheard": True}, ("127.0.0.1",)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "words"), [c[1:] for c in SILENT], ids=[c[0] for c in SILENT])
def test_a_server_that_falls_silent(
    near: Destination, proxy: Proxy, where: dict[str, Any], words: tuple[str, ...], postgres: Database
) -> None:
    proxy.set(Fault("silence", times=0 if "mark" not in where else 1, **where))
    begun = time.monotonic()
    told = attempt(through(near, proxy), near, "silent")
    assert time.monotonic() - begun < 600, "it hung"
    assert proxy.strikes
    for word in words:
        assert word in told
    assert postgres.config.password not in told
    assert rows_of(near, REF, ["id"]) == [(1,)]
    proxy.set(CALM)
    proxy.hang_up()
    assert attempt(through(near, proxy), near, "again") == ""
    assert rows_of(near, REF, ["id"]) == [(1,), (2,)]


@pytest.mark.slow
def test_a_commit_whose_answer_never_comes_is_found(near: Destination, proxy: Proxy) -> None:
    proxy.set(Fault("silence", COMMIT, at=4))
    assert attempt(through(near, proxy), near, "unanswered") == ""
    assert proxy.strikes == 1
    assert rows_of(near, REF, ["id"]) == [(1,), (2,)]
