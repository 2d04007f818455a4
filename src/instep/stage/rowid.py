"""Row ids of keyless tables.

The id is SHA-256 in hex over the row's values: for each column that is not NULL, in order of names,
`name=length:text;` with the length of the canonical text in bytes. The n-th further row with the same values
(n from 1) has the SHA-256 of the first one's digest and `#n`, so that no two rows share an id.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from instep.schema.catalog.types import DataType
from instep.stage.casts.text import plain, to_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Run = tuple["NDArray[np.uint64]", "NDArray[np.uint32]"]
Runs = tuple[Run, ...]


def row_texts(columns: Mapping[str, tuple[pa.Array, DataType]], rows: int) -> pa.Array:
    """Return the bytes to hash, one binary value per row, from staged values by accepted name."""
    parts = [_part(name, *columns[name]) for name in sorted(columns)]
    if not parts:
        return pa.array([b""] * rows, pa.large_binary())
    return pc.cast(pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string())), pa.large_binary())


def _part(name: str, values: pa.Array, kind: DataType) -> pa.Array:
    texts = pc.cast(to_text(plain(values), kind), pa.large_string())
    lengths = pc.cast(pc.binary_length(texts), pa.large_string())
    big = pa.large_string()
    part = pc.binary_join_element_wise(
        pa.scalar(f"{name}=", big), lengths, pa.scalar(":", big), texts, pa.scalar(";", big), pa.scalar("", big)
    )
    return pc.fill_null(part, "")


class RowIds:
    """Gives ids to the rows of one table, read in order; remembers 12 bytes per distinct row."""

    def __init__(self) -> None:
        self._seen = Occurrences()

    def mark(self) -> Runs:
        """Return a mark for `reset`, which forgets the rows from here on."""
        return tuple(self._seen.runs)

    def reset(self, mark: Runs) -> None:
        self._seen.runs = [*mark]

    def of(self, texts: pa.Array) -> pa.Array:
        import numpy as np

        digests = [sha256(text).digest() for text in texts.to_pylist()]
        hashes = np.frombuffer(b"".join(digests), dtype="<u8")[::4]
        numbers = self._seen.count(hashes)
        for at in np.nonzero(numbers)[0]:
            digests[at] = sha256(digests[at] + b"#%d" % numbers[at]).digest()
        data = b"".join(digests).hex().encode()
        offsets = pa.array(range(0, len(data) + 1, 64), pa.int32())
        return pa.StringArray.from_buffers(len(digests), offsets.buffers()[1], pa.py_buffer(data))


class Occurrences:
    """Counter of 64-bit hashes: a few sorted runs, merged as they grow.

    Two different rows whose hashes agree only make a number larger than it need be; ids stay unique.
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def count(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return for each hash how many equal ones came before it, in this call and earlier ones."""
        import numpy as np

        distinct, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        before = np.zeros(len(distinct), dtype=np.int64)
        for keys, seen in self.runs:
            at = np.minimum(np.searchsorted(keys, distinct), len(keys) - 1)
            before += np.where(keys[at] == distinct, seen[at], 0)
        order = np.argsort(inverse, kind="stable")
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        rank = np.empty(len(hashes), dtype=np.int64)
        rank[order] = np.arange(len(hashes)) - starts
        self._add(distinct, counts.astype(np.uint32))
        return rank + before[inverse]

    def _add(self, keys: NDArray[np.uint64], counts: NDArray[np.uint32]) -> None:
        import numpy as np

        if not len(keys):
            return
        while self.runs and len(self.runs[-1][0]) <= 2 * len(keys):
            other, more = self.runs.pop()
            merged, inverse = np.unique(np.concatenate([other, keys]), return_inverse=True)
            sums = np.zeros(len(merged), dtype=np.uint32)
            np.add.at(sums, inverse, np.concatenate([more, counts]))
            keys, counts = merged, sums
        self.runs.append((keys, counts))
