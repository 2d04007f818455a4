"""The operations of a connector on tables. Each call may be yielded, which does nothing more."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from . import rows
from .declared import is_blank
from .file_upload import COLUMN, FileUpload, named
from .logs import Logging
from .outlet import current
from .shown import shown


class Operations:
    """Raises TypeError or ValueError in the calling thread for what cannot be sent."""

    @staticmethod
    def upsert(
        table: str, data: Mapping[str, Any], *, schema: str | None = None, file: FileUpload | None = None
    ) -> None:
        """Insert the row, or replace the whole row with its primary key."""
        name, row = _checked(table, data, "data")
        _sent(rows.UPSERT, schema or "", name, row, file)

    @staticmethod
    def update(
        table: str, modified: Mapping[str, Any], *, schema: str | None = None, file: FileUpload | None = None
    ) -> None:
        """Change the given columns of the row with this primary key; do nothing if there is no such row."""
        name, row = _checked(table, modified, "modified")
        _need_key(schema or "", name, "update")
        _sent(rows.UPDATE, schema or "", name, row, file)

    @staticmethod
    def delete(table: str, keys: Mapping[str, Any], *, schema: str | None = None) -> None:
        """Mark the row with this primary key as deleted."""
        name, row = _checked(table, keys, "keys")
        key = _need_key(schema or "", name, "delete")
        current().row(rows.DELETE, schema or "", name, {k: row[k] for k in key if k in row})

    @staticmethod
    def truncate(table: str, *, schema: str | None = None) -> None:
        """Mark every row that was there before this call as deleted."""
        name, _ = _checked(table, {}, "")
        current().truncate(schema or "", name)

    @staticmethod
    def checkpoint(state: Mapping[str, Any]) -> None:
        """Commit everything that came before, and the state with which the next sync begins."""
        if not isinstance(state, Mapping):
            raise ValueError(f"op.checkpoint(state): state has to be a dict, not {type(state).__name__}")
        current().checkpoint(state)

    @staticmethod
    def warning(message: str) -> None:
        current().tell({"frame": "warning", "message": str(message)})

    @staticmethod
    def error(message: str, trace: str | None = None) -> None:
        """End the sync with this message. What was not checkpointed is not kept."""
        raise SyncFailed(str(message), trace)


class SyncFailed(BaseException):
    """op.error() was called. Not an Exception: what a connector catches by mistake does not undo it."""

    def __init__(self, message: str, trace: str | None = None) -> None:
        super().__init__(message)
        self.trace = trace or "".join(traceback.format_stack(limit=20)[:-2])


def _checked(table: Any, data: Any, name: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(table, str):
        raise TypeError(f"the name of a table has to be a text, not {shown(table, 100)}")
    if is_blank(table) or "\0" in table or not rows.is_unicode(table):
        raise ValueError(
            f"the name of a table cannot be empty or blank, and is Unicode text without NUL: {shown(table, 100)}"
        )
    if not isinstance(data, Mapping):
        raise TypeError(f"table {table}: {name} has to be a dict, not {type(data).__name__}")
    return table, data


def _sent(operation: int, schema: str, table: str, row: Mapping[str, Any], file: FileUpload | None) -> None:
    if file is None:
        current().row(operation, schema, table, row)
        return
    if not isinstance(file, FileUpload):
        raise TypeError(f"table {table}: `file` has to be a FileUpload, not {type(file).__name__}")
    if row.get(COLUMN, file.path) != file.path:
        Logging.warning(f"table {table}: the value of {COLUMN} gives way to the path of the row's file")
    current().upload(operation, schema, table, named(row, file), file)


def _need_key(schema: str, table: str, what: str) -> tuple[str, ...]:
    key = current().key(schema, table)
    if not key:
        raise ValueError(f"table {table}: op.{what}() needs a primary key; declare `primary_key` in schema()")
    return key
