"""Values that a server has although it should not, or cannot send: held with their original, or an error that names the
row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from instep.errors import ReadError
from instep.sources.mysql.source import MySqlSource
from instep.sources.postgres.source import PostgresSource
from mariadb import MariaDatabase, open_as
from postgres_server import Database
from source_reads import staged

_ODD = r"""(1, E'caf\xe9', ARRAY[E'\xe9', 'a'], E'"\xe9"', 1.5), (2, E'\xc3\xa9', ARRAY['x'], '1', -2)"""


def test_bytes_that_are_no_text(postgres: Database) -> None:
    """A server with the encoding SQL_ASCII takes any bytes for a text."""
    name = f"{postgres.config.database}_ascii"
    postgres.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        odd = Database(postgres.config.model_copy(update={"database": name}), postgres.reader)
        odd.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b text[], c json, d numeric(3,1))")
        odd.execute(f"INSERT INTO t VALUES {_ODD}")  # noqa: S608 - from above
        rows, held = staged(PostgresSource(odd.config), "t")
        shown = [{k: str(v) for k, v in row.items()} for row in rows]
        assert shown[0] == {"id": "1", "a": "None", "b": "None", "c": "None", "d": "1.5"}
        assert shown[1] == {"id": "2", "a": "é", "b": '["x"]', "c": "1", "d": "-2.0"}
        originals = {column: text for (_, column), text in held.items()}
        assert originals == {"a": "\\x636166e9", "b": '["\\\\xe9","a"]', "c": "\\x22e922"}
    finally:
        postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def packets(database: MariaDatabase, size: int) -> Iterator[None]:
    """New connections have this max_allowed_packet, in bytes."""
    with open_as(database.admin) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@global.max_allowed_packet")
        (before,) = cursor.fetchone() or (0,)
        cursor.execute("SET GLOBAL max_allowed_packet = %s", (size,))
        try:
            yield
        finally:
            cursor.execute("SET GLOBAL max_allowed_packet = %s", (before,))


@pytest.mark.parametrize(("points", "before"), [(400, b"\xff"), (1000, b"")], ids=["text", "bytes"])
def test_a_geometry_longer_than_a_packet(mariadb: MariaDatabase, points: int, before: bytes) -> None:
    """MariaDB's functions give NULL for what is longer: no value is lost."""
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY, g linestring)")
    line = ", ".join(f"{at}.123456789012345 -{at}.123456789012345" for at in range(points))
    mariadb.execute(f"INSERT INTO t VALUES (1, ST_GeomFromText('LINESTRING({line})')), (2, NULL)")  # noqa: S608
    (kept,) = mariadb.execute("SELECT g FROM t WHERE id = 1")[0]
    with packets(mariadb, 12_288):
        rows, held = staged(MySqlSource(mariadb.config), "t")
    assert rows == [{"id": 1, "g": None}, {"id": 2, "g": None}]
    (original,) = held.values()
    assert original is not None
    assert bytes.fromhex(original[2:]) == before + kept


@pytest.mark.slow
def test_a_row_that_cannot_be_sent(postgres: Database) -> None:
    """16 s: each of its values is 600 MB long, and a row may have 1 GB."""
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b text)")
    postgres.execute("INSERT INTO t VALUES (1, 'x', 'y'), (7, repeat('a', 600000000), NULL)")
    postgres.execute("UPDATE t SET b = repeat('b', 600000000) WHERE id = 7")
    with pytest.raises(ReadError, match=r"larger than the 1 GB .* the largest, id=7, has 1144 MB") as failed:
        staged(PostgresSource(postgres.config), "t")
    assert failed.value.hint
