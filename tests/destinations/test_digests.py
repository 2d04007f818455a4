"""Digests in the place of long values."""

from __future__ import annotations

import pyarrow as pa

from instep.destinations.rows import LONG, brief


def test_long_values_are_compared_by_their_digests() -> None:
    """Equal values stay equal, others stay others, and one that looks like a digest is none."""
    long, other = "x" * (LONG + 1), "y" * (LONG + 1)
    [digest] = brief(pa.array([long])).to_pylist()
    texts = ["short", None, long, other, long, digest, ""]
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        values = pa.array(texts if pa.types.is_string(kind) or pa.types.is_large_string(kind) else
                          [t if t is None else t.encode() for t in texts], kind)  # fmt: skip
        short = brief(values)
        assert short.type == kind
        found = short.to_pylist()
        assert [found.index(v) for v in found] == [texts.index(t) for t in texts]
        assert max(len(v) for v in found if v is not None) < LONG
    assert brief(pa.array([1, None])).to_pylist() == [1, None]
