"""Values that did not fit, kept as Parquet: where they belong, what they were, why they are held."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.operations.values import EntryStatus
from instep.stage.conform import QuarantinedValue
from instep.stage.files.names import file_name
from instep.stage.files.place import NewFile, StorageFolder, children, clear_errors
from instep.stage.spec import StageSpec

MOMENT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("original", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("change", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("fields", pa.string(), nullable=False),
        pa.field("run", pa.string(), nullable=False),
        pa.field("chunk", pa.int32(), nullable=False),
        pa.field("since", MOMENT, nullable=False),
        pa.field("at", MOMENT, nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("place", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("hashed", pa.string()),
    ]
)
"""`key` and a whole row's `original` (`column` is "") are JSON objects of texts. `change` and `rule`: the held change
that the value does not fit because of, "" without one. `name` is the column's name at the destination, `fields` a JSON
object of the destination's field ids by column. `since` and `at`: first and last held. `place`: the file and record of
a source that has files. `digest`: that of the original, which stays when the original goes. `hashed`: a JSON list of
the columns whose texts in the key and the original are hashes; NULL in files from before it was recorded."""
_GROUP = 10_000
ID_LENGTH = 18


def original_digest(original: str | None) -> str:
    """Return the digest of an original, by which it is known after it was discarded; "" without one."""
    return "" if original is None else sha256(original.encode(errors="surrogatepass")).hexdigest()[:32]


def entry_id(table: str, key: str, column: str, digest: str) -> str:
    """Return an id, by the digest of the original; the same value of the same row, quarantined again, has the same
    one."""
    return "q-" + sha256(json.dumps([table, key, column, digest]).encode()).hexdigest()[:16]


class QuarantineFile:
    """One chunk's quarantine file; without a held value, or a place to hold it in, there is no file."""

    def __init__(self, spec: StageSpec, chunk: int, attempt: int) -> None:
        self.spec, self.chunk, self.attempt = spec, chunk, attempt
        self.path = ""
        self._rows: list[QuarantinedValue] = []
        self._file: NewFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, values: Sequence[QuarantinedValue]) -> None:
        if not self.spec.quarantine:
            return
        self._rows.extend(values)
        if len(self._rows) >= _GROUP:
            self._flush()

    def close(self) -> str:
        """Return the file's URI, or "" when nothing was held."""
        self._flush()
        if self._writer is not None and self._file is not None:
            with clear_errors(self.path):
                self._writer.close()
            self._file.finish()
        return self.path

    def abort(self) -> None:
        """Drop the file."""
        if self._writer is not None:
            self._writer.is_open = False  # else it writes a footer when it is collected
        if self._file is not None:
            self._file.drop()
            self._file = self._writer = None

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            place = StorageFolder(self.spec.quarantine, self.spec.io)
            name = file_name(self.spec.run, self.chunk, self.attempt, 0)
            self._file, self.path = place.create(name), place.child(name)
            with clear_errors(self.path):
                self._writer = pq.ParquetWriter(self._file.sink, SCHEMA, compression="zstd")
        rows, self._rows = self._rows, []
        with clear_errors(self.path):
            self._writer.write_table(self._table(rows))

    def _table(self, rows: Sequence[QuarantinedValue]) -> pa.Table:
        table, at = self.spec.path or self.spec.table, datetime.fromtimestamp(self.spec.synced / 1e6, UTC)
        names = {c.path: c.name for c in self.spec.columns}
        entries = []
        for h in rows:
            digest = original_digest(h.original)
            change, rule = self.spec.holds.get(h.column, ("", ""))
            entries.append(
                (
                    entry_id(table, h.key, h.column, digest),
                    table,
                    h.key,
                    h.column,
                    h.original,
                    h.reason,
                    change,
                    rule,
                    names.get(h.column, ""),
                    self._fields,
                    self.spec.run,
                    self.chunk,
                    at,
                    at,
                    "held",
                    h.place,
                    digest,
                    self._hashed,
                )
            )
        columns = zip(*entries, strict=True)
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)

    @cached_property
    def _fields(self) -> str:
        """The destination's field ids by column: a name may mean another column when the value is looked at again."""
        return json.dumps({c.path: field_id(self.spec.schema.field(c.name)) for c in self.spec.columns})

    @cached_property
    def _hashed(self) -> str:
        """The columns whose texts are hashes already: nothing else tells a hash from a value that looks like one."""
        return json.dumps(sorted(c.path for c in self.spec.columns if c.hashed))


