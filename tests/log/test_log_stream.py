"""A run reads its log in one stream, also more of it than memory has keys for, and goes on after a failover."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from followed import TABLES, notes
from log_world import LogWorld

from instep.sources import keyset
from instep.sources.postgres.wal import log, stream
from pooler import pooled
from postgres_server import Database, Server, free_port, launch, make_database
from sync_world import counts

pytestmark = [pytest.mark.server, pytest.mark.drawn(1)]
WALSENDERS = "SELECT count(*) FROM pg_stat_replication WHERE application_name LIKE 'instep%'"


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[stream.WalStream]:
    """All that were opened."""
    found: list[stream.WalStream] = []

    def opened(*given: object) -> stream.WalStream:
        found.append(stream.open_stream(*given))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(log, "open_stream", opened)
    return found


def test_the_passes_of_a_run_read_on_in_one_stream(world: LogWorld, streams: list[stream.WalStream]) -> None:
    world.loaded()
    streams.clear()
    world.log["messages"] = 20
    world.run(*(f"UPDATE t SET v = v + 1 WHERE id = {1 + i % 5}" for i in range(40)))  # noqa: S608
    before = world.slot
    assert world.sync().status == "done"
    assert len(streams) == 1
    assert world.slot > before
    assert world.differing() == {}
    assert world.sql(WALSENDERS) == 0
    assert world.sql("SELECT active FROM pg_replication_slots WHERE slot_name = 'instep_shop'") is False


def test_a_stream_is_opened_again_behind_what_a_snapshot_does_not_show(
    world: LogWorld, streams: list[stream.WalStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came after the snapshot of the first pass is in the log already when that is read."""
    world.loaded()
    streams.clear()
    world.log["messages"] = 15
    world.run(*(f"UPDATE t SET v = v + 1 WHERE id = {1 + i}" for i in range(3)))  # noqa: S608
    flushed, late = log.PostgresLog._flushed, ["UPDATE t SET v = 99 WHERE id = 5", "DELETE FROM t WHERE id = 4"]

    def busy(self: log.PostgresLog, session: object) -> object:
        while late:
            world.run(late.pop())
        return flushed(self, session)  # type: ignore[arg-type]

    monkeypatch.setattr(log.PostgresLog, "_flushed", busy)
    assert world.sync().status == "done"
    assert len(streams) > 1
    world.sync()
    assert world.differing() == {}


