"""Overflow values (`_instep_extra`) as columns, for destinations that can extract them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from instep.destinations.types import plain_type
from instep.schema.catalog.types import DataType
from instep.stage.conform import compact_json, digest, hashed
from instep.stage.field_metadata import limited
from instep.stage.overflow import from_texts, is_hash, text_of


@dataclass(frozen=True)
class Hashing:
    """Hashing of values that were kept in clear, for a hashed column: `source` is the type that they had."""

    source: DataType
    salt: bytes = field(repr=False)

    def of(self, members: Sequence[Any]) -> list[str | None]:
        """Return the hash of each member of the objects; one that was kept as a hash stays as it is."""
        texts = [text_of(m) for m in members]
        clear = [None if is_hash(m) else text for m, text in zip(members, texts, strict=True)]
        values = from_texts(clear, self.source, plain_type(self.source)).values
        hashes = hashed(values, self.source, self.salt).to_pylist()
        by_type = zip(clear, texts, hashes, strict=True)
        return [text if value is None else hash or digest(value, self.salt) for value, text, hash in by_type]


@dataclass(frozen=True)
class OverflowColumn:
    """A column whose values are in the overflow objects under `name`, with its accepted type and its hashing."""

    name: str
    type: DataType
    hashing: Hashing | None = None

    def texts(self, members: Sequence[Any]) -> list[str | None]:
        """Return the texts to cast, from members as `json.loads` gives them."""
        return self.hashing.of(members) if self.hashing else [text_of(m) for m in members]


@dataclass(frozen=True)
class Promoted:
    """The result of moving overflow values into columns."""

    rows: int = 0
    """Rows that got a value."""
    invalid_values: int = 0
    """Values that do not fit their column and stay where they are."""


@dataclass(frozen=True)
class ExtractedValues:
    """Values that leave the objects of some rows: `values` by column, NULL where a row has one or gets none; what is
    `left` of the objects; which rows get a value (`gets`)."""

    values: tuple[pa.Array, ...]
    left: pa.Array
    gets: pa.Array
    invalid_values: int


@dataclass
class FileExtraction:
    """Counts of what is taken out of the rows of a file, in two passes that parse each object once: the first one ends
    at the first rows that get a value (`first`), before which there are `before` others that stay as they are."""

    rows: int = 0
    invalid_values: int = 0
    before: int = 0
    first: ExtractedValues | None = field(default=None, repr=False)

    def changes(self, file: Iterable[ExtractedValues]) -> bool:
        """Return whether a row of a file gets a value."""
        for done in file:
            self.invalid_values += done.invalid_values
            if done.gets.true_count:
                self.first = done
                return True
            self.before += len(done.gets)
        return False

    def extract(self, start: int, rows: int, parse: Callable[[], ExtractedValues]) -> ExtractedValues | None:
        """Return what is taken out of `rows` rows from the place `start` on, in the second pass; None if it is nothing.
        Batches of both passes are the same ones."""
        if start < self.before:
            assert start + rows <= self.before, "a file is read in the same batches each time"
            return None
        if start > self.before or self.first is None:
            self.first = parse()
            self.invalid_values += self.first.invalid_values
        done, self.first = self.first, None
        assert len(done.gets) == rows, "a file is read in the same batches each time"
        self.rows += done.gets.true_count
        return done


def extract_values(
    objects: pa.Array, lacks: Sequence[pa.Array], columns: Sequence[OverflowColumn], fields: Sequence[pa.Field]
) -> ExtractedValues:
    """Take values out of objects (JSON texts or NULL) for rows that lack them; `fields` are those of the columns at the
    destination."""
    parsed: list[dict[str, Any]] = [json.loads(text) if text is not None else {} for text in objects.to_pylist()]
    got: list[set[str]] = [set() for _ in parsed]
    values, invalid_values = list[pa.Array](), 0
    for overflow, lack, column in zip(columns, lacks, fields, strict=True):
        members = [o.get(overflow.name) if n else None for o, n in zip(parsed, lack.to_pylist(), strict=True)]
        done = limited(from_texts(overflow.texts(members), overflow.type, column.type), column)
        invalid_values += len(done.invalid_values)
        values.append(done.values)
        for at, valid in enumerate(done.values.is_valid().to_pylist()):
            if valid:
                got[at].add(overflow.name)
    left = [{k: v for k, v in o.items() if k not in out} for o, out in zip(parsed, got, strict=True)]
    texts = pa.array([compact_json(o) if o else None for o in left], pa.string())
    return ExtractedValues(tuple(values), texts, pa.array([bool(out) for out in got], pa.bool_()), invalid_values)


def first_valid(old: pa.Array, new: pa.Array) -> pa.Array:
    """Return the old values, and the new ones where they are NULL."""
    if new.null_count == len(new):
        return old
    place = np.where(np.asarray(old.is_valid()), np.arange(len(old)), np.arange(len(old)) + len(old))
    return pa.concat_arrays([old, new]).take(pa.array(place))
