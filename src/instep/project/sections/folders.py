"""Folders that paths may lead to which come through an API; links are followed before a path is judged."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SHELVES = ("data", "lakes")
"""Below the project's folder, unless the project file names others."""
CONNECTORS, DRIVERS = "connectors", "drivers"
"""Below the project's folder: code that a server may run for whoever writes sources over it."""
_PRIVATE = (".instep", ".env", "instep.yml", CONNECTORS, DRIVERS)
_SQLITE = "sqlite:///"
_ESCAPES = frozenset("%?#")
"""What a library that takes paths as addresses reads as something else."""


@dataclass(frozen=True)
class Shelves:
    """`folders` and `private` are real paths below or beside `root`: what is `private` is on no shelf, wherever it
    is."""

    root: Path
    named: tuple[str, ...]
    folders: tuple[Path, ...]
    private: tuple[Path, ...]

    @classmethod
    def of(cls, root: Path, named: Iterable[str], store_url: str) -> Shelves:
        """Return the shelves of a project in `root`, whose control store is at `store_url`."""
        names, real = tuple(named), root.resolve()
        folders = tuple(found for name in names if (found := real_path(real, name)))
        store = [Path(store_url.removeprefix(_SQLITE))] if store_url.startswith(_SQLITE) else []
        own = (*map(Path, _PRIVATE), *store)
        private = tuple(real_path(real, str(path)) or path for path in own)
        return cls(real, names, folders, private)

    def refusal(self, setting: str) -> str:
        """Say why a path is refused, "" if it is on a shelf."""
        path = real_path(self.root, setting)
        if path is None or set(setting) & _ESCAPES:
            return f"must be a path without % ? #, {self._where}"
        if not any(_within(path, folder) for folder in self.folders):
            return f"must be {self._where}, links followed: an API reaches no other files"
        if any(_within(path, own) or _within(own, path) for own in self.private):
            return "holds, or is a part of, what is the project's own (.instep, its store, its code, its settings)"
        return ""

    def code_refusal(self, setting: str, folder: str, what: str) -> str:
        """Say why a path is refused that must be below `folder` of the project, "" if it is."""
        shelf, path = real_path(self.root, folder), real_path(self.root, setting)
        if shelf is not None and path is not None and shelf in path.parents:
            return ""
        return f"must be a {what} below {folder}/ of the project: what the server keeps runs no other code"

    @property
    def _where(self) -> str:
        folders = ", ".join(f"{name.rstrip('/')}/" for name in self.named) or "no folder"
        return f"below {folders} (`shelves` of instep.yml)"


def real_path(root: Path, setting: str) -> Path | None:
    """Return where a path of the project leads, all links followed; None if it is an address, or its links lead round
    in a circle."""
    if "://" in setting:
        return None
    try:
        path = Path(os.path.realpath(root / Path(setting).expanduser(), strict=False))
    except (OSError, RuntimeError, ValueError):
        return None
    return None if any(map(os.path.islink, (path, *path.parents))) else path


def _within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents
