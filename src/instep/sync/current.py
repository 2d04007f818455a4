"""Of tables that keep their history: the versions that stand."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from instep.destinations.base import Met


def current(met: Met, prefix: str) -> Met:
    """Without versions that have ended; the same for a table without versions. To look at, not to amend."""
    mark = f"{prefix}current"
    if mark not in met.rows.column_names:
        return met
    stands = pc.fill_null(met.rows.column(mark), False)
    kept = pc.indices_nonzero(stands).to_pylist()
    return replace(met, rows=met.rows.take(pa.array(kept, pa.int64())), numbers=[met.numbers[i] for i in kept])
