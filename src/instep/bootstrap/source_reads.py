"""The process that opens a project for `spark.read.format("instep")`, and holds the snapshot that tasks read.

Tasks stay connected to it while they read: it sees when the last one has ended, and looks at the source for them.
"""

from __future__ import annotations

import hmac
import json
import os
import pickle
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.errors import Blocked, InstepError
from instep.redaction import blot, error_line
from instep.temporary import temporaries, temporary

if TYPE_CHECKING:
    from instep.spark.data_source import ReadRequest
    from instep.sync.context import SyncContext

_POLL = 0.5
_FIRST = 300.0
"""Seconds in which the first task has to begin."""
MOST_SNAPSHOTS = 8
"""Snapshots of one source that are open at a time for one Spark driver."""
_PURPOSE = "read"
_ABOUT, _IDLE, _END = "about", "idle", "end"
_HELLO_SECONDS = 10.0
_ROOM_SECONDS = 10.0


def main(descriptor: int) -> None:
    """Answer the request on standard input, then hold the snapshot until nobody reads it."""
    from instep.spark.data_source import LENGTH, ReadRequest

    answered = False

    def answer(kind: str, value: Any) -> None:
        nonlocal answered
        answered = True
        data = pickle.dumps((kind, value))
        with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as out:
            out.write(LENGTH.pack(len(data)) + data)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)

    try:
        serve(ReadRequest(**json.load(sys.stdin)), lambda value: answer("found", value))
    except InstepError as error:
        if not answered:
            answer("error", (type(error).__name__, blot(error.message), blot(error.hint)))
    except Exception as error:
        if not answered:
            hint = "check the source with `instep source test`, and the project with `instep doctor`"
            answer("error", ("InstepError", f"the read could not be planned: {_described(error)}", hint))


def _described(error: Exception) -> str:
    """Return an error's text without the secrets that this process has read, and without values of rows."""
    return f"{type(error).__name__}: {blot(error_line(error))[:300]}"


def serve(request: ReadRequest, answer: Callable[[Any], None]) -> None:
    """Answer the table's columns, or the parts to read; return once the snapshot of these is closed."""
    from instep.bootstrap.app import open_project
    from instep.sync.read_source import readable_columns

    with open_project(Path(request.project)) as app:
        app.looks_only = True
        name = app.connection(request.connection)
        context = app.sync_context(name)
        columns = readable_columns(context, request.table)  # before anything is opened
        if request.columns is None:
            answer([(c.alias or c.name, str(c.type)) for c in columns])
            return
        source = f"{Path(request.project).resolve()}:{app.project.model.connections[name].source}"
        with temporary(_PURPOSE) as folder:
            _make_room(Path(folder), request, source)
            _serve_snapshot(request, context, Path(folder), answer)


def _make_room(folder: Path, request: ReadRequest, source: str) -> None:
    """End the oldest snapshots of the source that were read and no longer are, if there are too many.

    Blocked if they are all read, or wait for their first task.
    """
    (folder / _ABOUT).write_text(json.dumps([request.spark, source, time.time()]))
    ends = time.monotonic() + _ROOM_SECONDS
    while len(others := _others(folder, request.spark, source)) >= MOST_SNAPSHOTS:
        surplus = len(others) - MOST_SNAPSHOTS + 1
        if time.monotonic() > ends:
            raise Blocked(
                f"{len(others)} snapshots of the source of connection {request.connection} are open for this Spark "
                "driver, and are read or wait to be",
                hint=f"read {MOST_SNAPSHOTS} tables of it at a time, or its tables at the destination: "
                "`project.table(...).to_spark()`",
            )
        for other in [other for other in others if (other / _IDLE).exists()][:surplus]:
            with suppress(OSError):
                (other / _END).touch()
        time.sleep(_POLL)


def _others(path: Path, spark: int, source: str) -> list[Path]:
    """Return the folders of the other snapshots of the source for this driver, the oldest first."""
    others = []
    for folder in temporaries(_PURPOSE):
        with suppress(OSError, ValueError):
            its_spark, its_source, begun = json.loads((folder / _ABOUT).read_text())
            if folder != path and (its_spark, its_source) == (spark, source):
                others.append((begun, folder))
    return [folder for _, folder in sorted(others)]


