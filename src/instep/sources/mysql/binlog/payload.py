"""Compressed transactions of MySQL: one event whose payload, by Zstandard, is all events of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from instep.errors import ReadError
from instep.sources.mysql.binlog.wire import HEADER, counted_number, header
from instep.stage import timeouts

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

PAYLOAD = 40
_END, _COMPRESSION, _SIZE = 0, 2, 3
_ZSTD, _PLAIN = 0, 255
_PART = 1 << 20


LARGEST, MOST = timeouts.MOST, 4 * timeouts.MOST
"""Bytes of one event, and of all events of one transaction, once they are unpacked."""


class NotUnpacked(Exception):
    """The transaction is well, but is not taken apart here; the text says why."""


def payload_events(data: bytes) -> Iterator[bytes]:
    """Yield the events of a transaction's payload, none of which has a checksum. Only one is in memory at a time.
    Raises NotUnpacked."""
    compression, size, at = _fields(data)
    if size > MOST:
        raise NotUnpacked(f"a compressed transaction of its log has {size:,} bytes, more than {MOST >> 20:,} MB")
    body = BytesIO(data[at:])
    source: BinaryIO = body
    if compression == _ZSTD:
        source = _decompressor().stream_reader(body)
    elif compression != _PLAIN:
        raise _unreadable(f"its compression is not known ({compression})")
    try:
        while size:
            head = _read(source, HEADER)
            about = header(head) if len(head) == HEADER else None
            if about is None or not HEADER <= about.size <= size:
                raise _unreadable("it ends within an event")
            if about.size > LARGEST:
                raise NotUnpacked(f"a compressed event of its log has more than {LARGEST >> 20:,} MB")
            event = head + _read(source, about.size - HEADER)
            if len(event) != about.size:
                raise _unreadable("it ends within an event")
            size -= about.size
            yield event
    except _errors() as error:
        raise _unreadable(str(error)) from None


def _unreadable(why: str) -> ReadError:
    hint = "sync again; if it stays, report this with the server's version"
    return ReadError(f"a compressed transaction of the binary log cannot be read: {why}", hint=hint)


def _read(source: BinaryIO, size: int) -> bytes:
    """Return so many bytes, or those that there are: what an event says of its length may be wrong."""
    parts = []
    while size > 0 and (part := source.read(min(size, _PART))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _fields(data: bytes) -> tuple[int, int, int]:
    """Return (how the payload is compressed, its bytes when it is not, where it begins)."""
    fields = {_COMPRESSION: _PLAIN}
    at = HEADER
    try:
        while True:
            kind, at = counted_number(data, at)
            if kind == _END:
                return fields[_COMPRESSION], fields.get(_SIZE, len(data) - at), at
            length, at = counted_number(data, at)
            fields[kind] = counted_number(data, at)[0]
            at += length
    except IndexError:
        raise _unreadable("it has no payload") from None


def _decompressor() -> ZstdDecompressor:
    try:
        import zstandard
    except ImportError:
        raise NotUnpacked(
            "its log has compressed transactions, which need the package zstandard: run pip install 'instep[mysql]'"
        ) from None
    return zstandard.ZstdDecompressor()


def _errors() -> tuple[type[Exception], ...]:
    try:
        from zstandard import ZstdError
    except ImportError:
        return ()
    return (ZstdError,)
