from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from instep.errors import ReadError
from instep.sources.base import CursorRange
from instep.sources.mysql import source as module
from instep.sources.mysql.source import MySqlSource
from mariadb import MariaDatabase, MariaServer
from source_reads import EVERYTHING, accept, batches, find, staged, values


@pytest.fixture
def source(mariadb: MariaDatabase) -> MySqlSource:
    return MySqlSource(mariadb.config)


FITTING: list[tuple[str, str, object]] = [
    ("tinyint(1)", "1", True),
    ("bool", "0", False),
    ("tinyint unsigned", "255", 255),
    ("int(9) unsigned zerofill", "42", 42),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("bigint unsigned", "18446744073709551615", Decimal(2**64 - 1)),
    ("decimal(38,10)", "-1234567890123456789012345678.0123456789", Decimal("-1234567890123456789012345678.0123456789")),
    ("decimal(65,30)", "0.1", "0.100000000000000000000000000000"),
    ("float", "16777217", 16777216.0),
    ("float", "0.1", 0.10000000149011612),
    ("double", "0.1", 0.1),
    ("double", "1.7976931348623157e308", 1.7976931348623157e308),
    ("double(10,2)", "0.126", 0.13),
    ("bit(1)", "b'1'", True),
    ("bit(12)", "b'101'", 5),
    ("bit(64)", "~0", Decimal(2**64 - 1)),
    ("year", "2024", 2024),
    ("char(5)", "'ab '", "ab"),
    ("varchar(20)", "'Æ\\n🫖\\0end'", "Æ\n🫖\0end"),
    ("varchar(20) character set latin1", "'café'", "café"),
    ("varchar(20) character set utf16", "'🫖'", "🫖"),
    ("text", "''", ""),
    ("enum('a','it''s')", "'it''s'", "it's"),
    ("set('a','b')", "'b,a'", "a,b"),
    ("binary(4)", "x'00FF'", b"\x00\xff\x00\x00"),
    ("blob", "x'00FFFB'", b"\x00\xff\xfb"),
    ("date", "'9999-12-31'", date(9999, 12, 31)),
    ("datetime", "'2024-02-29 10:11:12'", datetime(2024, 2, 29, 10, 11, 12)),
    ("datetime(6)", "'2024-02-29 10:11:12.000001'", datetime(2024, 2, 29, 10, 11, 12, 1)),
    ("timestamp(3) null", "'2024-03-31 02:30:00.5'", datetime(2024, 3, 31, 2, 30, 0, 500_000, UTC)),
    ("time(1)", "'-838:59:59.5'", "-838:59:59.5"),
    ("json", "'{\"a\": [1]}'", '{"a": [1]}'),
    ("point", "ST_GeomFromText('POINT(1.5 2)', 4326)", "SRID=4326;POINT(1.5 2)"),
    ("uuid", "'123e4567-e89b-12d3-a456-426614174000'", "123e4567-e89b-12d3-a456-426614174000"),
    ("inet6", "'::1'", "::1"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("native", "stored", "expected"), FITTING)
def test_values_that_fit(
    mariadb: MariaDatabase, source: MySqlSource, native: str, stored: str, expected: object
) -> None:
    mariadb.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {native})")
    with_null = f"SET STATEMENT sql_mode='', time_zone='+00:00' FOR INSERT INTO t VALUES (1, {stored}), (2, NULL)"  # noqa: S608
    mariadb.execute(with_null)
    assert staged(source, "t") == ([{"id": 1, "v": expected}, {"id": 2, "v": None}], {})


INVALID_VALUES = [
    ("tinyint(1)", "2", "2"),
    ("tinyint(1)", "-1", "-1"),
    ("date", "'0000-00-00'", "0000-00-00"),
    ("date", "'2024-00-00'", "2024-00-00"),
    ("datetime", "'0000-00-00'", "0000-00-00 00:00:00"),
    ("datetime(3)", "'2024-02-00 10:00:00'", "2024-02-00 10:00:00.000"),
    ("timestamp null", "'0000-00-00'", "0000-00-00 00:00:00"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("native", "stored", "original"), INVALID_VALUES)
def test_values_that_do_not_fit_are_held_with_their_original(
    mariadb: MariaDatabase, source: MySqlSource, native: str, stored: str, original: str
) -> None:
    mariadb.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {native})")
    insert = f"INSERT INTO t VALUES (1, {stored}), (2, NULL)"  # noqa: S608
    mariadb.execute(f"SET STATEMENT sql_mode='ALLOW_INVALID_DATES' FOR {insert}")
    rows, held = staged(source, "t")
    assert rows == [{"id": 1, "v": None}, {"id": 2, "v": None}]
    assert held == {('{"id":"1"}', "v"): original}


