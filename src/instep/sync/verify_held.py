"""Values of the source that a destination does not have because they do not fit: looked up in the quarantine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa

from instep.schema.table import Table
from instep.stage.conform import Held
from instep.stage.entries import Entry
from instep.stage.in_duckdb import in_duckdb
from instep.stage.quarantine import entry_id, field_id
from instep.sync.held.quarantine import holdings
from instep.sync.pipe import Pipe
from instep.temporary import temporary

_SCHEMA = pa.schema([("id", pa.string()), ("place", pa.string()), ("whole", pa.bool_())])
_ENTRIES = pa.schema([("id", pa.string()), ("place", pa.string()), ("status", pa.string())])
_GROUP = 10_000


@dataclass(frozen=True)
class HeldCount:
    """What the source has and its table does not take."""

    values: int = 0
    """Values held in quarantine, of rows that are there without them."""
    rows: int = 0
    """Whole rows held in quarantine."""
    discarded: int = 0
    """Values and rows that a person has let go."""
    absent: int = 0
    """Values and rows that are in no quarantine."""
    stale: int = 0
    """Entries of the quarantine whose value the source does not have any more."""


@dataclass
class HeldValues:
    """Values of one table that do not fit, as its source has them now. They are kept as hashes in a file: there may be
    as many as rows."""

    table: str
    names: Mapping[str, str]
    folder: Path = field(repr=False)
    rejected: int = 0
    count: int = 0
    _rows: list[tuple[str, str, bool]] = field(default_factory=list, repr=False)
    _writer: Any = field(default=None, repr=False)

    def add(self, held: Sequence[Held]) -> None:
        self.count += len(held)
        for one in held:
            self.rejected += not one.column
            place = _place(self._named(one.key), self.names.get(one.column, one.column), self._original(one))
            self._rows.append((entry_id(self.table, one.key, one.column, one.original), place, not one.column))
            if len(self._rows) >= _GROUP:
                self._flush()

    def batches(self) -> pa.RecordBatchReader:
        """Return what was added, once."""
        self._flush()
        self._writer.close()
        return pa.ipc.open_stream(pa.memory_map(str(self.folder / "held")))

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(str(self.folder / "held"), _SCHEMA)
        columns = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        self._writer.write_batch(pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)],
                                                 schema=_SCHEMA))  # fmt: skip
        self._rows = []

    def _named(self, text: str) -> Mapping[str, Any]:
        return {self.names.get(path, path): value for path, value in json.loads(text).items()}

    def _original(self, one: Held) -> Any:
        return one.original if one.column else self._named(one.original or "{}")


@contextmanager
def held_values(table: str, names: Mapping[str, str]) -> Iterator[HeldValues]:
    """Collect what does not fit of the accepted table with this path; `names` are its columns' names at the
    destination."""
    with temporary("verify") as folder:
        yield HeldValues(table, names, Path(folder))


def count_held(pipe: Pipe, table: Table, found: HeldValues) -> HeldCount:
    """Compare what does not fit with what the table's quarantine holds, by key, column and original."""
    if not found.count and not pipe.store.runs.ever_held(pipe.name):
        return HeldCount()
    entries = pa.Table.from_batches(list(_entries(pipe, table, found.names)), _ENTRIES)
    with in_duckdb() as db:
        db.register("found_now", found.batches())
        db.execute("CREATE TEMP TABLE here AS SELECT DISTINCT id, place, whole FROM found_now")
        db.register("quarantined", entries)
        known = (
            "SELECT h.id, h.whole, coalesce(a.status, b.status, '') AS status FROM here AS h "
            "LEFT JOIN (SELECT id, min(status) AS status FROM quarantined GROUP BY id) AS a USING (id) LEFT JOIN "
            "(SELECT DISTINCT place, status FROM quarantined WHERE status = 'held') AS b USING (place)"
        )
        counted = {(whole, status): n for whole, status, n in db.execute(
            f"SELECT whole, status, count(*) FROM ({known}) GROUP BY ALL"  # noqa: S608 - of this module
        ).fetchall()}  # fmt: skip
        [(stale,)] = db.execute(
            "SELECT count(*) FROM quarantined WHERE status = 'held' AND id NOT IN (SELECT id FROM here) "
            "AND place NOT IN (SELECT place FROM here)"
        ).fetchall()
    discarded = sum(n for (_, status), n in counted.items() if status == "discarded")
    values, rows = counted.get((False, "held"), 0), counted.get((True, "held"), 0)
    return HeldCount(values, rows, discarded, sum(counted.values()) - values - rows - discarded, stale)


def _entries(pipe: Pipe, table: Table, names: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for holding in holdings(pipe, [table.path]):
        by_id = {field_id(f): f.name for f in holding.target.schema if field_id(f)}
        mine = [e for e in holding.found.entries if e.status in ("held", "discarded")]
        rows = [{"id": e.id, "place": _place_of(e, by_id, names), "status": e.status} for e in mine]
        yield from pa.Table.from_pylist(rows, schema=_ENTRIES).to_batches()


def _place_of(entry: Entry, by_id: Mapping[int, str], names: Mapping[str, str]) -> str:
    """The entry under the names that its columns have at the destination now."""
    fields = json.loads(entry.fields)

    def now(path: str) -> str:
        return by_id.get(fields.get(path, 0)) or names.get(path, path)

    def named(text: str) -> Mapping[str, Any]:
        return {now(path): value for path, value in json.loads(text).items()}

    original = entry.original if entry.column else named(entry.original or "{}")
    return _place(named(entry.key), now(entry.column) if entry.column else "", original)


def _place(key: Mapping[str, Any], column: str, original: Any) -> str:
    """Key, column and original as one hash: nothing of a row is written down in clear."""
    return sha256(json.dumps([key, column, original], sort_keys=True).encode()).hexdigest()


Told = Callable[[Sequence[Held]], None]
"""Is given what does not fit, batch by batch."""


__all__ = ["HeldCount", "HeldValues", "Told", "count_held", "held_values"]
