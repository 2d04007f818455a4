"""Files in memory for secrets and certificates that a library or a program takes from files only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from instep.temporary import temporary

_TEXT = "-----BEGIN"


@contextmanager
def as_file(certificate: str) -> Iterator[str]:
    """Yield the path of a certificate that may have been given as its text."""
    if _TEXT not in certificate:
        yield certificate
        return
    with private_file(certificate) as path:
        yield path


@contextmanager
def private_file(text: str) -> Iterator[str]:
    """Yield a path under which this process and its children read `text` while the context lasts; "" for no text. In
    memory where the system has such files, else a file that only this user may read, deleted at the end."""
    if not text:
        yield ""
        return
    content = text if text.endswith("\n") else text + "\n"
    if not hasattr(os, "memfd_create"):
        with temporary("secret") as folder:
            path = Path(folder) / "secret"
            path.touch(mode=0o600)
            path.write_text(content, encoding="utf-8")
            yield str(path)
        return
    with os.fdopen(os.memfd_create("instep"), "wb", buffering=0) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content.encode())
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}"
