"""Quarantined values of a table that has got another key: each is found by it from then on, as its row is."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from instep.model import Run
from instep.stage.casts.text import to_text
from instep.stage.conform import compact_json
from instep.stage.quarantine import QuarantineEntry, entry_id
from instep.sync.context import SyncContext
from instep.sync.quarantine.entry_columns import with_hashed
from instep.sync.quarantine.quarantine import QuarantinePlace, quarantine_places
from instep.sync.quarantine.rejoin import ColumnsNow, StillInvalid


def give_new_key(context: SyncContext, path: str, run: Run) -> int:
    """Give the entries of a table the key that it has now, by the rows that have their earlier keys; return how many.
    Do nothing for those that have it already, and for values without a row. Settled entries, too: whoever erases a row
    names the key that it has now. A discarded value stays so when it is quarantined under the new key; a discarded row
    has no values left to make that key of."""
    total = 0
    for place in quarantine_places(context, [path], run):
        with place.stored(context) as stored:
            count = 0
            for entries in stored.batches():
                changed = list(_with_new_key(context, place, entries))
                stored.change_keys(changed)
                count += len(changed)
            if count:
                stored.put_together(run.id, 0)
            total += count
    return total


def _with_new_key(
    context: SyncContext, place: QuarantinePlace, entries: Sequence[QuarantineEntry]
) -> Iterator[tuple[str, QuarantineEntry]]:
    """Yield each entry as it is under its new key, with the id that it had."""
    columns = ColumnsNow(context, place.table, place.target.schema)
    names = {(c.alias or c.name): c.name for c in place.table.columns}
    by_key: dict[tuple[str, ...], list[_OldKey]] = defaultdict(list)
    for entry in entries:
        if not entry.column:
            yield from _whole_row(columns, entry, names)
        elif (old := _old_key(columns, entry)) is not None:
            by_key[tuple(old.values)].append(old)
    for some in by_key.values():
        keys = pa.table({n: pa.concat_arrays([old_key.values[n] for old_key in some]) for n in some[0].values})
        keys = keys.group_by(keys.column_names).aggregate([]).select(keys.column_names)
        rows = context.destination.write.lookup_rows(place.ref, keys).rows
        texts = {n: to_text(rows.column(n).combine_chunks()).to_pylist() for n in columns.key}
        index = dict(zip(_tuples(rows, keys.column_names), range(len(rows)), strict=True))
        for old_key in some:
            at = index.get(tuple(value[0].as_py() for value in old_key.values.values()))
            if at is None or any(texts[n][at] is None for n in columns.key):
                continue
            yield _renamed(columns, old_key.entry, {names[n]: texts[n][at] for n in columns.key})


def _whole_row(
    columns: ColumnsNow, entry: QuarantineEntry, names: Mapping[str, str]
) -> Iterator[tuple[str, QuarantineEntry]]:
    """Yield a row that was refused under its new key, which is made of its own values; nothing for one without
    these."""
    try:
        texts = columns.key_texts(entry)
    except StillInvalid:
        return
    key = {names[n]: text for n, text in texts.items()}
    if entry.original is not None and json.loads(entry.key) != key:
        yield _renamed(columns, entry, key)


def _renamed(columns: ColumnsNow, entry: QuarantineEntry, key: Mapping[str, str | None]) -> tuple[str, QuarantineEntry]:
    text = compact_json(key)
    id = entry_id(entry.table, text, entry.column, entry.digest) if entry.digest else entry.id
    hashed = [path for path in key if columns.columns.treatment(path, entry).is_hashed]
    marked = with_hashed(entry, hashed) if entry.hashed or hashed else ""
    return entry.id, replace(entry, id=id, key=text, hashed=marked)


@dataclass(frozen=True)
class _OldKey:
    """An entry with its earlier key, by the destination's names."""

    entry: QuarantineEntry
    values: dict[str, pa.Array]


def _old_key(columns: ColumnsNow, entry: QuarantineEntry) -> _OldKey | None:
    """Return the earlier key of a value; None if it has the key of today, or its own can no longer be read."""
    try:
        texts = columns.placed(json.loads(entry.key), entry)
        if not texts or set(texts) == set(columns.key) or None in texts.values():
            return None
        return _OldKey(entry, {n: columns.value(n, str(texts[n]), key=True) for n in sorted(texts)})
    except StillInvalid:
        return None


def _tuples(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in names), strict=True)
