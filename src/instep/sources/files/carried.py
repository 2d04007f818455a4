"""Bytes that are no UTF-8 on their way through a parser of UTF-8: they go as characters and are given back behind it.

The characters are 128 of a private plane, one for each byte from 0x80. Where a text has one of them itself, its own
four bytes are carried in the same way, so that nothing is taken for what it is not.
"""

from __future__ import annotations

import codecs
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_FIRST, _ESCAPED = 0x10FE80, 0xDC80
"""The character for 0x80, and Python's own (`surrogateescape`), which is no UTF-8."""
_LEADS = (b"\xf4\x8f\xba", b"\xf4\x8f\xbb")
"""What the bytes of our characters begin with."""
_OURS = re.compile("[\U0010fe80-\U0010feff]")
_OUT = {_ESCAPED + n: _FIRST + n for n in range(128)}
_BACK = {ours: escaped for escaped, ours in _OUT.items()}


class Carried:
    """A stream of UTF-8 made of one of bytes; `some`: bytes were carried in what was read so far."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = self._ready = b""
        self.some = self._ended = False

    def read(self, size: int) -> bytes:
        """`size` bytes, fewer at the end: the parser takes no block for whole in which no record ends."""
        while len(self._ready) < size and not self._ended:
            block = self._stream.read(max(size - len(self._ready) - len(self._left), 1))
            self._ended = not block
            self._ready += self._utf8(self._left + block)
        out, self._ready = self._ready[:size], self._ready[size:]
        return out

    def _utf8(self, data: bytes) -> bytes:
        """A character that is not whole yet waits for the next block."""
        self._left = b""
        if data.isascii():
            return data
        try:
            read = codecs.utf_8_decode(data, "strict", self._ended)[1]
            odd = any(lead in data for lead in _LEADS)
        except UnicodeDecodeError:
            odd = True
        if odd:
            text, read = codecs.utf_8_decode(data, "surrogateescape", self._ended)
        self._left = data[read:]
        return self._carried(text) if odd else data[:read]

    def _carried(self, text: str) -> bytes:
        self.some = True
        escaped = _OURS.sub(lambda own: own[0].encode().decode("ascii", "surrogateescape"), text)
        return escaped.translate(_OUT).encode()


def given_back(texts: pa.Array) -> pa.Array:
    """Texts as they are in the file: whoever reads them meets bytes that are none."""
    if not pc.any(pc.match_substring_regex(texts, r"[\x{10FE80}-\x{10FEFF}]")).as_py():
        return texts
    raw = [None if text is None else _bytes(text) for text in texts.to_pylist()]
    return pa.array(raw, pa.binary()).view(pa.string())


def shown(text: str) -> str:
    """For people: `\\x` and hex in the place of what is no text."""
    return _bytes(text).decode("utf-8", "backslashreplace") if _OURS.search(text) else text


def _bytes(text: str) -> bytes:
    return text.translate(_BACK).encode("utf-8", "surrogateescape")
