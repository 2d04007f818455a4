"""`spark.read.format("instep")`: a table of a source as a DataFrame, by Spark's Python data sources.

Spark plans in a worker process beside its driver and reads in tasks. The project is opened by a process of its own,
which holds the source's snapshot while tasks are connected to it, and tells them whether it still shows the table. What
they read by travels in the partitions, in memory: no option, setting or plan shows a secret.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from instep import errors
from instep.errors import InstepError, ProjectError, ReadError, SetupError
from instep.redaction import blot
from instep.schema.catalog.types import parse
from instep.spark.payload import unpacked
from instep.spark.types import spark_type

NAME = "instep"
OPTIONS = ("project", "connection", "table", "on_invalid_value", "snapshot_seconds")
INVALID = ("fail", "null")
SNAPSHOT_SECONDS = 30
LENGTH = struct.Struct("!Q")
"""The header of an answer: how many bytes it has."""
_SECONDS = 30.0
_CHECK_SECONDS = 600.0
"""Seconds in which the process with the snapshot connects, and in which the source tells whether a table has moved."""
_START = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"  # nobody has to wait for a process that outlives the one that has asked for it
    "os.setsid()\n"
    "from instep.bootstrap.source_reads import main\n"
    "main(int(sys.argv[1]))\n"
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
    host: str = ""
    """The address at which tasks on other machines reach the driver's; "": all tasks run on it."""


class TableSource(DataSource):
    """One table of one connection's source. Options: see `OPTIONS`; names are refused that are not among them."""

    host = ""
    """See `ReadRequest.host`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Return the accepted columns that are switched on, as Spark types."""
        columns = ask(request_of(self.options))
        return StructType([StructField(name, spark_type(parse(kind)), True) for name, kind in columns])

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(replace(request_of(self.options), host=self.host), tuple(schema.names))


def source_reached_at(host: str) -> type[TableSource]:
    """Return the source for a session whose tasks reach the driver's machine there."""
    return type("TableSource", (TableSource,), {"host": host})  # not what the module calls so: pickled with its host


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
    """The part that one task reads. It may hold a login, so that its text shows nothing."""

    def __init__(self, work: bytes, port: int, token: bytes, host: str, node: str) -> None:
        self.work, self.port, self.token, self.host, self.node = work, port, token, host, node

    def __repr__(self) -> str:
        return "Part()"


class TableReader(DataSourceReader):
    """Plans in a worker beside the driver, reads in tasks."""

    def __init__(self, request: ReadRequest, columns: Sequence[str]) -> None:
        self._request, self._columns = request, columns

    def partitions(self) -> Sequence[InputPartition]:
        """Return the source's own chunks, of one snapshot that stays open while they are read."""
        request = replace(self._request, columns=self._columns, spark=os.getppid())
        port, token, work = ask(request)
        return [Part(part, port, token, request.host, os.uname().nodename) for part in work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part. What fails is raised without what caused it, which may quote a login."""
        assert isinstance(partition, Part)
        try:
            yield from self._rows(partition)
        except InstepError as error:
            raise error.with_traceback(None) from None
        except Exception as error:
            raise ReadError(
                f"{self._request.table}: reading failed: {type(error).__name__}",
                hint="check it with `instep source test`",
            ) from None

    def _rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield rows once it is certain that the snapshot shows the table, and make sure of it again after the last."""
        from instep.stage.local import conformed_rows

        reader, spec, chunks, share = unpacked(part.work)
        with self._attached(part) as check:
            checked = False
            for batch in conformed_rows(reader, spec, chunks, rows_per_second=share):
                if not checked:  # a task may be ended before its last row
                    check()
                    checked = True
                yield batch
            check()

    @contextmanager
    def _attached(self, part: Part) -> Iterator[Callable[[], None]]:
        """Keep the snapshot open; yield what raises ReadError unless the snapshot still shows the table as it was."""
        with self._connected(part) as link:
            link.settimeout(_CHECK_SECONDS)

            def check() -> None:
                why = ""
                try:
                    link.sendall(b"?")
                    with link.makefile("rb") as answer:
                        why = framed(answer).decode()
                except (OSError, EOFError):
                    raise self._closed(part) from None
                if why:
                    raise ReadError(why, hint="load the table again")

            yield check

    def _connected(self, part: Part) -> socket.socket:
        """Return a connection to the process with the snapshot; ReadError if there is none, or it is another one."""
        hosts = ["127.0.0.1"] if part.node == os.uname().nodename else []
        for host in [*hosts, *filter(None, (part.host, part.host and part.node))]:
            with suppress(OSError):
                link = socket.create_connection((host, part.port), _SECONDS)
                try:
                    link.sendall(part.token)
                    if link.recv(1) == b"+":
                        return link
                except OSError:
                    pass
                link.close()
        raise self._closed(part)

    def _closed(self, part: Part) -> InstepError:
        node = os.uname().nodename
        where = "" if part.node == node else f", or {part.host}:{part.port} cannot be reached from {node}"
        return ReadError(
            f"{self._request.table}: the snapshot of this read is closed{where}: it stays open for "
            f"{self._request.snapshot_seconds} s after its last task",
            hint="load the table again; the option snapshot_seconds keeps a snapshot open for longer",
        )


def framed(answer: IO[bytes]) -> bytes:
    """Return one answer that comes after its length; EOFError if it does not come."""
    head = answer.read(LENGTH.size)
    data = answer.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
    if len(head) < LENGTH.size or len(data) < LENGTH.unpack(head)[0]:
        raise EOFError
    return data


def ask(request: ReadRequest) -> Any:
    """Return what a process of its own answers: columns with their types, or the work of each part.

    It gets the request on its standard input, answers on a descriptor of its own, and ends once the snapshot that it
    holds is no longer needed.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    reads, writes = os.pipe()
    with tempfile.TemporaryFile() as printed, open(reads, "rb") as answer:
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, str(writes)],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                env=environment,
                pass_fds=(writes,),
            )
        finally:
            os.close(writes)
        with process:
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(json.dumps(vars(request)).encode())
            try:
                kind, result = pickle.loads(framed(answer))
            except EOFError:
                raise SetupError(
                    f"instep could not be started by {sys.executable}{_last_error(printed)}",
                    hint="install instep where Spark's driver runs",
                ) from None
    if kind == "error":
        name, message, hint = result
        raise getattr(errors, name, InstepError)(message, hint=hint)
    return result


def _last_error(printed: IO[bytes]) -> str:
    """Return the last line that names an error. Nothing secret was read when it came: later errors are answers."""
    printed.seek(0)
    lines = [line for line in printed.read().decode(errors="replace").splitlines() if re.match(r"\w*Error: ", line)]
    return f": {blot(lines[-1])[:300]}" if lines else ""
