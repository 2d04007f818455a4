"""Decimals of texts that have one form, as a database writes a column of decimals: a fifth of the time of any text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = 18
"""As many always fit into 64 bits."""


def fixed_point(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Return the texts as `target`; None unless each is digits of which exactly `target.scale` follow a point, and
    there is room for all of them."""
    if not pa.types.is_decimal128(target) or not 0 <= target.scale <= target.precision <= _DIGITS or not len(texts):
        return None
    filled = texts.fill_null("0." + "0" * target.scale if target.scale else "0") if texts.null_count else texts
    if (whole := _whole(filled, target.scale)) is None:
        return None
    ends = pc.min_max(whole)
    if max(-ends["min"].as_py(), ends["max"].as_py()) >= 10**target.precision:
        return None
    values = np.asarray(whole)
    parts = np.stack([values, values >> 63], axis=1)  # low and high 64 bits, as decimals are laid out
    out = pa.Array.from_buffers(target, len(texts), [None, pa.py_buffer(np.ascontiguousarray(parts))])
    return pc.if_else(texts.is_valid(), out, pa.scalar(None, target)) if texts.null_count else out


def _whole(texts: pa.Array, scale: int) -> pa.Array | None:
    """Return the digits without their point as whole numbers; None if a text has another form."""
    large = pa.types.is_large_string(texts.type)
    _, places, content = texts.buffers()
    if content is None:
        return None
    ends = np.frombuffer(places, np.int64 if large else np.int32)[texts.offset : texts.offset + len(texts) + 1]
    chars = np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]
    ends = ends - ends[0]
    if scale:
        points = chars == ord(".")
        if np.diff(ends).min() < scale + 2 or not points[ends[1:] - scale - 1].all() or points.sum() != len(texts):
            return None
        chars = chars[~points]
        ends = ends - np.arange(len(ends), dtype=ends.dtype)
    if not ((chars - ord("0") < 10) | (chars == ord("-"))).all():  # Arrow takes 0x1f for a number, too
        return None
    kind = pa.large_string() if large else pa.string()
    digits = pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(chars)])
    try:
        return digits.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
