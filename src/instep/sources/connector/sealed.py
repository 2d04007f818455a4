"""Files of rows that wait on a disk for days: encrypted, since columns that are excluded or hashed are among theirs.

AES-256-GCM by the piece. Each piece is bound to its file's name, its place, and whether it is the last one, so that
none can be left out, moved or added. The key is made of two halves: one that is stored with the record of what waits,
and the connection's salt, which no store has.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from instep.errors import StageError

PIECE = 1 << 20
NONCE, TAG = 12, 16


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def new_half() -> str:
    return secrets.token_hex(32)


def key_of(half: str, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt=salt, info=b"instep held operations").derive(bytes.fromhex(half))


def seal(plain: Path, sealed: Path, key: bytes) -> None:
    with plain.open("rb") as source, _own(sealed) as target:
        for piece in sealed_pieces(source, sealed.name, key):
            target.write(piece)
        target.flush()
        os.fsync(target.fileno())


def unseal(sealed: Path, plain: Path, key: bytes) -> None:
    """Raise StageError if it is not as it was written, or the key is another one."""
    from cryptography.exceptions import InvalidTag

    try:
        with sealed.open("rb") as source, _own(plain) as target:
            for piece in plain_pieces(source, sealed.name, key):
                target.write(piece)
    except (OSError, InvalidTag, ValueError) as error:
        why = str(error) if isinstance(error, OSError) else "it was changed, or the connection's salt was"
        raise StageError(
            f"operations that wait in {sealed} cannot be read: {why}", hint="give the connection the salt that it had"
        ) from error


def sealed_pieces(source: Readable, name: str, key: bytes) -> Iterator[bytes]:
    """Yield the content of `source`, sealed as the file of that name."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(key)
    for at, (piece, last) in enumerate(_pieces(source, PIECE)):
        nonce = os.urandom(NONCE)
        yield nonce + cipher.encrypt(nonce, piece, _bound(name, at, last))


def plain_pieces(source: Readable, name: str, key: bytes) -> Iterator[bytes]:
    """Yield the content of a sealed file; raises InvalidTag or ValueError for any other file."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(key)
    for at, (piece, last) in enumerate(_pieces(source, NONCE + PIECE + TAG)):
        yield cipher.decrypt(piece[:NONCE], piece[NONCE:], _bound(name, at, last))


def _own(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _pieces(source: Readable, size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the pieces, and whether each is the last; an empty file is one piece."""
    piece = _whole(source, size)
    while True:
        following = _whole(source, size)
        yield piece, not following
        if not following:
            return
        piece = following


def _whole(source: Readable, size: int) -> bytes:
    """Return so many bytes, fewer only at the end: a remote source may deliver smaller parts."""
    piece = source.read(size)
    while piece and len(piece) < size and (more := source.read(size - len(piece))):
        piece += more
    return piece


def _bound(name: str, at: int, last: bool) -> bytes:
    return f"{name}:{at}:{int(last)}".encode()
