"""A server that is put back to an earlier copy of its data, and rows that change without a word in its log."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from followed import TABLES, notes
from log_world import LogWorld

from instep.project.sections.databases import PostgresSourceSection
from instep.project.sections.tables import TableSettings
from postgres_server import Server, launch, make_database
from sync_world import counts

pytestmark = [pytest.mark.server, pytest.mark.drawn(1)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="instep-back-"))
    folder.chmod(0o755)
    server = launch(folder / "server", int(os.environ.get("POSTGRES_MAJOR", "18")), "-c wal_level=logical")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def putting_back(server: Server) -> Callable[[], Callable[[], None]]:
    """Copies the server's data now, and answers what puts it back to that."""
    data, copy = server.folder / "data", server.folder / "copy"

    def halted(act: Callable[[], None]) -> None:
        server.run("pg_ctl", "-w", "-D", data, "-m", "fast", "stop")
        act()
        server.start()

    def put_back() -> None:
        shutil.rmtree(data)
        copied(copy, data)

    def save() -> Callable[[], None]:
        shutil.rmtree(copy, ignore_errors=True)
        halted(lambda: copied(data, copy))
        return lambda: halted(put_back)

    return save


def copied(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


@pytest.fixture
def world(server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LogWorld]:
    name = f"d{abs(hash(request.node.name))}"
    world = LogWorld.of(make_database(server, name), tmp_path).loaded()
    yield world
    own = "FROM pg_replication_slots WHERE database = current_database()"
    world.run(f"SELECT pg_drop_replication_slot(slot_name) {own}")
    world.close()


@pytest.mark.sampled
@pytest.mark.parametrize("busy", [False, True], ids=["the log is shorter", "the log is longer"])
def test_a_server_that_was_put_back_fails_its_tables(
    world: LogWorld, putting_back: Callable[[], Callable[[], None]], busy: bool
) -> None:
    put_back = putting_back()
    world.run("UPDATE t SET v = 0 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (6, 6)")
    world.sync()
    put_back()
    if busy:
        world.run("CREATE TABLE other AS SELECT generate_series(1, 20000) AS n", "UPDATE t SET v = 9 WHERE id = 3")
    for _ in range(2):
        report = world.sync()
        assert {name: s for name, s in world.statuses(report).items() if name in "tu"} == {"t": "failed", "u": "failed"}
        why = next(t.error for t in report.tables if t.table[1] == "t")
        assert "was put back to an earlier copy" in why
        assert "instep sync --full" in why
    world.sync(full=True)
    assert world.differing() == {}
    world.run("UPDATE t SET v = 7 WHERE id = 3")
    assert counts(world.sync(), "t")[0] == 1
    assert world.differing() == {}


@pytest.mark.slow
def test_a_server_that_was_put_back_is_noticed_behind_more_than_one_read(
    world: LogWorld, putting_back: Callable[[], Callable[[], None]]
) -> None:
    put_back = putting_back()
    world.run("UPDATE t SET v = 0 WHERE id = 1")
    world.sync()
    put_back()
    world.log["messages"] = 10
    world.run(*(f"UPDATE t SET v = v + 1 WHERE id = {1 + i % 5}" for i in range(40)))  # noqa: S608
    world.run("CREATE TABLE other AS SELECT generate_series(1, 20000) AS n")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "u": "failed", "other": "done"}
    assert "was put back to an earlier copy" in str(report)


def test_a_crash_is_not_taken_for_an_earlier_copy(world: LogWorld, server: Server) -> None:
    """The slot's own place may be an earlier one then."""
    for number in range(3):
        world.run(f"UPDATE t SET v = {number} WHERE id = 1")  # noqa: S608
        world.sync()
    server.kill()
    server.start()
    report = world.sync()
    assert set(world.statuses(report).values()) == {"done"}
    assert "as a whole" not in notes(report)
    world.run("UPDATE t SET v = 7 WHERE id = 3")
    world.sync()
    assert world.differing() == {}


def test_a_cursor_that_is_behind_reads_the_table_as_a_whole(
    server: Server, tmp_path: Path, putting_back: Callable[[], Callable[[], None]]
) -> None:
    world = LogWorld.of(make_database(server, "behind"), tmp_path)
    world.settings, world.follows = {"t": TableSettings(cursor="id"), "u": TableSettings()}, False
    world.run(*TABLES)
    world.sync()
    put_back = putting_back()
    world.run("INSERT INTO t VALUES (6, 6), (7, 7)")
    world.sync()
    put_back()
    world.run("INSERT INTO t VALUES (6, 600)")
    assert "went back from 7 to 6: the whole table is read" in notes(world.sync())
    assert world.differing() == {}
    world.close()


def test_rows_that_alter_table_writes_anew_are_read_again(world: LogWorld) -> None:
    world.run("ALTER TABLE t ALTER v TYPE int USING v * 10")
    report = world.sync()
    assert "public.t: read as a whole: ALTER TABLE has rewritten its rows" in notes(report)
    assert (counts(report, "t")[0], counts(report, "u")[0]) == (5, 0)
    assert world.differing() == {}
    world.run("UPDATE t SET v = 7 WHERE id = 3")
    assert counts(world.sync(), "t")[0] == 1


def test_files_that_are_written_anew_with_the_same_values_are_not(world: LogWorld) -> None:
    world.run("CREATE TABLE w (id int PRIMARY KEY, v int)", "INSERT INTO w VALUES (1, 1)")
    world.sync()
    world.run("VACUUM FULL t", "CLUSTER u USING u_pkey", "UPDATE t SET v = 7 WHERE id = 3")
    world.run("ALTER TABLE w ALTER v SET DEFAULT 5", "ALTER TABLE w ALTER v SET STATISTICS 10")
    report = world.sync()
    assert [counts(report, name)[0] for name in ("t", "u", "w")] == [1, 0, 0]
    assert world.differing() == {}
    world.run("TRUNCATE t", "INSERT INTO t VALUES (9, 9)")
    world.sync()
    assert world.differing() == {}


