"""What a destination cannot hold although its Arrow type could: said by the metadata of the schema's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from instep.stage.cast import Cast
from instep.stage.text import is_text

_KEY, _NO_NUL = b"instep:text", b"without NUL"
WITHOUT_NUL: Final[Mapping[bytes | str, bytes | str]] = {_KEY: _NO_NUL}
"""Metadata of a field whose texts may not contain a NUL."""
NUL = "a NUL in the text"


def limited(done: Cast, field: pa.Field) -> Cast:
    """The cast with NULL, and a misfit, in the place of each value that the field cannot hold."""
    if (field.metadata or {}).get(_KEY) != _NO_NUL:
        return done
    odd = _with_nul(done.values)
    if not odd:
        return done
    mask = pa.array([at in odd for at in range(len(done.values))])
    values = pc.if_else(mask, pa.scalar(None, done.values.type), done.values)
    return replace(done, values=values, misfits={**done.misfits, **dict.fromkeys(sorted(odd), NUL)})


def _with_nul(values: pa.Array) -> set[int]:
    """Where a text, or one in a list, contains a NUL."""
    texts = values if is_text(values.type) else values.flatten()
    if not pc.any(pc.match_substring(texts, "\0"), min_count=0).as_py():
        return set()
    return {at for at, value in enumerate(values.to_pylist()) if value is not None and _has_nul(value)}


def _has_nul(value: str | list[str | None]) -> bool:
    return "\0" in value if isinstance(value, str) else any(v is not None and "\0" in v for v in value)
