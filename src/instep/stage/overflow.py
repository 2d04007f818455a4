"""Columns that are read and have no place in the table yet, as one JSON object a row by source column name.

Why a column has no place is for others to know. Booleans are JSON's own, integers numbers up to 2^53 - 1 either way and
text beyond, floats numbers in their shortest form, decimals and everything else text: nothing that a JSON reader may
round is a number. Documents, arrays and structs stand inside the object where a reader gives back what was put in,
else as their text. A value that its own type does not admit is its text; NULL is left out. The hash of a value is
`{"sha256": "..."}`, so that no value in clear is taken for one: a document of this form is its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa

from instep.schema.catalog.types import Array, Binary, Boolean, DataType, Float, Int, Json, String, Struct
from instep.stage.casts.cast import Cast, cast, original
from instep.stage.casts.parse import members_once, refuse
from instep.stage.casts.text import plain, to_text
from instep.stage.spec import StageColumn

SAFE = 2**53 - 1
"""Integers up to here, negative or not, are numbers in every JSON reader."""

_SHA256 = "sha256"
_HEX = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
_OWN = {Boolean: pa.bool_(), Int: pa.int64(), Float: pa.float64()}


def extra_json(columns: Sequence[tuple[StageColumn, pa.Array]], rows: int) -> pa.Array:
    """Return one string a row: an object of the values by `path`; NULL for a row that has none. A hashed column's
    values are hashed already."""
    parts = [(json.dumps(column.path, ensure_ascii=False), _members(column, values)) for column, values in columns]
    return pa.array([_object([(name, texts[at]) for name, texts in parts]) for at in range(rows)], pa.string())


def _object(members: Sequence[tuple[str, str | None]]) -> str | None:
    pairs = [f"{name}:{text}" for name, text in members if text is not None]
    return "{" + ",".join(pairs) + "}" if pairs else None


def _members(column: StageColumn, values: pa.Array) -> list[str | None]:
    """Return each value's JSON."""
    source = column.source or column.type
    if column.hashed:
        return [None if v is None else json.dumps({_SHA256: v}, separators=(",", ":")) for v in values.to_pylist()]
    if isinstance(column.type, Boolean | Int) or (isinstance(column.type, Float) and column.type.bits == 64):
        done = cast(values, source, _OWN[type(column.type)], column.type)
        texts = _texts(values, column) if done.invalid_values else []
        own = [_number(v) for v in done.values.to_pylist()]
        return [_quoted(texts[at] or "") if at in done.invalid_values else v for at, v in enumerate(own)]
    texts = _texts(values, column)
    if isinstance(column.type, Float):
        return [None if t is None else _float(t) for t in texts]
    if isinstance(column.type, Json | Array | Struct):
        return [None if t is None else _document(t) for t in texts]
    return [None if t is None else _quoted(t) for t in texts]


def _texts(values: pa.Array, column: StageColumn) -> list[str | None]:
    source = column.source or column.type
    try:
        texts: list[str | None] = to_text(plain(values), source).to_pylist()
    except pa.ArrowInvalid:
        return [original(values, at, source) if values[at].is_valid else None for at in range(len(values))]
    return texts


def _number(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, float):
        return _float(repr(value))
    return json.dumps(value if isinstance(value, bool) or abs(value) <= SAFE else str(value))


def _float(text: str) -> str:
    """Return a float as JSON; NaN and the infinities are no JSON numbers."""
    try:
        if isfinite(float(text)) and _NUMBER.fullmatch(text):
            return text
    except ValueError:
        pass
    return _quoted({"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text))


def _document(text: str) -> str:
    """Return the document itself, if it is an object or an array that a reader gives back as it was."""
    try:
        exact = json.loads(text, parse_constant=refuse, parse_float=Decimal, object_pairs_hook=members_once)
        same = isinstance(exact, dict | list) and not is_hash(exact) and _same(exact, json.loads(text))
        return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")) if same else _quoted(text)
    except (ValueError, RecursionError):
        return _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _same(exact: Any, read: Any) -> bool:
    """Return whether no number of the document is changed by reading it as readers do."""
    if isinstance(exact, dict):
        return all(_same(exact[k], read[k]) for k in exact)
    if isinstance(exact, list):
        return all(map(_same, exact, read))
    if isinstance(exact, Decimal):
        return Decimal(repr(read)) == exact
    return not isinstance(exact, int) or isinstance(exact, bool) or abs(exact) <= SAFE


def from_texts(texts: Sequence[str | None], kind: DataType, target: pa.DataType) -> Cast:
    """Return the texts of members as values of their column; bytes were kept as hexadecimal digits, the rest as its
    text."""
    if isinstance(kind, Binary):
        raw = [bytes.fromhex(t[2:]) if t and t.startswith("\\x") else t and t.encode() for t in texts]
        return cast(pa.array(raw, pa.binary()), kind, target, kind)
    return cast(pa.array(texts, pa.string()), String(), target, kind)


def text_of(member: Any) -> str | None:
    """Return the text that a member of the object stands for, for a cast to its column's type; `member` as `json.loads`
    gives it."""
    if member is None or isinstance(member, str):
        return member
    if is_hash(member):
        digest: str = member[_SHA256]
        return digest
    return repr(member) if isinstance(member, float) else json.dumps(member, ensure_ascii=False, separators=(",", ":"))


def is_hash(member: Any) -> bool:
    """Return whether a member of the object is the hash of a value; `member` as `json.loads` gives it."""
    if not isinstance(member, dict) or member.keys() != {_SHA256}:
        return False
    return isinstance(member[_SHA256], str) and _HEX.fullmatch(member[_SHA256]) is not None
