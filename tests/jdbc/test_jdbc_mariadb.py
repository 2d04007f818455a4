"""MariaDB by way of its driver: a database whose names have other quotes, without schemas, and whose driver makes NULL
of some dates and rounds floats unless it is asked in the right way."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from contract.sources import Case
from instep.project.sections.jdbc import JdbcJar
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.source import JdbcSource
from instep.sources.mysql.types import quoted
from jdbc_world import session
from mariadb import MariaDatabase
from sync_world import World, cursor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
DRIVER = JdbcJar(
    maven="org.mariadb.jdbc:mariadb-java-client:3.5.3",
    sha256="85c4ba2f221d0dfd439c26affbb294f784960763544263c65aba9c2c76858706",
)


def test_rows_are_values_and_not_names(mariadb: MariaDatabase, tmp_path: Path) -> None:
    own = mariadb.config

    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> JdbcSource:
        config = JdbcConfig.resolved(
            subprotocol="mariadb", host=own.host, port=own.port, database=own.database, user=own.user,
            password=own.password,
            jars=(DRIVER,), include=include, exclude=exclude, partitions=2,
        )  # fmt: skip
        return JdbcSource(config, session)

    world = World(Case("jdbc", own.database, mariadb.execute, source, quoted), tmp_path, session, engine="spark")
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, f float, b bit(1), u bigint unsigned, s varchar(20), y tinyint(1), "
        "d date, at datetime(6))",
        "SET STATEMENT sql_mode = 'ALLOW_INVALID_DATES' FOR INSERT INTO t VALUES "
        "(1, 3.4028235e38, b'1', 18446744073709551615, 'c1', 5, '2024-02-29', '2024-02-29 10:00:00.000001'), "
        "(2, 16777217, b'0', 0, '', 0, '0000-00-00', '0000-00-00 00:00:00')",
        "CREATE TABLE `back``tick` (id int PRIMARY KEY, `or``der` int NOT NULL)",
        "INSERT INTO `back``tick` VALUES (1, 7), (2, 8)",
    )
    world.settings["back`tick"] = cursor("or`der")
    report = world.sync()
    assert {t.table[1]: (t.status, t.error, t.invalid_values) for t in report.tables} == {
        "t": ("done", "", 2), "back`tick": ("done", "", 0),
    }  # fmt: skip
    [first, second] = world.rows("t")
    assert list(map(str, first[2:])) == [
        "True", "18446744073709551615", "c1", "5", "2024-02-29", "2024-02-29 10:00:00.000001"
    ]  # fmt: skip
    assert struct.pack(">f", first[1]) == bytes.fromhex("7f7fffff")
    assert list(map(str, second[1:])) == ["16777216.0", "False", "0", "", "0", "None", "None"]
    world.run("INSERT INTO `back``tick` VALUES (3, 9)")
    world.sync()
    assert world.rows("back`tick") == [(1, 7), (2, 8), (3, 9)]
    assert world.differing() == {}
    world.close()
