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
from typing import BinaryIO

from instep.errors import StageError

PIECE = 1 << 20
NONCE, TAG = 12, 16


def new_half() -> str:
    return secrets.token_hex(32)


def key_of(half: str, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt=salt, info=b"instep held operations").derive(bytes.fromhex(half))


def seal(plain: Path, sealed: Path, key: bytes) -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(key)
    with plain.open("rb") as source, _own(sealed) as target:
        for at, (piece, last) in enumerate(_pieces(source, PIECE)):
            nonce = os.urandom(NONCE)
            target.write(nonce + cipher.encrypt(nonce, piece, _bound(sealed, at, last)))
        target.flush()
        os.fsync(target.fileno())


def unseal(sealed: Path, plain: Path, key: bytes) -> None:
    """StageError if it is not as it was written, or the key is another one."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(key)
    try:
        with sealed.open("rb") as source, _own(plain) as target:
            for at, (piece, last) in enumerate(_pieces(source, NONCE + PIECE + TAG)):
                target.write(cipher.decrypt(piece[:NONCE], piece[NONCE:], _bound(sealed, at, last)))
    except (OSError, InvalidTag, ValueError) as error:
        why = str(error) if isinstance(error, OSError) else "it was changed, or the connection's salt was"
        raise StageError(
            f"operations that wait in {sealed} cannot be read: {why}", hint="give the connection the salt that it had"
        ) from error


def _own(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _pieces(source: BinaryIO, size: int) -> Iterator[tuple[bytes, bool]]:
    """The pieces, and whether each is the last; an empty file is one piece."""
    piece = source.read(size)
    while True:
        following = source.read(size)
        yield piece, not following
        if not following:
            return
        piece = following


def _bound(file: Path, at: int, last: bool) -> bytes:
    return f"{file.name}:{at}:{int(last)}".encode()
