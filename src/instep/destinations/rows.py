"""Casts of values that a destination holds: all of them, or tried without writing.

Digests in place of long values: comparing tables of documents does not take the memory of the documents.

The first rows of a table that is read batch by batch.

What the column `meta` of a row says: which of its columns lack the value that the source has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from instep.destinations.base import CastSample, InvalidValueCount
from instep.errors import IllegalChange
from instep.schema.catalog.types import DataType, String
from instep.stage.casts.cast import cast
from instep.stage.conform import compact_json
from instep.stage.spec import StagedFile


def differing(values: pa.Array, old: DataType, new: DataType, target: pa.DataType) -> tuple[set[int], set[int]]:
    """Return positions of the values of type `old` that do not fit `new` (the Arrow type `target`), and of those
    that come back as another value. NULL is neither."""
    converted = cast(values, old, target, new)
    invalid_values = set(converted.invalid_values)
    back = cast(converted.values, new, values.type, old)
    pairs = enumerate(zip(values.to_pylist(), back.values.to_pylist(), strict=True))
    return invalid_values, {i for i, (before, after) in pairs if before != after and i not in invalid_values}


def cast_all(name: str, values: pa.Array, old: DataType, new: DataType, target: pa.DataType) -> pa.Array:
    """Return the values of column `name` as `new`, held as the Arrow type `target`; IllegalChange if one does not
    fit."""
    done = cast(values, old, target, new)
    if done.invalid_values:
        reason = next(iter(done.invalid_values.values()))
        raise IllegalChange(
            f"column {name!r}: values do not fit {new} ({reason})",
            hint="load the whole table again with `instep sync --full`: invalid values are kept in quarantine there",
        )
    return done.values


def invalid_values_in(
    parts: Iterable[pa.Array], old: DataType, new: DataType, target: pa.DataType
) -> InvalidValueCount:
    """Return how many values of type `old` do not fit `new` (held as the Arrow type `target`), and the first of
    them."""
    count, example = 0, ""
    for values in parts:
        done = cast(values, old, target, new)
        odd = [*done.invalid_values, *_too_long(done.values, new)]
        if odd and not example:
            example = str(values[odd[0]].as_py())
        count += len(odd)
    return InvalidValueCount(count, example)


def _too_long(values: pa.Array, kind: DataType) -> list[int]:
    """Return where a text is longer than its type says: no cast minds, readers may."""
    if not isinstance(kind, String) or kind.length is None:
        return []
    places: list[int] = pc.indices_nonzero(pc.greater(pc.utf8_length(values), kind.length)).to_pylist()
    return places


def tried(
    sample: pa.Table, column: str, key: Sequence[str], old: DataType, new: DataType, target: pa.DataType
) -> CastSample:
    """Return the sampled values of `column` cast there and back; `sample` has the key's columns too."""
    values = sample.column(column).combine_chunks()
    invalid_values, changed = differing(values, old, new, target)
    odd = min(invalid_values | changed, default=None)
    row = {} if odd is None else sample.select(list(key)).slice(odd, 1).to_pylist()[0]
    return CastSample(len(values) - values.null_count, len(invalid_values), len(changed), row)


LONG = 1_024
"""Bytes of a value from which on its digest is compared."""
_DIGEST = "\x00instep sha256 "


def brief(values: pa.Array) -> pa.Array:
    """Return texts and bytes that are equal where `values` are: long ones are digests. A short value that looks like a
    digest becomes one, too. Values of other types are returned as they are."""
    kind = values.type
    if not (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
        return values
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    mark = _DIGEST if is_text else _DIGEST.encode()
    long = pc.or_(pc.greater(pc.binary_length(values), LONG), pc.starts_with(values, mark))
    places = pc.indices_nonzero(long.fill_null(False)).to_pylist()
    if not places:
        return values
    digests = [f"{_DIGEST}{sha256(values[at].as_buffer()).hexdigest()}" for at in places]
    new = pa.array(digests if is_text else [d.encode() for d in digests], kind)
    return pc.replace_with_mask(values, long.fill_null(False), new)


def latest_time(files: Sequence[StagedFile], column: str) -> int | None:
    """Return the highest value of a timestamp column, in microseconds since 1970, from the footers; None without
    rows."""
    footers = [pq.read_metadata(pa.BufferReader(file.footer)) for file in files]
    chunks = [f.row_group(g).column(c) for f in footers for g in range(f.num_row_groups) for c in range(f.num_columns)]
    values = [
        chunk.statistics.max_raw
        for chunk in chunks
        if chunk.path_in_schema == column and chunk.statistics is not None and chunk.statistics.has_min_max
    ]
    return max(values, default=None)


def first_rows(batches: Iterable[pa.RecordBatch], limit: int, schema: pa.Schema) -> pa.Table:
    """Return at most `limit` rows, as `schema` has them; no batch is asked for once they are there."""
    parts, left = [schema.empty_table()], limit
    for batch in batches if left else ():
        parts.append(pa.Table.from_batches([batch.slice(0, left)]).cast(schema))  # files differ in long and short texts
        left -= parts[-1].num_rows
        if not left:
            break
    return pa.concat_tables(parts)


def merged(old: str | None, new: str | None, lacking: set[str], columns: Sequence[str]) -> str | None:
    """Return the note of a row with that of its staged values: of `columns` those that are `lacking` a value stay
    noted, and those whose value was cut."""
    note: dict[str, Any] = json.loads(old) if old else {}
    staged = json.loads(new).get("changes", ()) if new else ()
    ended = set(columns) - lacking
    changes = [c for c in note.get("changes", ()) if c.get("field") not in ended or c.get("change") != "nulled"]
    noted = {c.get("field") for c in changes}
    changes += [c for c in staged if c["field"] in lacking and c["field"] not in noted]
    note = {**{k: v for k, v in note.items() if k != "changes"}, **({"changes": changes} if changes else {})}
    return compact_json(note) if note else None
