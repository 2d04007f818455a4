"""Merge partial updates of a stream into the destination's rows: only the given columns change.

The row that comes of it is merged as every other, in the commit of the group. A key that the destination does not have,
or has as deleted, is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from instep.sources.stream import GIVEN
from instep.stage.conform import compact_json
from instep.stage.files.writer import ChunkWriter
from instep.stage.spec import StagedFile, StageSpec
from instep.sync.context import SyncContext
from instep.sync.loading.row_matching import as_plain, as_stored, plain_type, staged_rows
from instep.sync.loading.table_load import Load
from instep.sync.loading.task_specs import altered_spec

Numbers = NDArray[np.int64]
PART = 1 << 16
"""The number of the chunk that they are written as, behind all others."""


def altered_rows(
    context: SyncContext, load: Load, files: Sequence[StagedFile], spec: StageSpec
) -> tuple[StagedFile, ...]:
    """Return files of whole rows, beside those of the load."""
    writer = ChunkWriter(spec, PART, 0)
    try:
        own = altered_spec(spec, load)
        names = own.schema.names
        for batch in staged_rows(files, own, names):
            for done in _Meeting(context, load, spec, batch.rename_columns(names)).rows():
                writer.write(done)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


class _Meeting:
    """One batch of changes, its columns of plain types by name."""

    def __init__(self, context: SyncContext, load: Load, spec: StageSpec, batch: pa.RecordBatch) -> None:
        self.context, self.load, self.spec, self.batch = context, load, spec, batch
        self.prefix = context.naming.prefix
        self.key = [load.table.by_name[k].alias or k for k in load.table.key]
        self.given = [set(json.loads(text)) for text in batch.column(GIVEN).to_pylist()]
        self.names = {c.column.alias or c.column.name: c.source.name for c in load.read.columns if c.source is not None}

    def rows(self) -> Iterator[pa.RecordBatch]:
        keys = pa.table([self.batch.column(k) for k in self.key], names=self.key)
        met = self.context.destination.write.lookup_rows(self.load.ref, keys)
        places = [at for at in range(len(met.rows)) if self._stands(met.rows, at)]
        if not places:
            return
        existing = met.rows.take(pa.array(places, pa.int64()))
        numbers = np.asarray([met.numbers[at] for at in places], np.int64)
        columns = [as_stored(self._column(f, existing, numbers), f.type) for f in self.spec.schema]
        yield pa.RecordBatch.from_arrays(columns, schema=self.spec.schema)

    def _stands(self, rows: pa.Table, at: int) -> bool:
        """Return whether a row is neither deleted nor a version that has ended."""
        system = self.spec.system
        gone = bool(system.deleted) and bool(rows.column(system.deleted)[at].as_py())
        return not gone and (not system.current or bool(rows.column(system.current)[at].as_py()))

    def _column(self, field: pa.Field, existing: pa.Table, numbers: Numbers) -> pa.Array:
        """Return the column as it is from now on, as a plain type."""
        kind, system = plain_type(field.type), self.spec.system
        old = (
            as_plain(existing.column(field.name).combine_chunks(), kind)
            if field.name in existing.column_names
            else None
        )
        if field.name in (system.synced, system.valid_from):
            return self._changes(field.name, numbers, kind)
        if field.name == system.meta:
            return self._notes(old, numbers)
        if field.name == system.extra:
            return self._extra(old, numbers)
        source = self.names.get(field.name)
        if source is None or field.name in self.key:
            return pa.nulls(len(numbers), kind) if old is None else old
        changed = pa.array([source in self.given[n] for n in numbers])
        new = self._changes(field.name, numbers, kind)
        return new if old is None else pc.if_else(changed, new, old)

    def _changes(self, name: str, numbers: Numbers, kind: pa.DataType) -> pa.Array:
        return as_plain(self.batch.column(name), kind).take(pa.array(numbers))

    def _notes(self, old: pa.Array | None, numbers: Numbers) -> pa.Array:
        """Merge the notes: those about unchanged values stay; for given values those of this load count."""
        before = old.to_pylist() if old is not None else [None] * len(numbers)
        now = self.batch.column(self.spec.system.meta).take(pa.array(numbers)).to_pylist()
        named = [{n for n, source in self.names.items() if source in self.given[at]} for at in numbers]
        texts = [_note(b, a, names) for b, a, names in zip(before, now, named, strict=True)]
        return pa.array(texts, pa.string())

    def _extra(self, old: pa.Array | None, numbers: Numbers) -> pa.Array:
        """Return the objects with the given members in the place of the old ones."""
        before = old.to_pylist() if old is not None else [None] * len(numbers)
        now = self.batch.column(self.spec.system.extra).take(pa.array(numbers)).to_pylist()
        texts = []
        for was, new, at in zip(before, now, numbers, strict=True):
            stays = {k: v for k, v in json.loads(was or "{}").items() if k not in self.given[at]}
            texts.append(compact_json(both) if (both := {**stays, **json.loads(new or "{}")}) else None)
        return pa.array(texts, pa.string())


def _note(before: str | None, now: str | None, fields: set[str]) -> str | None:
    if before is None:
        return now
    document = json.loads(before)
    stays = [c for c in document.get("changes", ()) if c.get("field") not in fields]
    changes = [*stays, *json.loads(now or "{}").get("changes", ())]
    left = {k: v for k, v in document.items() if k != "changes"} | ({"changes": changes} if changes else {})
    return compact_json(left) if left else None
