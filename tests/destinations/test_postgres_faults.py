"""Connections that are cut, locks that others hold, servers that refuse: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_world import Warehouse, config_of

from fault_proxy import Fault, Proxy, before
from instep.destinations.base import Commit, LoadOutcome
from instep.destinations.postgres.destination import PostgresDestination
from instep.destinations.postgres.staging import PostgresStaging
from instep.errors import Conflict, ConnectError, DestinationError, InstepError, StageError
from instep.project.sections.reach import Tls
from instep.sources.postgres.connect import conninfo
from instep.stage.spec import StagedFile
from lake import REF, stage
from postgres_server import Database

COMMIT = b"COMMIT\0"
COPY = b"PGCOPY\n"


@pytest.fixture
def shop(postgres: Database, tmp_path: Path) -> Warehouse:
    made = Warehouse(postgres, tmp_path)
    made.append({"id": 1, "name": "a"})
    return made


@pytest.fixture
def proxy(postgres: Database) -> Iterator[Proxy]:
    with before(postgres.config.port) as made:
        yield made


def through(shop: Warehouse, proxy: Proxy) -> PostgresDestination:
    return PostgresDestination(shop.to.config.model_copy(update={"port": proxy.port}))


def append(to: PostgresDestination, file: StagedFile, commit: Commit) -> LoadOutcome:
    return to.write.append(REF, [file], commit)


def overwrite(to: PostgresDestination, file: StagedFile, commit: Commit) -> LoadOutcome:
    return to.write.overwrite(REF, [file], commit)


LOST: list[tuple[str, Any, int, list[int]]] = [
    ("of the staging table", append, 1, [1, 2]),
    ("of the copy", append, 2, [1, 2]),
    ("of the rows", append, 4, [1, 2]),
    ("of the end of staging", append, 5, [1, 2]),
    ("of a swap", overwrite, 4, [2]),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("load", "at", "ids"), [c[1:] for c in LOST], ids=[c[0] for c in LOST])
def test_a_commit_whose_answer_is_lost_is_found(
    shop: Warehouse, proxy: Proxy, load: Any, at: int, ids: list[int]
) -> None:
    commit, far = shop.commit("lost"), through(shop, proxy)
    file = stage(far, REF, [{"id": 2}])
    proxy.set(Fault(mark=COMMIT, at=at))
    if at == 2:  # a copy that nobody has heard of is not looked for
        with pytest.raises(InstepError):
            load(far, file, commit)
    assert load(far, file, commit).inserted == 1
    assert proxy.strikes == 1
    assert [i for (i,) in shop.rows("id")] == ids
    assert (state := shop.to.schema.state(REF)) is not None
    assert (state.run, state.rows) == ("lost", len(ids))


@pytest.mark.parametrize("mark", [COMMIT, COPY])
def test_a_connection_that_is_cut_changes_nothing(shop: Warehouse, proxy: Proxy, mark: bytes) -> None:
    commit, far = shop.commit("cut"), through(shop, proxy)
    file = stage(far, REF, [{"id": 2}])
    proxy.set(Fault(mark=mark, unheard=True))
    with pytest.raises(InstepError) as caught:
        far.write.append(REF, [file], commit)
    assert caught.value.hint
    assert proxy.strikes == 1
    assert shop.rows("id") == [(1,)]
    far.write.append(REF, [file], commit)
    assert shop.rows("id") == [(1,), (2,)]


def test_a_lock_of_somebody_else_is_named(postgres: Database, tmp_path: Path) -> None:
    shop = Warehouse(postgres, tmp_path, lock_timeout=0.2)
    with psycopg.connect(conninfo(postgres.config)) as other:
        other.execute("LOCK TABLE shop.orders IN ROW EXCLUSIVE MODE")
        with pytest.raises(Conflict, match="lock timeout") as caught:
            shop.append({"id": 2})
        assert "pg_stat_activity" in caught.value.hint
    shop.append({"id": 2})
    assert shop.rows("id") == [(2,)]


def test_a_server_that_has_ended_idle_connections_is_reached_again(shop: Warehouse, monkeypatch: Any) -> None:
    monkeypatch.setattr("instep.destinations.postgres.server._REST", -1)
    shop.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'instep' "
             "AND pid <> pg_backend_pid()")  # fmt: skip
    shop.append({"id": 2})
    assert shop.rows("id") == [(1,), (2,)]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("password", {"password": "not this one"}, "user and password"),
    ("database", {"database": "nothing"}, "database"),
    ("host", {"host": "no.such.invalid"}, "host"),
    ("port", {"port": 1}, "listens"),
    ("tls", {"tls": Tls(mode="require")}, "tls.mode"),
]


@pytest.mark.parametrize(("change", "hint"), [c[1:] for c in WRONG], ids=[c[0] for c in WRONG])
def test_who_cannot_log_in_is_told_why(postgres: Database, tmp_path: Path, change: dict[str, Any], hint: str) -> None:
    to = PostgresDestination(config_of(postgres, tmp_path).model_copy(update=change))
    with pytest.raises(ConnectError) as caught:
        to.schema.tables()
    assert caught.value.hint
    assert re.search(hint, caught.value.hint)
    assert to.config.password not in str(caught.value)
    assert [c.ok for c in to.lifecycle.test()] == [False]


def test_a_role_without_rights_is_told_which(postgres: Database, tmp_path: Path) -> None:
    at = postgres.reader
    to = PostgresDestination(
        config_of(postgres, tmp_path).model_copy(update={"user": at.user, "password": at.password})
    )
    checks = to.lifecycle.test()
    assert [c.ok for c in checks] == [True, False]
    assert "permission denied" in checks[-1].detail


def test_rows_that_the_database_refuses_leave_the_table(shop: Warehouse) -> None:
    shop.sql("ALTER TABLE shop.orders ADD CHECK (id < 10)")
    for load in (shop.append, shop.overwrite, shop.merge):
        with pytest.raises(DestinationError, match="check constraint"):
            load({"id": 11})
    assert shop.rows("id") == [(1,)]
    left = shop.sql("SELECT relname FROM pg_class WHERE relnamespace = '_instep'::regnamespace AND relkind = 'r'")
    assert sorted(left) == [("dropped",), ("tables",)], "what was staged is gone"


def test_what_was_staged_is_dropped_behind_a_restart(shop: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads of other tables give connections back that the server has ended, one after the other."""
    pool = shop.to.server._plain
    pool.close()
    others = [ExitStack() for _ in range(6)]
    ended = [other.enter_context(pool.connection()).info.backend_pid for other in others]
    for pid in ended:
        shop.sql(f"SELECT pg_terminate_backend({pid})")
    close_idle, close_staging = pool.close, PostgresStaging.close

    def give_back() -> None:
        close_idle()
        if others:
            others.pop().close()

    def restarted(staging: PostgresStaging) -> None:
        others.pop().close()
        close_staging(staging)

    monkeypatch.setattr(pool, "close", give_back)
    monkeypatch.setattr(PostgresStaging, "close", restarted)
    assert shop.append({"id": 2}).inserted == 1
    left = shop.sql("SELECT relname FROM pg_class WHERE relnamespace = '_instep'::regnamespace AND relkind = 'r'")
    assert sorted(left) == [("dropped",), ("tables",)]
    while others:
        others.pop().close()


