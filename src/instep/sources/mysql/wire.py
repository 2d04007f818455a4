"""Rows of MySQL's text protocol as Arrow arrays, column by column.

pymysql builds Python objects row by row, about 80,000 rows a second. Here its connection sends the query and reads
the header; the rows are then cut out of the byte stream by NumPy, a column at a time over a block of rows, and
gathered by Arrow, about ten times as fast. A block is checked to the byte: rows must end where their packets do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.errors import ReadError

if TYPE_CHECKING:
    import pymysql

_QUERY = 0x03
_NULL, _TWO, _THREE, _EIGHT = 0xFB, 0xFC, 0xFD, 0xFE
_END, _ERROR = 0xFE, 0xFF
_WHOLE = 0xFFFFFF  # a packet of this size is continued by the next
_READ = 1 << 20
_BLOCK_BYTES = 32 << 20
_MOST = 2**31 - 1  # Arrow's offsets
_PADDING = bytes(9)
_COLUMNS = 4096
"""More has no table."""
MALFORMED = 2027
_FILE = "LOAD_LOCAL"
Positions = npt.NDArray[np.int64]


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise pymysql's errors in taking an answer apart as errors of our own: the server's fault.

    Its RuntimeErrors are told as they are, but for a file that is asked for: a package that is missing is ours to
    add.
    """
    from pymysql.err import InternalError, OperationalError

    try:
        yield
    except OperationalError:
        raise
    except (struct.error, LookupError, ValueError, TypeError, AttributeError, AssertionError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and _FILE not in str(error):
            raise
        raise OperationalError(MALFORMED, f"malformed packet: {error}") from None
    except InternalError as error:
        if error.args and isinstance(error.args[0], int):
            raise
        raise OperationalError(MALFORMED, str(error)) from None


class RowStream:
    """The rows of one query. `names` are the column names. A stream that is left early leaves the connection unusable.

    Errors are pymysql's, those of the socket included.
    """

    def __init__(self, connection: pymysql.Connection[Any], query: str) -> None:
        from pymysql.protocol import FieldDescriptorPacket

        self._connection = wire = cast(Any, connection)
        with translated_errors():
            wire._execute_command(_QUERY, query.encode())
            count = wire._read_packet().read_length_encoded_integer()
            if count is None:
                raise ValueError("it asks for a file of this machine")
            if not 0 < count <= _COLUMNS:
                raise ValueError(f"rows of {count} columns")
            self.names = tuple(str(wire._read_packet(FieldDescriptorPacket).name) for _ in range(count))
            wire._read_packet()
        self._data = bytearray()
        self._done = False

    def blocks(self, rows: int) -> Iterator[list[pa.Array]]:
        """Yield binary arrays, one per column, of at most `rows` rows each time; NULL is null."""
        starts: list[int] = []
        at = 0
        while not self._done:
            at = self._scan(starts, at, rows)
            if len(starts) == rows or self._done or at >= _BLOCK_BYTES:
                if starts:
                    yield _columns(bytes(self._data[:at]), starts, len(self.names))
                del self._data[:at]
                starts, at = [], 0
            else:
                self._receive()

    def close(self) -> None:
        """End the connection if rows are left on it."""
        if not self._done:
            self._connection._force_close()

    def _scan(self, starts: list[int], at: int, rows: int) -> int:
        """Note where complete packets begin, from `at` on; returns where the first incomplete one does."""
        data, size = self._data, len(self._data)
        while at + 5 <= size and len(starts) < rows:
            length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            if length == _WHOLE:
                length = self._join(at)
                size = len(data)
            if at + 4 + length > size:
                break
            if data[at + 4] >= _END and (length < 9 or data[at + 4] == _ERROR):
                self._finish(bytes(data[at + 4 : at + 4 + length]))
                break
            starts.append(at + 4)
            at += 4 + length
        return at

    def _join(self, at: int) -> int:
        """Make one packet of a row of 16 MB or more, cutting out the headers between; returns its length."""
        length, part = 0, _WHOLE
        header = at
        while part == _WHOLE:
            while len(self._data) < header + 4 or len(self._data) < header + 4 + self._length(header):
                self._receive()
            part = self._length(header)
            if header > at:
                del self._data[header : header + 4]
                header += part
            else:
                header += 4 + part
            length += part
            if length > _MOST:
                raise _too_large(length)
        return length

    def _length(self, at: int) -> int:
        return int.from_bytes(self._data[at : at + 3], "little")

    def _receive(self) -> None:
        from pymysql.err import OperationalError

        try:
            more = self._connection._rfile.read1(_READ)
        except OSError as error:
            raise OperationalError(2013, f"Lost connection to MySQL server during query ({error})") from None
        if not more:
            raise OperationalError(2013, "Lost connection to MySQL server during query")
        self._data += more

    def _finish(self, packet: bytes) -> None:
        from pymysql.err import raise_mysql_exception

        self._done = True
        if packet[0] == _ERROR:
            raise_mysql_exception(packet)


def _columns(data: bytes, starts: list[int], width: int) -> list[pa.Array]:
    """Return the columns of the rows whose packets' bodies begin at `starts`, back to back up to the end of `data`."""
    if len(data) > _MOST:
        raise _too_large(len(data))
    octets = np.frombuffer(data + _PADDING, np.uint8)
    at = np.array(starts, np.int64)
    ends = np.append(at[1:] - 4, len(data))
    buffer = pa.py_buffer(data)
    arrays = []
    for _ in range(width):
        begin, length, null = _lengths(octets, at)
        at = begin + length
        if at.max() > len(data):
            raise _broken()
        arrays.append(_gather(buffer, begin, at, null))
    if not np.array_equal(at, ends):
        raise _broken()
    return arrays


def _too_large(size: int) -> ReadError:
    return ReadError(f"a row of {size >> 20} MB: at most 2 GB are read at once", hint="exclude its largest column")


def _broken() -> ReadError:
    return ReadError("the server's answer is not in MySQL's text protocol", hint="check for a proxy in between")


def _lengths(octets: npt.NDArray[np.uint8], at: Positions) -> tuple[Positions, Positions, npt.NDArray[np.bool_] | None]:
    """Return (where each value begins, its length, which are NULL) of length-encoded strings at `at`."""
    head = octets[at].astype(np.int64)
    if head.max() < _NULL:
        return at + 1, head, None
    begin, length = at + 1, head.copy()
    null = head == _NULL
    length[null] = 0
    for mark, size in ((_TWO, 2), (_THREE, 3), (_EIGHT, 8)):
        long = head == mark
        if long.any():
            places = at[long, None] + np.arange(1, size + 1)
            length[long] = (octets[places].astype(np.int64) << (8 * np.arange(size))).sum(axis=1)
            begin[long] += size
    if length.min() < 0 or length.max() > _MOST:
        raise _broken()
    return begin, length, null if null.any() else None


def _gather(buffer: pa.Buffer, begin: Positions, end: Positions, null: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return an array of the pieces begin[i]:end[i]. The buffer is taken as an array of pieces and the gaps between
    them, then every other element is copied."""
    edges = np.empty(2 * len(begin), np.int64)
    edges[0::2], edges[1::2] = begin, end
    offsets = pa.py_buffer(edges.astype(np.int32))
    pieces = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, offsets, buffer])
    return pieces.take(pa.array(np.arange(0, len(edges) - 1, 2, dtype=np.int64), mask=null))
