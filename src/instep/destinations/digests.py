"""Digests in the place of long values: comparing tables of documents does not take the memory of the documents."""

from __future__ import annotations

from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

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