def test_a_connection_that_was_out_when_the_pool_was_closed_is_not_used_again(shop: Warehouse) -> None:
    pool = shop.to.server._plain
    with pool.connection() as first:
        pool.close()
        with pool.connection() as second:
            pass
    assert first.closed
    with pool.connection() as third:
        assert third is second


EMPTIED: list[tuple[str, Any]] = [
    ("append", lambda shop: shop.append({"id": 2})),
    ("overwrite", lambda shop: shop.overwrite({"id": 2})),
    ("merge", lambda shop: shop.merge({"id": 2}, complete=True, deletes="hard")),
]


@pytest.mark.parametrize("load", [c[1] for c in EMPTIED], ids=[c[0] for c in EMPTIED])
def test_a_staging_table_that_a_crash_has_emptied_is_no_deletion(
    shop: Warehouse, load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = PostgresStaging.copy

    def emptied(self: PostgresStaging, what: str, *files: Any, **numbered: bool) -> None:
        """As after a crash of the server between the copy and the load."""
        copied(self, what, *files, **numbered)
        shop.sql(f"TRUNCATE {self.table(what)}")

    monkeypatch.setattr(PostgresStaging, "copy", emptied)
    with pytest.raises(StageError, match="0 of 1 staged rows"):
        load(shop)
    assert shop.rows("id", "name") == [(1, "a")]
