"""The quarantine of one table as entries: read from all of its files, settled, and written anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from instep.stage.files.names import file_name
from instep.stage.files.place import StorageFolder, children, clear_errors
from instep.stage.quarantine import SCHEMA, entry_id

Status = Literal["held", "replayed", "superseded", "discarded"]
_SETTLED = "kept-"


@dataclass(frozen=True)
class QuarantineEntry:
    """One value ("" as column: one whole row) that was held; see `quarantine.SCHEMA`. `replayed`: its row has it now.
    `superseded`: its row has another value now, or is not there. `discarded`: a person let it go."""

    id: str
    table: str
    key: str = field(repr=False)
    column: str
    original: str | None = field(repr=False)
    reason: str
    change: str
    rule: str
    name: str
    fields: str
    run: str
    chunk: int
    since: datetime
    at: datetime
    status: Status = "held"
    place: str = ""

    @property
    def kind(self) -> str:
        return "value" if self.column else "row"


@dataclass(frozen=True)
class TableQuarantine:
    """The entries of one table's quarantine, one an id, oldest first; the `files` that they are in, and those that
    cannot be read (`broken`: a task died while it wrote)."""

    entries: tuple[QuarantineEntry, ...] = ()
    files: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def read_entries(uri: str, io: Mapping[str, str], ignored: Collection[str] = ()) -> TableQuarantine:
    """Return what the folder `uri` holds; the files of `ignored` runs, which have committed nothing, are left out."""
    place, rows, files, broken = StorageFolder(uri, io), [], [], []
    for name in children(uri, io):
        if not name.endswith(".parquet") or name.startswith(tuple(f"{run}-" for run in ignored)):
            continue
        try:
            rows += [(name, row) for row in _rows(place, name)]
        except (OSError, pa.ArrowException):
            broken.append(name)
        else:
            files.append(name)
    return TableQuarantine(merged(rows), tuple(files), tuple(broken))


def _rows(place: StorageFolder, name: str) -> Iterator[QuarantineEntry]:
    filesystem, path = place.resolve(name)
    for batch in pq.ParquetFile(filesystem.open_input_file(path)).iter_batches():
        yield from map(_entry, batch.to_pylist())


def _entry(row: Mapping[str, Any]) -> QuarantineEntry:
    """Files of the first format have neither ids nor moments: the run's name tells when it was."""
    row = {**row, "place": row.get("place") or ""}
    if "id" not in row:
        id, at = entry_id(row["table"], row["key"], row["column"], row["original"]), _moment(row["run"])
        more = {"id": id, "change": "", "rule": "", "name": row["column"], "fields": "{}", "since": at, "at": at}
        row = {**row, **more}
    return QuarantineEntry(**{f.name: row[f.name] for f in fields(QuarantineEntry) if f.name in row})


def _moment(run: str) -> datetime:
    with suppress(ValueError):
        return datetime.strptime(run[:17], "r-%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    return datetime.now(UTC)


def merged(rows: Iterable[tuple[str, QuarantineEntry]]) -> tuple[QuarantineEntry, ...]:
    """Return one entry an id, from (file, entry) pairs: what was held last counts, and of that what was settled. What
    was discarded stays so."""
    found: dict[str, list[tuple[tuple[datetime, bool, str], QuarantineEntry]]] = {}
    for file, entry in rows:
        found.setdefault(entry.id, []).append(((entry.at, file.startswith(_SETTLED), file), entry))
    entries = []
    for same in found.values():
        newest = max(same, key=lambda one: one[0])[1]
        newest = replace(newest, since=min(e.since for _, e in same))
        if any(e.status == "discarded" for _, e in same):
            newest = replace(newest, status="discarded", original=None)
        entries.append(newest)
    return tuple(sorted(entries, key=lambda e: (e.at, e.id)))


def rewrite(
    uri: str, io: Mapping[str, str], found: TableQuarantine, entries: Sequence[QuarantineEntry], run: str
) -> None:
    """Put one file with `entries` in the place of the files of `found`. A crash in between leaves both, which read as
    the new one except for entries that were to go: those go when it is done again. Raises StageError."""
    place = StorageFolder(uri, io)
    if entries:
        new = place.create(file_name(f"{_SETTLED}{run}", 0, 0, 0))
        with clear_errors(new.uri), pq.ParquetWriter(new.sink, SCHEMA, compression="zstd") as writer:
            writer.write_table(pa.Table.from_pylist([vars(e) for e in entries], schema=SCHEMA))
        new.finish()
    for name in found.files:
        filesystem, path = place.resolve(name)
        with clear_errors(place.child(name)), suppress(FileNotFoundError):
            filesystem.delete_file(path)
