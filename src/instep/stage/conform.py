"""Conform batches to the destination table's schema, add system columns, and quarantine what does not fit.

Where in a source's files rows come from: told with a batch, kept with what is held of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import StageError
from instep.schema.catalog.types import DataType, String, Unknown
from instep.stage.casts.cast import Cast, cast, original
from instep.stage.casts.text import plain, to_text
from instep.stage.field_metadata import limited, value_of
from instep.stage.overflow import extra_json
from instep.stage.rowid import RowIds, Runs, row_texts
from instep.stage.spec import StageColumn, StageSpec

NULL_KEY = "NULL in the key"
NULL_REQUIRED = "NULL in a required column"
SOURCE = "source"
"""Who has changed a value, in a note of a row: without it we have, and the original is in quarantine."""


@dataclass(frozen=True)
class QuarantinedValue:
    """One value that is kept in quarantine: of a row that lands without it, or ("" as column) a whole row.

    `key` and a whole row's `original` are JSON objects of texts. `place` is the file and record that it came from, if
    the source has files.
    """

    key: str
    column: str
    original: str | None
    reason: str
    place: str = ""


@dataclass(frozen=True)
class Conformed:
    """The result of conforming a batch."""

    batch: pa.RecordBatch
    """Batch with exactly the spec's schema."""
    quarantined: tuple[QuarantinedValue, ...] = ()
    casts: Mapping[str, int] | None = None
    """Lossy conversions by `column: reason`."""
    invalid_values: int = 0
    rejected: int = 0
    unkeyed: int = 0
    """Number of the `rejected` rows whose key does not fit."""


def conform(batch: pa.RecordBatch, spec: StageSpec) -> Conformed:
    """Return one batch of a table as `Conformer` makes it."""
    return Conformer(spec).conform(batch)


class Conformer:
    """Turns the batches of one table into target batches; row ids count on from batch to batch."""

    def __init__(self, spec: StageSpec) -> None:
        check_spec(spec)
        self.spec = spec
        self._sources = tuple(c for c in spec.columns if c.source is not None)
        self._ids = RowIds()

    def mark(self) -> Runs:
        """Return a mark for `reset`, so that rows from here on can be conformed again."""
        return self._ids.mark()

    def reset(self, mark: Runs) -> None:
        self._ids.reset(mark)

    def conform(self, batch: pa.RecordBatch) -> Conformed:
        """Conform a batch, which has the columns with a source in the spec's order, then the extra ones; raises
        StageError."""
        own, extra = len(self._sources), len(self.spec.extra)
        expected = own + extra + bool(self.spec.notes)
        if batch.num_columns != expected:
            raise StageError(
                f"{self.spec.table}: {expected} columns were read, the source returned {batch.num_columns}",
                hint="the table changed while it was read: run detect, then sync again",
            )
        source = dict(zip((c.name for c in self._sources), batch.columns[:own], strict=True))
        extra_columns, notes = batch.columns[own : own + extra], batch.columns[own + extra :]
        return _ConformedBatch(self.spec, source, len(batch), extra_columns, notes, origins(batch)).done(self._ids)


def check_spec(spec: StageSpec) -> None:
    """Raise StageError unless every column of the spec has its place in the schema, and the other way round."""
    system = [name for name in vars(spec.system).values() if name]
    names = [c.name for c in spec.columns] + system
    twice = sorted(n for n, count in Counter([*names, *spec.schema.names]).items() if count > 2)
    fed = set(names)
    missing = sorted(fed - set(spec.schema.names))
    unfed = sorted(f.name for f in spec.schema if f.name not in fed and not f.nullable)
    unsalted = [c.name for c in (*spec.columns, *spec.extra) if c.hashed and not spec.salt]
    for problem, columns in (
        ("is listed twice", twice),
        ("is not in the destination table", missing),
        ("is required by the destination and has no source", unfed),
        ("is to be hashed and the connection has no salt", unsalted),
    ):
        if columns:
            raise StageError(f"{spec.table}: column {columns[0]} {problem}", hint="run plan to see the differences")


