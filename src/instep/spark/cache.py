"""The folder for what is fetched or made once: jars and class archives."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_folder(setting: str = "") -> Path:
    """Return the project's setting, else $INSTEP_CACHE, else ~/.cache/instep."""
    chosen = setting or os.environ.get("INSTEP_CACHE", "")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "instep"


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
