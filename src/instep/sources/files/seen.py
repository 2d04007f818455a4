"""Files with what is in them: those that have not changed since they were looked at are not opened again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from instep.errors import ReadError
from instep.sources.files.config import FilesConfig, options_digest
from instep.sources.files.formats import inspect
from instep.sources.files.listing import FileState, listing
from instep.sources.files.shape import FileShape
from instep.store.catalogs.source_files import SeenFile


class FileRecords(Protocol):
    """Store of files and their contents (see store/catalogs/source_files.py)."""

    def of(self, source: str) -> list[SeenFile]: ...

    def add(self, source: str, found: Sequence[SeenFile]) -> Mapping[str, SeenFile]: ...


@dataclass(frozen=True)
class File:
    """A version of a file: where it is, when it was first seen (`number`), what is in it."""

    state: FileState
    number: int
    format: str
    shape: FileShape


@dataclass(frozen=True)
class SeenFiles:
    """The files of each table in the order in which they were first seen. `broken` tells why a table cannot be read;
    `history` has every version that was ever seen, by path, in order."""

    tables: Mapping[str, tuple[File, ...]]
    broken: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, tuple[FileState, ...]] = field(default_factory=dict)
    history: Mapping[str, tuple[SeenFile, ...]] = field(default_factory=dict)


def look(config: FilesConfig, records: FileRecords, now: float | None = None) -> SeenFiles:
    """Return what the folder holds now. New and changed files are read once and recorded."""
    listed = listing(config, now)
    known = _by_path(records.of(config.name))
    found = {table: _known(config, table, files, known) for table, files in listed.files.items()}
    fresh = [(t, f) for t, files in listed.files.items() for f in files if f.name not in found[t]]
    broken: dict[str, str] = {}
    shapes = _inspected(config, fresh, broken)
    if shapes:
        new = [_record(config, table, state, shape) for (table, state), shape in shapes]
        added = records.add(config.name, new)
        for (table, state), _ in shapes:
            found[table][state.name] = added[state.name]
            known[state.name] = (*known.get(state.name, ()), added[state.name])
    for table, files in listed.unsettled.items():
        if again := [f.name for f in files if f.name in known]:
            broken[table] = f"{again[0]} is being written: it is read once it has not changed for {config.settle:g} s"
    tables = {t: _files(config, t, files, found[t]) for t, files in listed.files.items() if t not in broken}
    return SeenFiles(tables, broken, listed.unsettled, known)


def _by_path(seen: Sequence[SeenFile]) -> dict[str, tuple[SeenFile, ...]]:
    found: dict[str, tuple[SeenFile, ...]] = {}
    for one in seen:
        found[one.path] = (*found.get(one.path, ()), one)
    return found


def _known(
    config: FilesConfig, table: str, files: Sequence[FileState], known: Mapping[str, tuple[SeenFile, ...]]
) -> dict[str, SeenFile]:
    """By path: those whose newest version, looked at under the same options, is the one that is there."""
    digest = _digest(config, table)
    found = {}
    for state in files:
        last = known[state.name][-1] if state.name in known else None
        if last and (last.size, last.version, last.options) == (state.size, state.version, digest):
            found[state.name] = last
    return found


def _digest(config: FilesConfig, table: str) -> str:
    return f"{options_digest(config.options_of(table))}-{'.'.join(config.metadata)}"


def _inspected(
    config: FilesConfig, fresh: Sequence[tuple[str, FileState]], broken: dict[str, str]
) -> list[tuple[tuple[str, FileState], FileShape]]:
    """Return what is in these files; why a table cannot be read goes into `broken`."""
    if not fresh:
        return []

    def one(file: tuple[str, FileState]) -> FileShape | ReadError:
        try:
            return inspect(config, config.options_of(file[0]), file[1])
        except ReadError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="inspect") as pool:
        shapes = list(pool.map(one, fresh))
    for (table, _), shape in zip(fresh, shapes, strict=True):
        if isinstance(shape, ReadError):
            broken.setdefault(table, error_line(shape))
    return [(f, s) for f, s in zip(fresh, shapes, strict=True) if isinstance(s, FileShape)]


def error_line(error: ReadError) -> str:
    """Return an error as one line."""
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _record(config: FilesConfig, table: str, state: FileState, shape: FileShape) -> SeenFile:
    return SeenFile(state.name, state.size, state.version, 0, _digest(config, table), shape.to_dict())


def _files(
    config: FilesConfig, table: str, files: Sequence[FileState], found: Mapping[str, SeenFile]
) -> tuple[File, ...]:
    setting = config.options_of(table).format
    made = [File(f, found[f.name].number, f.format(setting), FileShape.from_dict(found[f.name].shape)) for f in files]
    return tuple(sorted(made, key=lambda f: f.number))
