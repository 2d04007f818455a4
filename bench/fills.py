"""A column that came later: its values filled in, beside reading the whole table again.

The source gets a column whose values differ from row to row and does not move the cursor; the next sync accepts it and
finds nothing to read. Then the same lake is made whole twice: by `backfill --column`, then by `backfill`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from psycopg import sql

from data import Workload, generate, record_truth, run
from lines import Line
from server import Server
from suites import Record, Suite, checked, new_task, run_once
from wire import Wire, counted

COLUMN = "discount"
ADD = (
    "alter table {table} add column discount numeric(8,4)",
    "update {table} set discount = (id % 1000) / 8.0",
    "vacuum full {table}",
    "vacuum analyze {table}",
    "checkpoint",
)


def add_column(server: Server, workload: Workload) -> Workload:
    """Adds the column at the source; returns the workload with it."""
    with server.connect() as connection:
        for statement in ADD:
            run(connection, statement, sql.Identifier(workload.schema, workload.tables[0]))
    return replace(workload, columns=(*workload.columns, (COLUMN, "decimal")))


def run_fills(suite: Suite, lines: Sequence[Line], server: Server, runs: int) -> Iterator[Record]:
    chosen = [line for line in lines if suite.name in line.suites]
    with counted(server.port) as wire:
        for number in range(1, runs + 1):
            for line in chosen:
                yield from fill_round(suite, line, server, wire, number)


def fill_round(suite: Suite, line: Line, server: Server, wire: Wire, number: int) -> Iterator[Record]:
    generate(server, suite.workload)
    with new_task(suite, line, replace(server, port=wire.port)) as task:
        yield run_once(suite, line, task, "first", number)
        filled = add_column(server, suite.workload)
        yield run_once(suite, line, task, "first", number)
        truth = record_truth(server, filled)
        again = replace(task, workload=filled, again=True)
        for phase, option in {"column": ["--column", COLUMN], "table": []}.items():
            wire.take()
            record = run_once(suite, line, again, phase, number, [*line.follow_up(again), *option])
            record["wire"] = wire.take()
            yield checked(record, line, again, truth)
