"""A connector that is started by itself, as `python connector.py`: one sync whose operations are printed, not kept."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import outlet
from .rows import DELETE, UPDATE, UPSERT

if TYPE_CHECKING:
    from .connector import Connector

_NAMES = {UPSERT: "upserts", UPDATE: "updates", DELETE: "deletes"}


class ConsoleChannel:
    """Counts operations and keeps the last state in files/state.json."""

    def __init__(self, folder: Path) -> None:
        self._state = folder / "files" / "state.json"
        self._tables: list[str] = []
        self._counts: Counter[str] = Counter()
        self._failed = ""

    def send(self, head: Mapping[str, Any], body: Sequence[outlet.Bytes] = ()) -> None:
        kind = head["frame"]
        if kind == "rows":
            for operation, number in Counter(body[0]).items():
                self._counts[_NAMES[operation]] += number
        elif kind == "checkpoint":
            self._state.parent.mkdir(exist_ok=True)
            self._state.write_text(head["state"], encoding="utf-8")
            self._counts["checkpoints"] += 1
        elif kind == "file" and "bytes" in head:
            self._counts["files"] += 1
        elif kind == "truncate":
            self._counts["truncates"] += 1
        elif kind == "table":
            print(f"table {head['table']}")
        elif kind in ("log", "warning"):
            print(f"{head.get('level', kind).upper()} {head['message']}")
        elif kind == "error":
            self._failed = head["message"]
            print(head["trace"], file=sys.stderr)

    def read(self) -> dict[str, Any]:
        return {}

    def wait(self, checkpoint: int) -> None:
        pass

    def summary(self) -> str:
        return ", ".join(f"{number} {what}" for what, number in self._counts.items()) or "no operations"

    @property
    def failed(self) -> str:
        return self._failed


def sync(
    connector: Connector, project_path: str | None, configuration: Mapping[str, Any] | None, state: Any = None
) -> None:
    """Run one sync; `configuration.json` and `files/state.json` of the folder are read where nothing was given.
    Exits with 1 if the sync failed."""
    folder = Path(project_path or Path(sys.argv[0] or ".").resolve().parent)
    os.environ.setdefault("FIVETRAN_CONNECTION_ID", folder.name)
    os.environ.setdefault("FIVETRAN_DEPLOYMENT_MODEL", "local_debug")
    printed = ConsoleChannel(folder)
    settings = {
        "configuration": configuration or _document(folder / "configuration.json"),
        "state": state or _document(folder / "files" / "state.json"),
    }
    connector.sync(outlet.use(outlet.Outlet(printed)), settings)
    print(f"{printed.summary()}. Nothing was stored: `instep connector debug` fills a database.")
    if printed.failed:
        sys.exit(1)


def _document(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
