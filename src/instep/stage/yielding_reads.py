"""Reading whole tables in this process, so that others need not wait for them: piece by piece, each tried again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pyarrow as pa

from instep.errors import LockYielded
from instep.stage.spec import Chunk, Reader, ReadSession
from instep.stage.task import CLOSINGS, YIELDS, pause


@contextmanager
def giving_way(reader: Reader) -> Iterator[ReadSession]:
    """A session of the reader that gives statements up for others, and asks again."""
    with ExitStack() as stack:
        yield _Session(reader, stack)


class _Session:
    def __init__(self, reader: Reader, stack: ExitStack) -> None:
        self._reader, self._stack = reader, stack
        self._session: ReadSession | None = None

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        for piece in chunk.pieces:
            yield from self._whole(replace(chunk, query="", pieces=(piece,)))
        if not chunk.pieces:
            yield from self._whole(chunk)

    def _whole(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Rows that were handed on are not asked for again."""
        for tried in range(YIELDS + 1):
            begun = False
            try:
                for batch in self._open().read(chunk):
                    begun = True
                    yield batch
                return
            except LockYielded as error:
                if error.broken:
                    self._close()
                if error.closed and tried == CLOSINGS:
                    raise error.closed from None
                if begun or tried == YIELDS:
                    raise
            time.sleep(pause(tried))

    def _open(self) -> ReadSession:
        if self._session is None:
            self._session = self._stack.enter_context(self._reader.open())
        return self._session

    def _close(self) -> None:
        self._session = None
        with suppress(Exception):  # it was ended by the server
            self._stack.close()
