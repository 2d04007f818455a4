"""Tests of a destination: a scratch table is created, written, altered and dropped; local folders are checked for
writing."""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Commit, Ref, StagingTarget
from instep.errors import ConnectError, InstepError
from instep.model import Check
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Int, String
from instep.schema.changes.describe import ColumnAdded, TableAdded
from instep.schema.planning.step import Step, step
from instep.stage.files.place import StorageFolder
from instep.stage.spec import StagedFile

COMMIT = Commit("test", 1)
Attempt = tuple[str, str, Callable[[], Any]]
"""A check: its name, the next step if it fails, and its function."""


@dataclass(frozen=True)
class Scratch:
    """A table with a column, `wider` by another one after the step `widened`."""

    ref: Ref
    table: Table
    wider: Table
    added: Step
    widened: Step


def scratch(namespace: str) -> Scratch:
    """Return a scratch table with an unused name."""
    ref = (namespace, f"test_{uuid.uuid4().hex[:12]}")
    table = Table(*ref, (Column("id", Int(64)),))
    wider = Table(*ref, (*table.columns, Column("note", String())))
    widened = step(ref, ColumnAdded(ref, wider.columns[1], 1))
    return Scratch(ref, table, wider, step(ref, TableAdded(table)), widened)


def scratch_file(target: StagingTarget) -> StagedFile:
    """Return one row for the scratch table, where tasks write."""
    file = StorageFolder(target.location, target.io).create("scratch.parquet")
    footers, footer = list[Any](), pa.BufferOutputStream()
    rows = pa.table({"id": pa.array([1], pa.int64())}, schema=target.schema)
    pq.write_table(rows, file.sink, metadata_collector=footers)
    size = file.finish()
    footers[0].write_metadata_file(footer)
    return StagedFile("test", 0, file.uri, 1, size, footer.getvalue().to_pybytes())


def checks_of(
    attempts: Iterable[Attempt],
    failures: type[Exception] | tuple[type[Exception], ...] = OSError,
    cleared: Callable[[str], str] = str,
) -> list[Check]:
    """Return a line an attempt, until the first that fails, by an error of ours or by `failures`, whose text is
    `cleared`."""
    checks: list[Check] = []
    for name, hint, attempt in attempts:
        try:
            attempt()
        except InstepError as error:
            return [*checks, Check(name, False, error.message, error.hint or hint)]
        except failures as error:
            return [*checks, Check(name, False, cleared(f"{type(error).__name__}: {error}"), hint)]
        checks.append(Check(name, True))
    return checks


MAY_NOT, READ_ONLY = "this user has no right to write there", "its disk is mounted read-only"
_NEXT = {MAY_NOT: "give this user the right to write there", READ_ONLY: "mount the disk for writing"}


def check_writable(name: str, *places: Path) -> None:
    """Raise ConnectError for the first file or folder of the destination that may not be written; one that is not
    there yet counts as the folder that it would be made in."""
    for place in places:
        if why := unwritable_reason(nearest := _nearest_existing(place)):
            raise ConnectError(f"destination {name}: {nearest} cannot be written: {why}", hint=_NEXT[why])


_PROBE_BYTES = 16 << 20
"""Enough for the claims of thousands of tables, which come before what dead runs left of each is removed."""


def has_space(*places: Path) -> bool:
    """Return whether each of these folders takes a file of a few megabytes. The file has no name, so nobody sees it."""
    for place in places:
        try:
            with tempfile.TemporaryFile(dir=_nearest_existing(place)) as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, _PROBE_BYTES)
                else:  # macOS
                    file.write(bytes(_PROBE_BYTES))
                    file.flush()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return False
    return True


def is_writable(place: Path) -> bool:
    return not unwritable_reason(_nearest_existing(place))


def _nearest_existing(place: Path) -> Path:
    """Return the file or folder itself, or the first folder above it that is there."""
    return next(folder for folder in (place, *place.parents) if folder.exists())


def unwritable_reason(place: Path) -> str:
    """Return why a file or folder that is there may not be written, "" if it may."""
    if os.access(place, os.W_OK):
        return ""
    return READ_ONLY if os.statvfs(place).f_flag & os.ST_RDONLY else MAY_NOT