def test_a_log_that_begins_with_what_a_snapshot_does_not_show(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is before it that the pass could have reached."""
    world.run(*TABLES)
    flushed, late = log.PostgresLog._flushed, ["UPDATE t SET v = 99 WHERE id = 5"]

    def busy(self: log.PostgresLog, session: object) -> object:
        while late:
            world.run(late.pop())
        return flushed(self, session)  # type: ignore[arg-type]

    monkeypatch.setattr(log.PostgresLog, "_flushed", busy)
    for _ in range(2):
        assert world.sync().status == "done"
    assert world.differing() == {}


def test_keys_beyond_memory_are_on_disk_and_read_by_key(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyset, "IN_MEMORY", 100)
    monkeypatch.setattr(log, "SQL_KEYS", 90)
    world.log["limit"] = 10
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int) WITH (autovacuum_enabled = false)",
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 4000) i",
        "CREATE TABLE p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1000)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (1000) TO (9000)",
        "INSERT INTO p SELECT * FROM t",
        "ANALYZE",
    )
    assert world.sync().status == "done"
    world.run(*(f"UPDATE {t} SET v = id WHERE id % 5 = 0" for t in "tp"), "DELETE FROM t WHERE id = 5")  # noqa: S608
    report = world.sync()
    assert (counts(report, "t")[:4], counts(report, "p")[0]) == ((799, 0, 799, 1), 800)
    assert world.differing() == {}
    world.run("UPDATE t SET v = 7")
    assert "more than 1,000 of its rows changed" in notes(world.sync())
    assert world.differing() == {}


def test_a_stream_that_is_cut_loses_nothing(world: LogWorld, streams: list[stream.WalStream]) -> None:
    world.loaded()
    streams.clear()
    world.run("UPDATE t SET v = 0 WHERE id = 1")
    merge, cut = world.destination.write.merge, ["SELECT pg_terminate_backend(pid) FROM pg_stat_replication"]

    def cutting(*given: object) -> object:
        while cut:
            world.run(cut.pop())
        return merge(*given)  # type: ignore[arg-type]

    before = world.slot
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.destination.write, "merge", cutting)
        assert world.sync().notes == ()
    assert len(streams) == 2
    assert world.slot > before
    world.run("UPDATE t SET v = 5 WHERE id = 2")
    world.sync()
    assert world.differing() == {}


def test_a_run_that_stands_still_does_not_keep_others_from_the_slot(world: LogWorld) -> None:
    """It wakes up without its stream."""
    world.loaded()
    late = stream.open_stream(world.database.config, log_names(world), 0)
    world.run("UPDATE t SET v = 5 WHERE id = 2")
    assert world.sync().status == "done"
    assert world.differing() == {}
    with pytest.raises(psycopg.Error):
        list(late.messages(1 << 62, 1 << 30))
    late.close()
    late = stream.open_stream(world.database.config, log_names(world), 0)
    assert world.context.source.log(log_names(world)).drop()  # type: ignore[attr-defined]
    late.close()


def test_a_stream_that_ends_is_an_error_that_says_so(world: LogWorld) -> None:
    world.loaded()
    made = stream.open_stream(world.database.config, log_names(world), 0)
    world.run("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
    with pytest.raises(psycopg.Error, match=r"terminating connection|ended the stream|closed the connection"):
        list(made.messages(1 << 62, 1 << 30))
    made.close()
    assert "does not exist" in str(_refused(world))


def log_names(world: LogWorld) -> log.LogNames:
    names = world.context.log
    assert names is not None
    return names


def _refused(world: LogWorld) -> psycopg.Error:
    with pytest.raises(psycopg.errors.UndefinedObject) as error:
        stream.open_stream(world.database.config, replace(log_names(world), slot="another"), 0)
    return error.value


def test_a_log_is_read_through_a_pooler_or_the_error_names_it(world: LogWorld) -> None:
    """From 1.23 on PgBouncer passes replication connections on."""
    world.loaded()
    own = world.database.config.port
    with pooled(world.database) as config:
        object.__setattr__(world.database.config, "port", config.port)
        report = world.sync()
        object.__setattr__(world.database.config, "port", own)
    assert world.statuses(report) == {"t": "done", "u": "done"} or "does not pass the log on" in report.tables[0].error


@dataclass
class Pair:
    """A primary server, and a standby that slots are handed on to."""

    primary: Server
    standby: Server
    database: Database

    @property
    def there(self) -> Database:
        """The database at the standby."""
        config = self.database.config.model_copy(update={"port": self.standby.port})
        return replace(self.database, config=config)

    def has_slot(self, world: LogWorld) -> None:
        """Wait until the standby has the slot for good: that of the primary has to move on for that."""
        self.wait(
            lambda: (
                (
                    world.run("SELECT pg_log_standby_snapshot()"),
                    world.sync(),
                    self.there.execute("SELECT synced AND NOT temporary FROM pg_replication_slots"),
                )[2]
                == [(True,)]
            )
        )

    def follow(self) -> None:
        """Wait until the standby has what the primary has."""
        [(end,)] = self.database.execute("SELECT pg_current_wal_lsn()::text")
        self.wait(lambda: self.there.execute(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == [(True,)])

    @staticmethod
    def wait(done: Callable[[], bool]) -> None:
        ends = time.monotonic() + 300
        while not done():
            assert time.monotonic() < ends
            time.sleep(0.2)

    def fail_over(self, world: LogWorld) -> None:
        """The address that the source names leads to the standby, which is the primary from now on."""
        if self.primary.runs():
            self.primary.stop()
        self.standby.run("pg_ctl", "-w", "-t", 600, "-D", self.standby.folder / "data", "promote")
        object.__setattr__(world.database.config, "port", self.standby.port)


@pytest.fixture
def pair() -> Iterator[Pair]:
    folder = Path(tempfile.mkdtemp(prefix="instep-failover-"))
    folder.chmod(0o755)
    settings = "-c wal_level=logical -c hot_standby_feedback=on"
    servers = [launch(folder / "primary", settings=settings)]
    try:
        [primary] = servers
        database = make_database(primary, "shop")
        login, owner = database.config, primary.folder.stat()
        to = f"host=127.0.0.1 port={primary.port} user={login.user} password='{login.password}' dbname=shop"
        (folder / "standby").mkdir()
        shutil.chown(folder / "standby", owner.st_uid, owner.st_gid)
        copy = ("-R", "-X", "stream", "-c", "fast", "--no-sync", "-C", "-S", "standby", "-d", to)
        primary.run("pg_basebackup", "-D", folder / "standby" / "data", *copy)
        settings = f"{settings} -c sync_replication_slots=on"
        servers.append(Server(folder / "standby", primary.programs, free_port(), primary.major, settings))
        servers[1].start()
        yield Pair(*servers, database)
    finally:
        for server in servers:
            if server.runs():
                server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_failover_is_survived(pair: Pair, tmp_path: Path) -> None:
    world = LogWorld.of(pair.database, tmp_path).loaded()
    pair.has_slot(world)
    world.run("UPDATE t SET v = 0 WHERE id = 1")
    world.sync()
    world.run("UPDATE t SET v = 8 WHERE id = 2", "DELETE FROM u WHERE id = 3")
    pair.follow()
    pair.fail_over(world)
    world.run("UPDATE t SET v = 9 WHERE id = 4")
    report = world.sync()
    assert world.statuses(report) == {"t": "done", "u": "done"}, report
    assert "as a whole" not in notes(report)
    assert counts(report, "u")[0] == 0
    assert counts(report, "t")[0] in (2, 3), "the standby's slot may be behind by the row of the last sync"
    assert world.differing() == {}
    world.run("UPDATE t SET v = 10 WHERE id = 5")
    assert counts(world.sync(), "t")[0] == 1
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("slot", [True, False])
def test_a_failover_that_lost_something_is_told(pair: Pair, tmp_path: Path, slot: bool) -> None:
    """Rows that were read are not on the new server, or its slot is not."""
    world = LogWorld.of(pair.database, tmp_path).loaded()
    pair.has_slot(world)
    pair.follow()
    if slot:
        pair.standby.stop()
        world.run("UPDATE t SET v = 0 WHERE id = 1")
        world.sync()
        pair.primary.stop()
        pair.standby.start()
    pair.fail_over(world)
    if not slot:
        world.run("SELECT pg_drop_replication_slot('instep_shop')")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "u": "failed"}
    why = next(t.error for t in report.tables if t.table[1] == "t")
    assert "another server than the one whose log was followed (a failover" in why
    assert ("has no replication slot" in why) is not slot
    assert "instep sync --full" in why
    world.sync(full=True)
    assert world.differing() == {}
    world.close()