def _serve_snapshot(request: ReadRequest, context: SyncContext, folder: Path, answer: Callable[[Any], None]) -> None:
    from instep.schema.catalog.catalog import Catalog
    from instep.sync.read_source import open_repeatable, plan_read

    assert request.columns is not None
    with open_repeatable(context) as snapshot:
        table, spec, chunks = plan_read(
            context,
            snapshot,
            request.table,
            request.columns,
            request.on_invalid_value,  # type: ignore[arg-type]
        )

        def outdated() -> str:
            if not snapshot.changed_tables(Catalog.of([table])):
                return ""
            return (
                f"{request.table}: the source's table was rewritten or altered after the snapshot of this read was "
                "taken, which no longer shows its rows"
            )

        with SnapshotServer("" if request.host else "127.0.0.1", outdated) as server:
            answer((server.port, server.token, _parts(snapshot.reader, spec, chunks)))
            _wait(server, folder, request)


def _parts(reader: Any, spec: Any, chunks: Any) -> list[bytes]:
    """Return the work of each task: a chunk each, unless the source allows fewer connections or they share a view."""
    from instep.spark.payload import packed
    from instep.stage.spec import limits_of, pack
    from instep.stage.task import task_count

    limits = limits_of(reader)
    parts = pack(chunks, task_count(limits, max(1, len(chunks)), max(1, len(chunks))))
    share = limits.rows_per_second / max(1, len(parts))
    return [packed((reader, spec, part, share)) for part in parts]


def _wait(server: SnapshotServer, folder: Path, request: ReadRequest) -> None:
    """Wait until Spark has ended, or the snapshot is no longer read."""
    while _runs(request.spark):
        time.sleep(_POLL)
        is_idle = server.is_idle
        with suppress(OSError):
            (folder / _IDLE).touch() if is_idle else (folder / _IDLE).unlink(missing_ok=True)
        if server.end_after(0 if is_idle and (folder / _END).exists() else request.snapshot_seconds):
            return


class SnapshotServer:
    """Keeps tasks connected while they read a snapshot, and tells them why it is `outdated`.

    A task sends the token and gets `+`; from then on it gets an answer for each byte that it sends.
    """

    def __init__(self, address: str, outdated: Callable[[], str]) -> None:
        """Listen at the address ("": at all of this machine)."""
        self._outdated, self.token = outdated, secrets.token_bytes(32)
        self._listener = socket.create_server((address, 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._lock, self._looks = threading.Lock(), threading.Lock()
        self._readers, self._was_read, self._ended, self._last = 0, False, False, time.monotonic()

    def __enter__(self) -> SnapshotServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._listener.close()

    @property
    def is_idle(self) -> bool:
        """Return whether tasks have read the snapshot, and none does now."""
        with self._lock:
            return self._was_read and not self._readers

    def end_after(self, seconds: float) -> bool:
        """Return whether nobody has read for so long; then nobody can begin to."""
        with self._lock:
            idle_seconds = seconds if self._was_read else max(seconds, _FIRST)
            self._ended = not self._readers and time.monotonic() - self._last > idle_seconds
            return self._ended

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:  # it is closed
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        from instep.spark.data_source import LENGTH

        with link, suppress(OSError):
            link.settimeout(_HELLO_SECONDS)
            with link.makefile("rb") as sent:  # nothing comes behind it before it is answered
                if not hmac.compare_digest(sent.read(len(self.token)), self.token):
                    return
            link.settimeout(None)
            _keep_alive(link)
            with self._reading() as is_open:
                if not is_open:
                    return
                link.sendall(b"+")
                while link.recv(1):
                    reply = self._answer().encode()
                    link.sendall(LENGTH.pack(len(reply)) + reply)

    @contextmanager
    def _reading(self) -> Iterator[bool]:
        """Count a reader, unless the snapshot is closed."""
        with self._lock:
            is_open = not self._ended
            self._readers += is_open
            self._was_read = True
        try:
            yield is_open
        finally:
            with self._lock:
                self._readers -= is_open
                self._last = time.monotonic()

    def _answer(self) -> str:
        try:
            with self._looks:
                return self._outdated()
        except InstepError as error:
            return blot(error.message)
        except Exception as error:
            return f"the snapshot can no longer be used: {_described(error)}"


def _keep_alive(link: socket.socket) -> None:
    """Notice within about a minute that a machine is gone with its task."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if (option := getattr(socket, name, None)) is not None:
            link.setsockopt(socket.IPPROTO_TCP, option, value)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