def field_id(field: pa.Field) -> int:
    """Return the id that the destination knows the column by; 0 without one."""
    return int((field.metadata or {}).get(b"PARQUET:field_id", b"0"))


SETTLED = "kept-"


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
    status: EntryStatus = "held"
    place: str = ""
    digest: str = ""
    hashed: str = ""

    @property
    def kind(self) -> str:
        return "value" if self.column else "row"


def files_in(uri: str, io: Mapping[str, str], ignored: Collection[str]) -> list[str]:
    """Return the names of the files in a folder, without those of runs that have committed nothing."""
    runs = tuple(f"{run}-" for run in ignored)
    return [n for n in children(uri, io) if n.endswith(".parquet") and not n.startswith(runs)]


def batches_of(place: StorageFolder, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield these columns of a file's entries; OSError or ArrowException for one whose task died while it wrote."""
    filesystem, path = place.resolve(name)
    file = pq.ParquetFile(filesystem.open_input_file(path))
    names, schema = file.schema_arrow.names, pa.schema([SCHEMA.field(c) for c in columns])
    if not {"id", "digest"}.issubset(names):
        for batch in file.iter_batches(_GROUP):
            yield pa.Table.from_pylist([vars(entry_of(row)) for row in batch.to_pylist()], SCHEMA).select(columns)
        return
    for batch in file.iter_batches(_GROUP, columns=[c for c in columns if c in names]):
        columns_read = [
            batch[c].cast(schema.field(c).type) if c in names else pa.nulls(len(batch), pa.string()) for c in columns
        ]
        yield pa.Table.from_arrays(columns_read, schema=schema)


def entry_of(row: Mapping[str, Any]) -> QuarantineEntry:
    """Return a row of a file as an entry. Files of the first format have neither ids nor moments: the run's name tells
    when it was. Those without digests have ids of another kind."""
    row = {**row, **{name: row.get(name) or "" for name in ("place", "digest", "hashed")}}
    if "id" not in row:
        at = _moment(row["run"])
        more = {"id": "", "change": "", "rule": "", "name": row["column"], "fields": "{}", "since": at, "at": at}
        row = {**row, **more}
    if not row["id"] or (not row["digest"] and row["original"] is not None):
        digest = original_digest(row["original"])
        row = {**row, "digest": digest, "id": entry_id(row["table"], row["key"], row["column"], digest)}
    return QuarantineEntry(**{f.name: row[f.name] for f in fields(QuarantineEntry) if f.name in row})


def _moment(run: str) -> datetime:
    with suppress(ValueError):
        return datetime.strptime(run[:17], "r-%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    return datetime.now(UTC)


def write_statuses(place: StorageFolder, run: str, number: int, batches: Iterable[Sequence[QuarantineEntry]]) -> str:
    """Write entries as they are from now on, whatever older files say of them; return the name of the file. Of one
    run's files the one with the highest number counts."""
    name = file_name(f"{SETTLED}{run}", number, 0, 0)
    new = place.create(name)
    with clear_errors(new.uri), pq.ParquetWriter(new.sink, SCHEMA, compression="zstd") as writer:
        for entries in batches:
            writer.write_table(pa.Table.from_pylist([vars(e) for e in entries], schema=SCHEMA))
    new.finish()
    return name


def remove_files(place: StorageFolder, names: Iterable[str]) -> None:
    """Delete files whose entries are in another one; StageError for one that cannot be."""
    for name in names:
        filesystem, path = place.resolve(name)
        with clear_errors(place.child(name)), suppress(FileNotFoundError):
            filesystem.delete_file(path)