class _ConformedBatch:
    def __init__(
        self,
        spec: StageSpec,
        source: Mapping[str, pa.Array],
        rows: int,
        extra: Sequence[pa.Array],
        notes: Sequence[pa.Array],
        place: Callable[[int], str],
    ) -> None:
        """Prepare one batch; `notes` are those of the source, no array or one."""
        self.spec, self.source, self.rows, self.extra, self.place = spec, source, rows, extra, place
        self.notes = notes
        self.quarantined: list[QuarantinedValue] = []
        self.unkeyed = 0
        self.casts: dict[str, Cast] = {c.name: self._column(c) for c in spec.columns}
        self.values = {name: done.values for name, done in self.casts.items()}

    def done(self, ids: RowIds) -> Conformed:
        bad = self._invalid_values()
        refused = self._refused_rows()
        accepted = None if refused is None else pc.invert(refused)
        self._system(ids, bad, accepted)
        arrays = []
        for field in self.spec.schema:
            values = self.values.get(field.name)
            if values is None:
                fixed = value_of(field)
                values = pa.nulls(self.rows, field.type) if fixed is None else pa.repeat(fixed, self.rows)
            arrays.append(values if values.type == field.type else values.cast(field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)
        if refused is not None:
            self._reject(refused, bad)
            batch = batch.filter(accepted)
        for at, columns in bad.items():
            for column in columns:
                reason = self.casts[column.name].invalid_values[at]
                self.quarantined.append(
                    QuarantinedValue(self._key(at), column.path, self._original(column, at), reason, self.place(at))
                )
        lossy = Counter({f"{n}: {why}": count for n, done in self.casts.items() for why, count in done.lossy.items()})
        invalid_values = sum(map(len, bad.values()))
        return Conformed(batch, tuple(self.quarantined), lossy, invalid_values, self.rows - len(batch), self.unkeyed)

    def _column(self, column: StageColumn) -> Cast:
        field = self.spec.schema.field(column.name)
        target = field.type
        values = self.source.get(column.name)
        if values is None or column.source is None:
            return Cast(pa.nulls(self.rows, target))
        if column.hashed:
            if not isinstance(column.type, String):
                return Cast(pa.nulls(self.rows, target))  # no hash fits until the type of hashes is accepted
            return Cast(pc.cast(hashed(values, column.source, self.spec.salt), target))
        return limited(cast(values, column.source, target, column.type), field)

    def _invalid_values(self) -> dict[int, list[StageColumn]]:
        """Return columns with an invalid value by row; raises under the policy `fail`."""
        bad: dict[int, list[StageColumn]] = {}
        for column in self.spec.columns:
            for at in self.casts[column.name].invalid_values:
                bad.setdefault(at, []).append(column)
        if bad and self.spec.on_invalid_value == "fail":
            self._fail(min(bad), bad[min(bad)][0])
        return bad

    def _fail(self, at: int, column: StageColumn) -> None:
        reason = self.casts[column.name].invalid_values[at]
        raise StageError(
            f"{self.spec.table}, column {column.path}, row {self._key(at)}: "
            f"a value of the shape {shape(self._original(column, at) or '')} does not fit {column.type}: {reason}",
            hint="set `on_invalid_value: quarantine` to load the row without the value, or accept a wider type",
        )

    def _refused_rows(self) -> pa.Array | None:
        """Return a mask of rows with NULL where the destination needs a value; None when there is none."""
        mask = None
        for name in self._required():
            nulls = self.values[name].is_null() if self.values[name].null_count else None
            if nulls is not None:
                mask = nulls if mask is None else pc.or_(mask, nulls)
        if mask is not None and self.spec.on_invalid_value == "fail":
            at = mask.index(True).as_py()
            raise StageError(
                f"{self.spec.table}, row {self._key(at)}: {self._refusal_reason(at)}",
                hint="set `on_invalid_value: quarantine` to quarantine such rows, or choose another key",
            )
        return mask

    def _required(self) -> list[str]:
        return [c.name for c in self.spec.columns if c.key or not self.spec.schema.field(c.name).nullable]

    def _refusal_reason(self, at: int) -> str:
        """Return the reason for refusing the row; a value that did not fit outranks a NULL."""
        required = set(self._required())
        for column in self.spec.columns:
            if column.name in required and not self.values[column.name][at].is_valid:
                unfit = self.casts[column.name].invalid_values.get(at)
                what = NULL_KEY if column.key else NULL_REQUIRED
                return f"{what} ({column.path}{': ' + unfit if unfit else ''})"
        return NULL_KEY

    def _reject(self, refused: pa.Array, bad: dict[int, list[StageColumn]]) -> None:
        for at in pc.indices_nonzero(refused).to_pylist():
            whole = {c.path: self._original(c, at) for c in self.spec.columns if c.name in self.source}
            self.quarantined.append(
                QuarantinedValue(self._key(at), "", compact_json(whole), self._refusal_reason(at), self.place(at))
            )
            self.unkeyed += any(c.key for c in bad.pop(at, ()))

    def _key(self, at: int) -> str:
        """Return the row's key, or id for a keyless table, as a JSON object of texts; hashed columns as hashes."""
        columns = sorted((c for c in self.spec.columns if c.key), key=lambda c: c.key)
        key = {c.path: self._original(c, at) for c in columns}
        if not key and self.spec.system.id in self.values:
            key = {self.spec.system.id: self.values[self.spec.system.id][at].as_py()}
        return compact_json(key)

    def _original(self, column: StageColumn, at: int) -> str | None:
        values = self.source.get(column.name)
        if values is None or column.source is None or not values[at].is_valid:
            return None
        if column.hashed:
            value = self.values[column.name][at].as_py()
            return None if value is None else str(value)
        return original(values, at, column.source)

    def _system(self, ids: RowIds, bad: Mapping[int, list[StageColumn]], accepted: pa.Array | None) -> None:
        names = self.spec.system
        if names.synced:
            self.values[names.synced] = pa.repeat(pa.scalar(self.spec.synced, pa.timestamp("us", "UTC")), self.rows)
        if names.deleted:
            self.values[names.deleted] = pa.repeat(False, self.rows)
        if names.valid_from:
            moment = pa.scalar(self.spec.read_at, pa.timestamp("us", "UTC"))
            self.values[names.valid_from] = pa.repeat(moment, self.rows)
        if names.current:
            self.values[names.current] = pa.repeat(True, self.rows)
        if names.meta:
            self.values[names.meta] = self._meta(bad)
        if names.extra and self.spec.extra:
            self.values[names.extra] = self._extra()
        if names.id:
            kinds: dict[str, tuple[pa.Array, DataType]] = {
                c.path: (self.values[c.name], c.type) for c in self.spec.columns
            }
            self.values[names.id] = ids.of(row_texts(kinds, self.rows))

    def _extra(self) -> pa.Array:
        pairs = zip(self.spec.extra, self.extra, strict=True)
        salt = self.spec.salt
        return extra_json([(c, hashed(v, c.source or c.type, salt) if c.hashed else v) for c, v in pairs], self.rows)

    def _meta(self, bad: Mapping[int, list[StageColumn]]) -> pa.Array:
        changes = {at: [self._change(c, at) for c in columns] for at, columns in bad.items()}
        for at, more in self._source_changes():
            changes.setdefault(at, []).extend(more)
        if not changes:
            return pa.nulls(self.rows, pa.string())
        notes = {at: compact_json({"changes": some}) for at, some in changes.items()}
        return pa.array([notes.get(at) for at in range(self.rows)], pa.string())

    def _source_changes(self) -> Iterator[tuple[int, list[dict[str, str]]]]:
        """Yield what the source says about values of columns that are loaded, by row."""
        for notes in self.notes:
            for at in pc.indices_nonzero(notes.is_valid()).to_pylist():
                changes = json.loads(notes[at].as_py())
                loaded = [{**c, "field": self.spec.notes[c["field"]]} for c in changes if c["field"] in self.spec.notes]
                if loaded:
                    yield at, [{**c, "by": SOURCE} for c in loaded]

    def _change(self, column: StageColumn, at: int) -> dict[str, str]:
        return {"field": column.name, "change": "nulled", "reason": self.casts[column.name].invalid_values[at]}


def hashed(values: pa.Array, source: DataType, salt: bytes) -> pa.Array:
    """Return the SHA-256 in hex of the salt and each value's canonical text; NULL stays NULL."""
    values = plain(values)
    try:
        texts = to_text(values, source)
    except pa.ArrowInvalid:
        texts = pa.array(
            [original(values, at, Unknown()) if values[at].is_valid else None for at in range(len(values))]
        )
    distinct = pc.dictionary_encode(texts)
    digests = [digest(text, salt) for text in distinct.dictionary.to_pylist()]
    return pa.array(digests, pa.string()).take(distinct.indices)


def digest(text: str, salt: bytes) -> str:
    """Return a value's canonical text as hashed columns hold it."""
    return sha256(salt + text.encode()).hexdigest()


def shape(text: str) -> str:
    """Return a value's shape without the value: `aaa-99` for `abc-42`, cut after 40 characters."""
    masked = "".join("9" if c.isdigit() else "a" if c.isalpha() else "." if ord(c) < 32 else c for c in text[:40])
    return f"`{masked}{'…' if len(text) > 40 else ''}` ({len(text)} characters)"


def compact_json(value: Any) -> str:
    """Return the compact JSON of keys and originals: quarantined values are identified by this very text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_FILE, _LINES, _REFUSED = b"instep.file", b"instep.lines", b"instep.refused"
TEXT = "_text"
"""Under this name the `original` of a refused record has its text."""

Record = tuple[int, str, str]
"""(its number in the file, its text, why it is no row)."""


def with_origin(batch: pa.RecordBatch, file: str, lines: pa.Array, refused: Sequence[Record] = ()) -> pa.RecordBatch:
    """Return the batch with the file and record number (int64) of each row, and the records between them that are no
    rows."""
    numbers = lines.to_numpy()
    even = not len(numbers) or numbers[-1] - numbers[0] == len(numbers) - 1
    first = str(numbers[0]).encode() if len(numbers) else b"0"
    metadata = {_FILE: file.encode(), _LINES: first if even else b"[" + numbers.tobytes()}
    if refused:
        metadata[_REFUSED] = json.dumps(refused).encode()
    return batch.replace_schema_metadata(metadata)


def select_rows(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """Return the rows at these ascending positions with their places; records that are no rows are left behind."""
    some = batch.take(rows)
    metadata = batch.schema.metadata or {}
    if _FILE not in metadata:
        return some
    place = origins(batch)
    lines = [int(place(at).rpartition(":")[2]) for at in rows.to_pylist()]
    return with_origin(some, metadata[_FILE].decode(), pa.array(lines, pa.int64()))


def origins(batch: pa.RecordBatch) -> Callable[[int], str]:
    """Return the place of the row at a position, as `folder/file.csv:17`; "" for rows that come from no file."""
    metadata = batch.schema.metadata or {}
    if _FILE not in metadata:
        return lambda at: ""
    file, lines = metadata[_FILE].decode(), metadata[_LINES]
    if not lines.startswith(b"["):
        first = int(lines)
        return lambda at: f"{file}:{first + at}"
    return lambda at: f"{file}:{int.from_bytes(lines[1 + 8 * at : 9 + 8 * at], 'little')}"


def refused(batch: pa.RecordBatch) -> list[tuple[str, Record]]:
    """Return (file, record) of the records that are no rows."""
    metadata = batch.schema.metadata or {}
    file = metadata.get(_FILE, b"").decode()
    return [(file, (line, text, why)) for line, text, why in json.loads(metadata.get(_REFUSED, b"[]"))]