def test_rows_of_every_size_cross_the_blocks(mariadb: MariaDatabase, source: MySqlSource) -> None:
    """Around the widths of the length prefix, and over the 16 MB where the server splits a row."""
    sizes = [0, 1, 250, 251, 65_535, 65_536, 16_777_205, 16_777_215, 16_777_216, 34_000_000]
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY, a longblob, b longtext)")
    for at, size in enumerate(sizes):
        mariadb.execute(f"INSERT INTO t VALUES ({at}, REPEAT(x'FE', {size}), REPEAT('é', {size // 4}))")  # noqa: S608
    found = values(source, "t")
    assert found["id"] == list(range(len(sizes)))
    assert [a == b"\xfe" * size for a, size in zip(found["a"], sizes, strict=True)] == [True] * len(sizes)
    assert [b == "é" * (size // 4) for b, size in zip(found["b"], sizes, strict=True)] == [True] * len(sizes)


def test_many_rows_keep_their_order_and_sums(mariadb: MariaDatabase, source: MySqlSource) -> None:
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY, v decimal(12,2), w varchar(300))")
    mariadb.execute("INSERT INTO t SELECT seq, seq / 4, IF(seq % 7, REPEAT('x', seq % 300), NULL) FROM seq_1_to_150000")
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        found = pa.Table.from_batches(batches(snapshot, snapshot.chunks(read, "t", EVERYTHING)))
        assert snapshot.count(read) == found.num_rows
    assert found.column(0).to_pylist() == list(range(1, 150_001))
    total, length, nulls = mariadb.execute("SELECT SUM(v), SUM(LENGTH(w)), SUM(w IS NULL) FROM t")[0]
    assert pa.compute.sum(found.column(1)).as_py() == total
    assert pa.compute.sum(pa.compute.binary_length(found.column(2))).as_py() == length
    assert found.column(2).null_count == nulls


KEYS = [
    ("int", "id int PRIMARY KEY", 4),
    ("unsigned", "id bigint unsigned PRIMARY KEY", 4),
    ("composite", "id int, o int, PRIMARY KEY (id, o)", 4),
    ("text", "id varchar(20) PRIMARY KEY", 1),
    ("none", "id int", 1),
]


@pytest.mark.parametrize(("columns", "count"), [k[1:] for k in KEYS], ids=[k[0] for k in KEYS])
def test_chunks_of_one_table_share_a_lane_and_yield_each_row_once(
    mariadb: MariaDatabase, source: MySqlSource, monkeypatch: pytest.MonkeyPatch, columns: str, count: int
) -> None:
    mariadb.execute(f"CREATE TABLE t ({columns})")
    mariadb.execute("INSERT INTO t (id) SELECT seq FROM seq_1_to_4000" if "o int" not in columns else
                    "INSERT INTO t (id, o) SELECT seq, 1 FROM seq_1_to_4000")  # fmt: skip
    mariadb.execute("ANALYZE TABLE t")
    monkeypatch.setattr(module, "CHUNK_ROWS", 1300)
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(read, "a key", EVERYTHING)
        found = [v for b in batches(snapshot, chunks) for v in b.column(0).to_pylist()]
    assert sorted(map(int, found)) == list(range(1, 4001))
    assert (len(chunks), {c.lane for c in chunks}) == (count, {"a key"})


def test_a_lane_is_one_moment_not_before_the_snapshot(mariadb: MariaDatabase, source: MySqlSource) -> None:
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mariadb.execute("INSERT INTO t VALUES (1)")
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        (chunk,) = snapshot.chunks(read, "t", EVERYTHING)
        mariadb.execute("INSERT INTO t VALUES (2)")
        with snapshot.reader.open() as session:
            mariadb.execute("INSERT INTO t VALUES (3)")
            assert [b.num_rows for b in session.read(chunk)] == [2]
        assert snapshot.count(read) == 3, "the planner keeps no transaction, and no lock"


CURSORS = [
    ("bigint", ["9007199254740992", "9007199254740993"], "9007199254740993", "9007199254740993", 0),
    ("decimal(30,2)", ["0.10", "12345678901234567890.12"], "12345678901234567890.12", "12345678901234567890.12", 0),
    ("double", ["0.1", "0.30000000000000004"], "0.30000000000000004", "0.30000000000000004", 0),
    ("datetime(6)", ["'2024-01-01'", "'2024-03-01'"], "2024-03-01 00:00:00.000000", "2024-02-29 23:59:59.500000", 0.5),
    ("timestamp null", ["'2024-01-01'", "'2024-03-01'"], "2024-03-01 00:00:00", "2024-02-29 23:00:00.000000", 3600),
    ("date", ["'2024-01-01'", "'2024-03-01'"], "2024-03-01", "2024-02-29", 86_400),
    ("varchar(9)", ["'a'", "'b''\\\\'"], "b'\\", "b'\\", 0),
]


@pytest.mark.parametrize(("native", "stored", "upper", "lower", "lookback"), CURSORS)
def test_cursors_compare_as_the_column_does(
    mariadb: MariaDatabase, source: MySqlSource, native: str, stored: list[str], upper: str, lower: str, lookback: float
) -> None:
    mariadb.execute(f"CREATE TABLE t (v {native})")
    rows = ", ".join(f"({v})" for v in [*stored, "NULL"])
    mariadb.execute(f"SET STATEMENT time_zone='+00:00' FOR INSERT INTO t VALUES {rows}")  # noqa: S608
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        start, bounds = snapshot.cursor_bounds(read, "v", upper, lookback)
        assert (start, bounds.upper, bounds.nulls) == (lower, upper, 1)
        (chunk,) = snapshot.chunks(read, "t", CursorRange("v", start, bounds.upper))
        assert [b.num_rows for b in batches(snapshot, [chunk])] == [1]


REFUSED: list[tuple[str, str | None, float, str]] = [
    ("enum('a')", None, 0, "no order"),
    ("tinyint(1)", None, 0, "no order"),
    ("blob", None, 0, "no order"),
    ("time", None, 0, "no order"),
    ("int", "1 OR 1=1", 1, "not a number"),
    ("datetime", "soon", 1, "not a date"),
    ("varchar(5)", "a", 1, "cannot be moved back"),
]


@pytest.mark.parametrize(("native", "after", "lookback", "message"), REFUSED)
def test_cursors_that_cannot_be(
    mariadb: MariaDatabase, source: MySqlSource, native: str, after: str | None, lookback: float, message: str
) -> None:
    mariadb.execute(f"CREATE TABLE t (v {native})")
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot, pytest.raises(ReadError, match=message) as failed:
        snapshot.cursor_bounds(read, "v", after, lookback)
    assert "t.v" in failed.value.message
    assert failed.value.hint


def test_a_chunk_left_early_does_not_spoil_the_next_reader(mariadb: MariaDatabase, source: MySqlSource) -> None:
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mariadb.execute("INSERT INTO t SELECT seq FROM seq_1_to_200000")
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        (chunk,) = snapshot.chunks(read, "t", EVERYTHING)
        with snapshot.reader.open() as session:
            reading = session.read(chunk)
            assert next(iter(reading)).num_rows == 65_536
            reading.close()  # type: ignore[attr-defined]
            with pytest.raises(ReadError):
                list(session.read(chunk))
        assert sum(b.num_rows for b in batches(snapshot, [chunk])) == 200_000


MOVES = [("DROP TABLE t", "changed"), ("ALTER TABLE t DROP COLUMN v", "changed")]


@pytest.mark.parametrize(("sql", "message"), MOVES)
def test_a_table_that_moved_is_named(mariadb: MariaDatabase, source: MySqlSource, sql: str, message: str) -> None:
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(read, "shop.t", EVERYTHING)
        mariadb.execute(sql)
        with pytest.raises(ReadError, match=f"reading shop.t.*{message}"):
            batches(snapshot, chunks)


@pytest.mark.slow
def test_a_connection_killed_in_mid_read_is_a_read_error(mariadb: MariaDatabase, source: MySqlSource) -> None:
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(900))")
    mariadb.execute("INSERT INTO t SELECT seq, REPEAT('x', 900) FROM seq_1_to_200000")
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot, snapshot.reader.open() as session:
        (chunk,) = snapshot.chunks(read, "t", EVERYTHING)
        reading = iter(session.read(chunk))
        next(reading)
        mariadb.execute(f"KILL {session.connection.thread_id()}")
        with pytest.raises(ReadError, match="connection was lost") as failed:
            list(reading)
    assert "`instep sync` again" in failed.value.hint


