"""`spark.read.format("instep")`: a table of a source as a DataFrame, by Spark's Python data sources.

Spark plans in a worker process beside its driver and reads in tasks. The project is opened by a process of its own,
which holds the source's snapshot while tasks read. What they read by travels in the partitions, in memory: no option,
setting or plan shows a secret.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from instep import errors
from instep.errors import InstepError, ProjectError, ReadError, SetupError
from instep.schema.catalog.types import parse
from instep.spark.payload import unpacked
from instep.spark.types import spark_type

NAME = "instep"
OPTIONS = ("project", "connection", "table", "on_invalid_value", "snapshot_seconds")
INVALID = ("fail", "null")
SNAPSHOT_SECONDS = 300
_START = (
    "import os\n"
    "if os.fork(): os._exit(0)\n"  # nobody has to wait for a process that outlives the one that has asked for it
    "os.setsid()\n"
    "from instep.bootstrap.source_reads import main\n"
    "main()\n"
)


@dataclass(frozen=True)
class ReadRequest:
    """A table to read, for the process that opens the project."""

    project: str
    connection: str
    table: str
    on_invalid_value: str = "fail"
    snapshot_seconds: int = SNAPSHOT_SECONDS
    columns: Sequence[str] | None = None
    """The columns that Spark expects, in order; None: nothing is read, the answer is what they are."""
    spark: int = 0
    """The id of a process that ends with Spark."""


class TableSource(DataSource):
    """One table of one connection's source. Options: see `OPTIONS`; names are refused that are not among them."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Return the accepted columns that are switched on, as Spark types."""
        found = ask(request_of(self.options))
        return StructType([StructField(name, spark_type(parse(kind)), True) for name, kind in found])

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(request_of(self.options), tuple(schema.names))


def request_of(options: Mapping[str, str]) -> ReadRequest:
    """Return the request that these options of a DataFrameReader make; ProjectError if they are wrong."""
    if unknown := sorted(set(options) - set(OPTIONS)):
        hint = f"options are {', '.join(OPTIONS)}; logins come from the project"
        raise ProjectError(f'format("{NAME}") has no option {unknown[0]}', hint=hint)
    for name in OPTIONS[:3]:
        if not options.get(name):
            raise ProjectError(f'format("{NAME}") needs the option {name}', hint=f'add .option("{name}", ...)')
    invalid = options.get("on_invalid_value") or INVALID[0]
    if invalid not in INVALID:
        raise ProjectError(f"on_invalid_value is {' or '.join(INVALID)}, not {invalid!r}", hint="correct the option")
    seconds = options.get("snapshot_seconds") or str(SNAPSHOT_SECONDS)
    if not (seconds.isascii() and seconds.isdigit() and 0 < int(seconds) <= 86_400):
        raise ProjectError(f"snapshot_seconds is 1 to 86400, not {seconds!r}", hint="correct the option")
    return ReadRequest(options["project"], options["connection"], options["table"], invalid, int(seconds))


class Part(InputPartition):
    """What one task reads. It may hold a login, so that its text shows nothing."""

    def __init__(self, work: bytes, folder: str, host: str) -> None:
        self.work, self.folder, self.host = work, folder, host

    def __repr__(self) -> str:
        return "Part()"


class TableReader(DataSourceReader):
    """Plans in a worker beside the driver, reads in tasks."""

    def __init__(self, request: ReadRequest, columns: Sequence[str]) -> None:
        self._request, self._columns = request, columns

    def partitions(self) -> Sequence[InputPartition]:
        """Return the source's own chunks, of one snapshot that stays open while they are read."""
        from dataclasses import replace

        request = replace(self._request, columns=self._columns, spark=os.getppid())
        folder, work = ask(request)
        return [Part(one, folder, os.uname().nodename) for one in work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part. What fails is raised without what caused it, which may quote a login."""
        assert isinstance(partition, Part)
        try:
            yield from _rows(partition)
        except InstepError as error:
            raise self._closed(partition) or error.with_traceback(None) from None
        except Exception as error:
            failure = ReadError(
                f"{self._request.table}: reading failed: {type(error).__name__}",
                hint="check it with `instep source test`",
            )
            raise self._closed(partition) or failure from None

    def _closed(self, part: Part) -> InstepError | None:
        """Return the error of a read whose snapshot is closed, if that can be seen from this machine."""
        if part.host != os.uname().nodename or Path(part.folder).is_dir():
            return None
        return ReadError(
            f"{self._request.table}: the snapshot of this read is closed, for nothing was read for "
            f"{self._request.snapshot_seconds} s",
            hint="load the table again; the option snapshot_seconds keeps a snapshot open for longer",
        )


def _rows(part: Part) -> Iterator[pa.RecordBatch]:
    from instep.stage.inline import conformed_rows

    reader, spec, chunks, share = unpacked(part.work)
    with noted(part.folder) as note:
        for batch in conformed_rows(reader, spec, chunks, rows_per_second=share):
            note()
            yield batch


@contextmanager
def noted(folder: str) -> Iterator[Any]:
    """Let the process with the snapshot see that a task reads; nothing is done on other machines than that one."""
    mark = Path(folder) / uuid.uuid4().hex

    def note() -> None:
        with suppress(OSError):  # its folder is on another machine, or the snapshot is closed
            mark.touch()

    note()
    try:
        yield note
    finally:
        with suppress(OSError):
            mark.unlink()


def ask(request: ReadRequest) -> Any:
    """Return what a process of its own answers: columns with their types, or the work of each part.

    It gets the request on its standard input and ends once the snapshot that it holds is not needed any more.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        close_fds=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps(vars(request)).encode())
        answer = process.stdout.read()
    if not answer:
        raise SetupError(
            f"instep could not be started by {sys.executable}", hint="install instep where Spark's driver runs"
        )
    kind, found = pickle.loads(answer)
    if kind == "error":
        name, message, hint = found
        raise getattr(errors, name, InstepError)(message, hint=hint)
    return found
