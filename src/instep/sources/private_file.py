"""Secrets that a library or a program takes from files only, without a file on a disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_file(text: str) -> Iterator[str]:
    """A path under which this process and its children read `text` while the context lasts; "" for no text.

    In memory where the system has such files, else a file that only this user may read, removed at the end.
    """
    if not text:
        yield ""
        return
    content = text if text.endswith("\n") else text + "\n"
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory(prefix="instep-") as folder:
            path = Path(folder) / "secret"
            path.touch(mode=0o600)
            path.write_text(content, encoding="utf-8")
            yield str(path)
        return
    with os.fdopen(os.memfd_create("instep"), "wb", buffering=0) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content.encode())
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}"
