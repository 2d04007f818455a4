"""Deletion vectors of other programs: which rows of a data file are not rows of the table any more.

They are read and never written: a file that changes is written again without those rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from instep.errors import DestinationError
from instep.stage.files.object_store import AnyPath

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGIT = {letter: number for number, letter in enumerate(_ALPHABET)}
_MAGIC = 1681511377
_UUID = 20
"""Letters of a file's id; what stands before it is a folder."""

Places = npt.NDArray[np.int64]
NO_PLACES: Places = np.empty(0, np.int64)


def vector_id(file: Mapping[str, Any]) -> str:
    """Return the id of an action's deletion vector, distinct from others of its file; "" without one."""
    vector = file.get("deletionVector")
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}" if vector else ""


def deleted_rows(file: Mapping[str, Any]) -> int:
    """Return how many rows of an action's file are deleted."""
    vector = file.get("deletionVector")
    return int(vector["cardinality"]) if vector else 0


def deleted_places(table: AnyPath, vector: Mapping[str, Any] | None) -> Places:
    """Return the places of the deleted rows in the file, in order. DestinationError for a vector that cannot be
    read."""
    if vector is None:
        return NO_PLACES
    try:
        places: Places = np.fromiter(BitMap64.deserialize(_bitmap(table, vector)), np.int64)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise _unreadable(table, vector, f"{type(error).__name__}: {error}") from error
    if len(places) != vector["cardinality"]:
        raise _unreadable(table, vector, f"it has {len(places)} rows and not {vector['cardinality']}")
    return places


def _unreadable(table: AnyPath, vector: Mapping[str, Any], why: str) -> DestinationError:
    return DestinationError(
        f"table {table}: the deletion vector {vector.get('pathOrInlineDv')!r} cannot be read: {why}",
        hint="restore the file, or rewrite the table there: REORG TABLE ... APPLY (PURGE)",
    )


def _bitmap(table: AnyPath, vector: Mapping[str, Any]) -> bytes:
    """Return the bitmap; ValueError if the bytes are damaged or not a bitmap."""
    size, text = int(vector["sizeInBytes"]), str(vector["pathOrInlineDv"])
    if vector["storageType"] == "i":
        data = decoded(text)[:size]
    elif vector["storageType"] == "u":
        name = f"deletion_vector_{UUID(bytes=decoded(text[-_UUID:]))}.bin"
        folder = table / text[:-_UUID] if len(text) > _UUID else table
        start = int(vector.get("offset") or 0)
        whole = (folder / name).read_bytes()[start : start + size + 8]
        data = whole[4:-4]
        if int.from_bytes(whole[:4], "big") != size or zlib.crc32(data) != int.from_bytes(whole[-4:], "big"):
            raise ValueError("its checksum is another one")
    else:
        raise ValueError(f"it is stored as {vector['storageType']!r}")
    if int.from_bytes(data[:4], "little") != _MAGIC:
        raise ValueError("it is not a bitmap of a known form")
    return data[4:]


def decoded(text: str) -> bytes:
    """Return the bytes that a text in Z85 stands for."""
    data = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for letter in text[start : start + 5]:
            number = number * 85 + _DIGIT[letter]
        data += number.to_bytes(4, "big")
    return bytes(data)