LABELLED = [
    ("itself", "mood", "sad"),
    ("many", "mood[]", "{sad,glad}"),
    ("range", "moods", "[sad,glad]"),
    ("ranges", "mood_ranges", "{[sad,glad]}"),
    ("domain", "range_domain", "[sad,glad]"),
    ("field", "range_field", '("[sad,glad]")'),
]


def test_labels_of_an_enum_that_are_called_otherwise(world: LogWorld) -> None:
    world.run(
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE TYPE moods AS RANGE (SUBTYPE = mood, MULTIRANGE_TYPE_NAME = mood_ranges)",
        "CREATE DOMAIN range_domain AS moods",
        "CREATE TYPE range_field AS (r moods)",
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v {kind})" for name, kind, _ in LABELLED),
        *(f"INSERT INTO {name} VALUES (1, '{value}')" for name, _, value in LABELLED),  # noqa: S608
    )
    world.sync()
    world.run("ALTER TYPE mood ADD VALUE 'mad'")
    report = world.sync()
    assert {name: counts(report, name)[0] for name, *_ in LABELLED} == dict.fromkeys((n for n, *_ in LABELLED), 0)
    world.run("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    report = world.sync()
    assert {name: counts(report, name)[0] for name, *_ in LABELLED} == dict.fromkeys((n for n, *_ in LABELLED), 1)
    assert world.differing() == {}


ALIASES = [
    ("regclass", "t"),
    ("regclass[]", "{t}"),
    ("regnamespace", "public"),
    ("regtype", "mood"),
    ("regrole", "mine"),
]


def test_values_that_name_other_objects(world: LogWorld) -> None:
    """They change when these are renamed, and the log has nothing of it."""
    world.run(
        "DROP ROLE IF EXISTS mine", "DROP ROLE IF EXISTS yours", "CREATE ROLE mine", "CREATE TYPE mood AS ENUM ()"
    )
    for number, (kind, value) in enumerate(ALIASES):
        world.run(f"CREATE TABLE n{number} (id int PRIMARY KEY, v {kind})")
        world.run(f"INSERT INTO n{number} VALUES (1, '{value}')")  # noqa: S608
    try:
        assert "values of type regclass, which change unlogged when what they name is renamed" in notes(world.sync())
        world.run("ALTER TYPE mood RENAME TO moods", "ALTER ROLE mine RENAME TO yours")
        world.run("CREATE TABLE mine (id int PRIMARY KEY)", "ALTER TABLE u RENAME TO u2")
        world.sync()
        assert world.differing() == {}
    finally:
        world.run("DROP TABLE n4", "DROP ROLE yours")


POLICY = "CREATE POLICY own ON r FOR SELECT TO tenant USING (tenant IN (SELECT id FROM member))"
POLICIES: list[tuple[str, tuple[str, ...]]] = [
    ("what a policy asks", ("DELETE FROM member WHERE id = 1", "INSERT INTO member VALUES (0)")),
    ("another policy", ("DROP POLICY own ON r", "CREATE POLICY own ON r FOR SELECT TO tenant USING (tenant = 0)")),
    ("none", ("ALTER TABLE r DISABLE ROW LEVEL SECURITY",)),
    ("of a table that had none", ("ALTER TABLE plain ENABLE ROW LEVEL SECURITY",)),
    ("of parts", ("ALTER TABLE parted ENABLE ROW LEVEL SECURITY",)),
]


def test_rows_that_policies_show(world: LogWorld) -> None:
    """The log tells nothing when the policies of a table, or what they ask, show others of its rows."""
    world.run("DROP ROLE IF EXISTS tenant", "CREATE ROLE tenant LOGIN REPLICATION PASSWORD 'x y'")
    world.run(
        "CREATE TABLE member (id int PRIMARY KEY)", "INSERT INTO member VALUES (1), (2)",
        "CREATE TABLE r (id int PRIMARY KEY, tenant int)", "INSERT INTO r SELECT i, i % 3 FROM generate_series(1, 9) i",
        "CREATE TABLE plain (id int PRIMARY KEY)", "INSERT INTO plain VALUES (1), (2)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (9)", "INSERT INTO parted VALUES (1)",
        "ALTER TABLE r ENABLE ROW LEVEL SECURITY", POLICY,
        "DROP PUBLICATION instep_shop",
        "CREATE PUBLICATION instep_shop FOR ALL TABLES WITH (publish_via_partition_root = true)",
        "GRANT USAGE ON SCHEMA public TO tenant", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO tenant",
    )  # fmt: skip
    make, owner = world.case.source, world.database.config
    tenant = owner.model_copy(update={"user": "tenant", "password": "x y"})
    world.case = replace(world.case, source=lambda **given: as_user(make(**given), tenant))
    try:
        assert "its row-level security chooses the rows that are shown" in notes(world.sync())
        for name, statements in POLICIES:
            world.run(*statements)
            assert world.sync().status == "done", name
            assert world.differing() == {}, name
        assert world.rows("plain", "id") == world.rows("parted", "id") == []
        assert len(world.rows("r", "id")) == 9
    finally:
        world.run("DROP OWNED BY tenant", "DROP ROLE tenant")


def as_user(source: Any, config: PostgresSourceSection) -> Any:
    source.config = config.model_copy(update={"include": source.config.include, "exclude": source.config.exclude})
    return source