def test_a_silent_server_is_given_up_after_the_read_timeout(mariadb: MariaDatabase) -> None:
    source = MySqlSource(mariadb.config.model_copy(update={"read_timeout": 2}))
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mariadb.execute("CREATE VIEW slow AS SELECT SLEEP(60) AS s")
    read = accept(find(MySqlSource(mariadb.config), "slow"))
    with source.snapshot() as snapshot, pytest.raises(ReadError, match=r"no word from the server for 2 s"):
        batches(snapshot, snapshot.chunks(read, "slow", EVERYTHING))


def test_two_sessions_read_side_by_side(mariadb: MariaDatabase, source: MySqlSource) -> None:
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mariadb.execute("INSERT INTO t SELECT seq FROM seq_1_to_100000")
    read = accept(find(source, "t"))
    counts: list[Any] = []
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(read, "t", EVERYTHING)
        count = lambda: counts.append(sum(b.num_rows for b in batches(snapshot, chunks)))  # noqa: E731
        threads = [threading.Thread(target=count) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == [100_000, 100_000]


def test_the_server_that_is_gone_is_named(mariadb_server: MariaServer) -> None:
    gone = mariadb_server.admin.model_copy(update={"port": 1})
    assert "nothing listens there" in MySqlSource(gone).test()[0].detail
