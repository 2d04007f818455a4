"""Staged files into a staging table: by threads of this process, or by tasks of Spark.

A task may run again, and twice at a time. So each of its files comes in one transaction with the file's number in a
table beside, which takes a number once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.postgres.connect import Arrow, PostgresServerConfig, open_arrow, translated
from instep.destinations.sql.session import BATCH
from instep.destinations.sql.staged import ORDER, StagingArea
from instep.errors import DestinationError, StageError
from instep.stage.spec import StagedFile
from instep.stage.task import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = 1 << 40
CONNECTIONS = 16
"""The most connections that the tasks of one table have to the server."""


@dataclass(frozen=True)
class CopyTask:
    """Files with their numbers among all that come into `table`; `parts`: the table of the numbers that are there."""

    config: PostgresServerConfig = field(repr=False)
    area: StagingArea = field(repr=False)
    table: str
    schema: pa.Schema
    """The columns as COPY takes them."""
    numbered: bool
    """Each row has its number, too."""
    files: Sequence[tuple[int, StagedFile]]
    parts: str = ""

    def copy(self, arrow: Arrow, number: int, file: StagedFile) -> None:
        """Append the rows of a file; FileNotFoundError if it is not to be seen here."""
        arrow.append(self.table, _rows(self, number, file), (self.parts, number) if self.parts else None)


def copy_by_threads(work: CopyTask, arrow: Callable[[], AbstractContextManager[Arrow]]) -> None:
    """Copy the files over connections of this process, each once."""

    def copy(number: int, file: StagedFile) -> None:
        with arrow() as connection:
            try:
                work.copy(connection, number, file)
            except FileNotFoundError as error:
                raise StageError(f"staged file {file.path} is gone: nothing was written", hint="sync again") from error

    with ThreadPoolExecutor(max(1, min(len(work.files), os.cpu_count() or 1)), thread_name_prefix="copy") as pool:
        for done in [pool.submit(copy, *file) for file in work.files]:
            done.result()


def copy_by_tasks(session: SparkSession, work: CopyTask) -> Sequence[tuple[int, StagedFile]]:
    """Copy the files by tasks, the large ones first; return those that their machines do not see."""
    from instep.spark.extract import run_parts

    files = sorted(work.files, key=lambda f: f[1].rows, reverse=True)
    parts = [replace(work, files=files[first::CONNECTIONS]) for first in range(min(CONNECTIONS, len(files)))]
    return [file for unseen in run_parts(session, copy_files, parts, what="copy") for file in unseen]


def copy_files(work: CopyTask, attempt: int, report: Report | None) -> Sequence[tuple[int, StagedFile]]:
    """Copy the files over one connection of this task; return those that are not to be seen here."""
    unseen = []
    with translated(work.config):
        arrow = open_arrow(work.config)
        try:
            for number, file in work.files:
                try:
                    work.copy(arrow, number, file)
                except FileNotFoundError:
                    unseen.append((number, file))
        finally:
            arrow.close()
    return unseen


def _rows(work: CopyTask, number: int, file: StagedFile) -> pa.RecordBatchReader:
    """Return the rows of a file, which may be from before another shard widened a column."""
    schema, opened = work.schema, pq.ParquetFile(work.area.open(file))
    names = set(opened.schema_arrow.names)
    if missing := [n for n in schema.names if n not in names]:
        raise DestinationError(
            f"a staged file has no column {missing[0]!r}, which the table has",
            hint="the table was changed while rows were staged: sync again",
        )
    batches = opened.iter_batches(BATCH, columns=schema.names)
    plain = (b.select(schema.names).cast(schema) for b in batches)
    if not work.numbered:
        return pa.RecordBatchReader.from_batches(schema, plain)
    wide = schema.append(pa.field(ORDER, pa.int64()))
    return pa.RecordBatchReader.from_batches(wide, _numbered(number, plain, wide))


def _numbered(number: int, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with their numbers among all."""
    at = number * _FILE
    for batch in batches:
        places = pa.array(range(at, at + len(batch)), pa.int64())
        yield pa.RecordBatch.from_arrays([*batch.columns, places], schema=schema)
        at += len(batch)
