# ruff: noqa: S608 - columns are numbered
"""Values that were kept as JSON beside a table's rows, taken out into columns of their own: one commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import Commit, Ref
from instep.destinations.delta import partition
from instep.destinations.delta.change import Change
from instep.destinations.delta.engine import as_table, engine, fields_by_name, table_rows
from instep.destinations.delta.held import Held, require
from instep.destinations.delta.rewrite import Edit, edited
from instep.destinations.delta.shape import arrow_type
from instep.destinations.delta.warehouse import Warehouse
from instep.destinations.kept import Kept, Promoted
from instep.stage.conform import compact_json
from instep.stage.extra import from_texts
from instep.stage.limits import limited


def promote(warehouse: Warehouse, ref: Ref, columns: Mapping[str, Kept], extra: str, commit: Commit) -> Promoted:
    """See `destinations.kept.Promotes`."""
    held = require(warehouse, ref)
    held.record.check(commit.fence)
    state = held.state()
    if state is None or extra not in held.record.table.by_name:
        return Promoted()
    edit, misfits = _found(held, columns, extra)
    if len(edit.at):
        own = replace(commit, cursor=state.cursor, accepted=state.accepted)
        change = Change(held, held.record.after_load(own, held.rows, new=0))
        edited(change, [edit], (), commit)
        change.land("UPDATE", own, warehouse)
    crashpoint("promote.committed")
    return Promoted(len(edit.at), misfits)


def _found(held: Held, columns: Mapping[str, Kept], extra: str) -> tuple[Edit, int]:
    """Only rows without a value that have an object are looked at."""
    names = [extra, *columns]
    lacks = " OR ".join(f"c{i} IS NULL" for i in range(1, len(names)))
    with engine() as db:
        db.register("t", table_rows(held, names))
        rows = as_table(db, f"SELECT * FROM t WHERE c0 IS NOT NULL AND ({lacks})")
    objects: list[dict[str, Any]] = [json.loads(text) for text in rows.column(0).to_pylist()]
    got: list[set[str]] = [set() for _ in objects]
    plain = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields_by_name(held, list(columns))])
    schema = partition.limited(plain, (f.name for f in held.by))
    values, misfits = dict[str, Any](), 0
    for place, (name, kept) in enumerate(columns.items(), 1):
        kind = schema.field(name).type
        old = rows.column(place).cast(kind).combine_chunks()
        lack = old.is_null().to_pylist()
        texts = kept.texts([o.get(kept.name) if n else None for o, n in zip(objects, lack, strict=True)])
        done = limited(from_texts(texts, kept.type, kind), schema.field(name))
        misfits += len(done.misfits)
        order = np.where(np.asarray(old.is_valid()), np.arange(len(old)), np.arange(len(old)) + len(old))
        values[name] = pa.concat_arrays([old, done.values]).take(pa.array(order))
        for row, valid in enumerate(done.values.is_valid().to_pylist()):
            got[row] |= {kept.name} if valid else set()
    left = [{k: v for k, v in o.items() if k not in out} for o, out in zip(objects, got, strict=True)]
    values[extra] = pa.array([compact_json(o) if o else None for o in left], pa.large_string())
    keep = pa.array(np.flatnonzero([bool(out) for out in got]))
    at = np.stack([rows.column(c).take(keep).to_numpy().astype(np.int64) for c in ("f", "p")], axis=1)
    return Edit(at, pa.table(values).take(keep)), misfits
