"""The same binary log, read by another library: the rows, tables and statements that it finds are those we find."""

from __future__ import annotations

from typing import Any

import pytest
from binlog_changes import BinlogChanges
from binlog_world import BinlogWorld, admin
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from instep.sources.mysql.binlog.stream import dump
from instep.sources.mysql.binlog.values import KeyColumn, images
from instep.sources.mysql.binlog.wire import BinlogStatement, RowImages, TableMap

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
KEYS = {"item": (0,), "part": (0,), "owner": (0,), "owned": (0,)}


def ours(world: BinlogWorld, start: tuple[str, int], upto: tuple[str, int]) -> list[Any]:
    """Statements, and rows as (table, change, integer keys)."""
    found: list[Any] = []
    maps: dict[int, TableMap] = {}
    assert world.database is not None
    with dump(world.database.config, start) as stream:
        for event, _ in stream.events(upto):
            if isinstance(event, BinlogStatement):
                found.append(event.text)
            elif isinstance(event, TableMap):
                maps[event.number] = event
            elif isinstance(event, RowImages) and (table := maps[event.number].ref[1]) in KEYS:
                native = "bigint" if table == "part" else "int"
                cut = images(maps[event.number], KEYS[table], [KeyColumn("id", native)])
                found.append((table, event.change, [int(str(k[0])) for k in cut.keys(event)]))
    return found


def theirs(world: BinlogWorld, start: tuple[str, int], upto: tuple[str, int]) -> list[Any]:
    assert world.database is not None
    config = world.database.config
    login = {"host": config.host, "port": config.port, "user": config.user, "password": config.password.encode()}
    stream = BinLogStreamReader(
        connection_settings=login, server_id=4_000_000_000, log_file=start[0], log_pos=start[1], resume_stream=True,
        end_log_pos=upto[1], only_events=[QueryEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )  # fmt: skip
    found: list[Any] = []
    try:
        for event in stream:
            if isinstance(event, QueryEvent):
                found.append(event.query)
            elif event.table in KEYS:
                found.append((event.table, *_rows(event)))
    finally:
        stream.close()
    return found


def _rows(event: Any) -> tuple[str, list[int]]:
    if isinstance(event, UpdateRowsEvent):
        pairs = [(row["before_values"], row["after_values"]) for row in event.rows]
        return "update", [next(iter(values.values())) for pair in pairs for values in pair]
    change = "insert" if isinstance(event, WriteRowsEvent) else "delete"
    return change, [next(iter(row["values"].values())) for row in event.rows]


def test_two_readers_of_one_log(binlog_world: BinlogWorld) -> None:
    world = binlog_world
    assert world.database is not None
    admin(world, "FLUSH BINARY LOGS")
    start = admin(world, "SHOW MASTER STATUS")[0][:2]
    world.run(*BinlogChanges.SETUP)
    BinlogChanges(world.database, 3, ddl=0).run(3_000)
    upto = admin(world, "SHOW MASTER STATUS")[0][:2]
    found = ours(world, start, upto)
    assert len(found) > 300
    assert found == theirs(world, start, upto)
