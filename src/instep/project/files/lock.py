"""`schemas/<connection>.lock.yml`: the accepted schema in a file that is committed and reviewed."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

import yaml

from instep.errors import ProjectError, unwritable
from instep.project.documents import check_name
from instep.project.text.foreign import read_foreign
from instep.schema.contracts.contract import FORMAT_VERSION

FOLDER = "schemas"
_AGAIN = "write a new one with `instep schema lock`"
_HEAD = "# What connection {name} has accepted. Written by `instep schema lock`: review it, do not edit it.\n"


def lock_file(root: Path, connection: str) -> Path:
    """Raise InvalidObject for what is no name: a server's word must not lead out of the folder."""
    check_name("connection", connection)
    return root / FOLDER / f"{connection}.lock.yml"


def lock_text(document: Mapping[str, Any]) -> str:
    """Return the file's text: one line a column, in the document's order."""
    body = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=100_000, default_flow_style=None)
    return _HEAD.format(name=document["connection"]) + body


def write_lock(root: Path, document: Mapping[str, Any]) -> Path:
    """Replace the file at once; ProjectError if it cannot be written."""
    path = lock_file(root, document["connection"])
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(exist_ok=True)
        new.write_text(lock_text(document), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise unwritable(path, error) from None
    return path


def read_lock(root: Path, connection: str) -> dict[str, Any] | None:
    """Return the document, None if there is no file; ProjectError for one that is damaged or of another format."""
    path = lock_file(root, connection)
    try:
        data = read_foreign(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ProjectError(f"{path} cannot be read: {error.strerror}", hint="check who may read it") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: no UTF-8, or a date such as 2026-13-45
        raise ProjectError(f"{path} is not YAML: an unresolved merge?", hint=_AGAIN) from None
    if not _is_lock(data):
        raise ProjectError(f"{path} is not a lock file of format version {FORMAT_VERSION}", hint=_AGAIN)
    document: dict[str, Any] = data
    return document


def _is_lock(data: object) -> bool:
    if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION or "connection" not in data:
        return False
    tables = data.get("tables")
    return isinstance(tables, list) and all(
        isinstance(t, dict) and isinstance(t.get("columns"), list) and all(isinstance(c, dict) for c in t["columns"])
        for t in tables
    )


def lock_diff(locked: Mapping[str, Any] | None, now: Mapping[str, Any], *, locked_as: str, now_as: str) -> list[str]:
    """Return a unified diff from the file to `now`, without line ends; empty if they are equal."""
    before = lock_text(locked).splitlines() if locked is not None else []
    return list(unified_diff(before, lock_text(now).splitlines(), locked_as, now_as, n=2, lineterm=""))
