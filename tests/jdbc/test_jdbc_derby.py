"""A database that nothing is known of: Derby, which comes with Spark, in memory, in the JVM of the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.sources import Case
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.source import JdbcSource
from instep.spark.jdbc import connect
from jdbc_world import session
from quarantined import entries_in
from sync_world import World, cursor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
URL = "jdbc:derby:memory:shop"
DRIVER = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
CREATE = """
    CREATE TABLE "T 1" (id bigint NOT NULL PRIMARY KEY, b boolean, s smallint DEFAULT 7, i int, d decimal(31,5),
    r real, f double, c char(3), v varchar(40), x clob, y varchar(2) FOR BIT DATA, z blob, da date, ti time,
    ts timestamp)
"""
ROW = """
    INSERT INTO "T 1" VALUES (1, true, -32768, 2147483647, 12345678901234567890123456.54321, 1.1, 0.1, 'a', 'it''s',
    'long', X'00ff', CAST(X'5c27' AS blob), '0001-01-01', '23:59:59', '1582-10-04 02:30:00.000001')
"""


def execute(*statements: str, url: str = URL) -> None:
    with connect(session(), JdbcConfig.resolved(url=url, driver=DRIVER).login, "derby") as connection:
        connection.raw.setReadOnly(False)
        statement = connection.raw.createStatement()
        for sql in statements:
            statement.execute(sql)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    def source(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> JdbcSource:
        return JdbcSource(JdbcConfig.resolved(url=URL, driver=DRIVER, include=include, exclude=exclude), session)

    session()._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    execute(url=f"{URL};create=true")
    made = World(Case("jdbc", "APP", execute, source, str), tmp_path, session, engine="spark")
    yield made
    made.close()
    for name in ('"T 1"', "U"):
        execute(f"DROP TABLE {name}")


def test_an_unknown_database(world: World) -> None:
    world.run(CREATE, ROW, "INSERT INTO \"T 1\" (id, ts) VALUES (2, '2024-02-29 10:00:00.123456789')")
    world.run("CREATE TABLE U (d date NOT NULL PRIMARY KEY, moment timestamp)")
    world.run("INSERT INTO U VALUES ('2024-01-01', '2024-01-01 00:00:00.5'), ('2024-02-01', NULL)")
    world.settings["U"] = cursor("MOMENT")
    report = world.sync()
    assert world.statuses(report) == {"T 1": "done", "U": "done"}
    assert world.schema("T 1") == (
        "ID int64!, B boolean, S int16, I int32, D decimal(31,5), R float32, F float64, C string(3), V string(40), "
        "X string, Y binary(2), Z binary, DA date, TI time, TS timestamp"
    )
    [first, second] = world.rows("T 1")
    assert list(map(str, first)) == [
        "1", "True", "-32768", "2147483647", "12345678901234567890123456.54321", str(first[5]), "0.1", "a  ", "it's",
        "long", r"b'\x00\xff'", str(b"\x5c'"), "0001-01-01", "23:59:59",
        "1582-10-04 02:30:00.000001",
    ]  # fmt: skip
    assert second[2] == 7
    assert second[-1] is None
    entries = _held(world)
    assert [(e.column, e.original, e.reason) for e in entries] == [
        ("TS", "2024-02-29 10:00:00.123456789", "finer than a microsecond")
    ]
    world.run("INSERT INTO U VALUES ('2024-03-01', '2024-03-01 00:00:00.000001')", "DELETE FROM U WHERE moment IS NULL")
    assert world.statuses(world.sync()) == {"T 1": "done", "U": "done"}
    assert world.differing() == {}


def _held(world: World) -> Any:
    from instep.schema.planning.naming import destination_ref

    target = world.destination.write.target(destination_ref(world.accepted("T 1"), world.context.naming))
    return entries_in(target.quarantine, target.io)
