"""Limits of a destination that its Arrow types do not express: metadata of the schema's fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from instep.stage.casts.cast import Cast
from instep.stage.casts.text import is_text

_KEY, _NO_NUL = b"instep:text", b"without NUL"
_JSON, _VALID, _WHOLE = b"instep:json", b"valid", b"without half surrogates"
_PARTITION, _BY_TEXTS = b"instep:partition", b"told apart by texts"
WITHOUT_NUL: Final[Mapping[bytes | str, bytes | str]] = {_KEY: _NO_NUL}
"""Metadata of a field whose texts may not contain a NUL."""
VALID_JSON: Final[Mapping[bytes | str, bytes | str]] = {_JSON: _VALID}
"""Metadata of a field that the destination parses as JSON: some servers take for JSON what is none."""
WHOLE_JSON: Final[Mapping[bytes | str, bytes | str]] = {_JSON: _WHOLE}
"""The same where an escaped half of a surrogate pair is not taken either."""
IN_PARTITIONS: Final[Mapping[bytes | str, bytes | str]] = {_PARTITION: _BY_TEXTS}
"""Metadata of a field whose values are written down as texts, in which an empty one means NULL."""
NUL = "a NUL in the text"
NO_JSON = "not JSON"
HALF = "half of a surrogate pair in the JSON"
EMPTY = "an empty text, which is NULL in a partition"
FAR = "a time outside of the years 1 to 9999 in a partition"
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
_SUSPECT = r"""\\[^"\\/bfnrtu]|\\u[dD][89a-fA-F]|[0-9]\.([^0-9]|$)"""


def limited(done: Cast, field: pa.Field) -> Cast:
    """Return the cast with NULL, and an invalid value, in the place of each value that the field cannot hold."""
    metadata = field.metadata or {}
    odd: dict[int, str] = {}
    if metadata.get(_KEY) == _NO_NUL:
        odd |= dict.fromkeys(_with_nul(done.values), NUL)
    if (json_rule := metadata.get(_JSON)) and is_text(done.values.type):
        odd |= _bad_json(done.values, _valid if json_rule == _VALID else _whole)
    if metadata.get(_PARTITION) == _BY_TEXTS:
        odd |= _untold(done.values)
    if not odd:
        return done
    mask = pa.array([at in odd for at in range(len(done.values))])
    values = pc.if_else(mask, pa.scalar(None, done.values.type), done.values)
    return replace(done, values=values, invalid_values={**done.invalid_values, **dict(sorted(odd.items()))})


def _bad_json(texts: pa.Array, reason: Callable[[str], str]) -> dict[int, str]:
    """Return position to reason; only a text that may have one of the known faults is parsed."""
    suspects = pc.indices_nonzero(pc.fill_null(pc.match_substring_regex(texts, _SUSPECT), False)).to_pylist()
    reasons = {at: reason(texts[at].as_py()) for at in suspects}
    return {at: why for at, why in reasons.items() if why}


def _valid(text: str) -> str:
    try:
        json.loads(text, parse_int=str, parse_float=str)  # Python reads no integers of over 4300 digits
    except RecursionError:
        return ""
    except ValueError:
        return NO_JSON
    return ""


def _whole(text: str) -> str:
    if why := _valid(text):
        return why
    pairs = re.sub(r"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..", "", text)
    return HALF if re.search(r"\\u[dD][89a-fA-F]", pairs) else ""


def _untold(values: pa.Array) -> dict[int, str]:
    if is_text(values.type):
        return dict.fromkeys(_places(pc.equal(values, pa.scalar("", values.type))), EMPTY)
    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
        first, last = (_bound(at, values.type) for at in (_FIRST, _LAST))
        return dict.fromkeys(_places(pc.or_(pc.less(values, first), pc.greater(values, last))), FAR)
    return {}


def _bound(at: datetime, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_date(kind):
        return pa.scalar(at.date(), kind)
    return pa.scalar(at if kind.tz else at.replace(tzinfo=None), kind)


def _places(mask: pa.Array) -> list[int]:
    places: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return places


def _with_nul(values: pa.Array) -> set[int]:
    """Return where a text, or one in a list, contains a NUL."""
    texts = values if is_text(values.type) else values.flatten()
    if not pc.any(pc.match_substring(texts, "\0"), min_count=0).as_py():
        return set()
    return {at for at, value in enumerate(values.to_pylist()) if value is not None and _has_nul(value)}


def _has_nul(value: str | list[str | None]) -> bool:
    return "\0" in value if isinstance(value, str) else any(v is not None and "\0" in v for v in value)


_CONSTANT = b"instep.constant"


def with_value(field: pa.Field, value: str) -> pa.Field:
    """Return the field with this value in every row."""
    return field.with_metadata({**(field.metadata or {}), _CONSTANT: value.encode()})


def value_of(field: pa.Field) -> str | None:
    """Return the value of every row, if it is one and the same."""
    value = (field.metadata or {}).get(_CONSTANT)
    return None if value is None else value.decode()
