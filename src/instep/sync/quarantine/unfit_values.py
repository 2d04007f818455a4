"""The values of a source that do not fit now, compared with what the quarantine of its table has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.schema.catalog.catalog import Table
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.quarantine import QuarantineEntry, field_id
from instep.stage.quarantine_hashes import SCHEMA, QuarantineHashes, place_hash
from instep.sync.context import SyncContext
from instep.sync.quarantine.quarantine import quarantine_places
from instep.temporary import temporary

_ENTRIES = pa.schema([("id", pa.string()), ("place", pa.string()), ("status", pa.string())])


@dataclass(frozen=True)
class QuarantineCount:
    """Count of source values that the table does not accept."""

    values: int = 0
    """Values held in quarantine, of rows that are there without them."""
    rows: int = 0
    """Whole rows in quarantine."""
    discarded: int = 0
    """Values and rows that a person has let go."""
    absent: int = 0
    """Values and rows that are in no quarantine."""
    stale: int = 0
    """Entries of the quarantine whose value the source no longer has."""


@dataclass
class QuarantinedColumns:
    """Values of one table that do not fit, as its source has them now. They are kept as hashes in a file: there may be
    as many as rows."""

    hashes: QuarantineHashes
    folder: Path = field(repr=False)
    rejected: int = 0
    count: int = 0
    _writer: Any = field(default=None, repr=False)

    def add(self, batch: pa.RecordBatch) -> None:
        """Note what was found, by hashes."""
        self.count += len(batch)
        self.rejected += pc.sum(batch.column(2)).as_py() or 0
        self._writing().write_batch(batch)

    def batches(self) -> pa.RecordBatchReader:
        """Return the added batches, once."""
        self._writing().close()
        return pa.ipc.open_stream(pa.memory_map(str(self.folder / "found")))

    def _writing(self) -> Any:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(str(self.folder / "found"), SCHEMA)
        return self._writer


@contextmanager
def quarantined_columns(table: str, names: Mapping[str, str]) -> Iterator[QuarantinedColumns]:
    """Collect what does not fit of the accepted table with this path; `names` are its columns' names at the
    destination."""
    with temporary("verify") as folder:
        yield QuarantinedColumns(QuarantineHashes(table, names), Path(folder))


def count_quarantined(context: SyncContext, table: Table, quarantined: QuarantinedColumns) -> QuarantineCount:
    """Compare what does not fit with what the table's quarantine holds, by key, column and original."""
    if not quarantined.count and not context.store.runs.has_quarantined(context.name):
        return QuarantineCount()
    with in_duckdb() as db:
        db.register("found_now", quarantined.batches())
        db.execute("CREATE TEMP TABLE here AS SELECT DISTINCT id, place, whole FROM found_now")
        db.register("batch", _ENTRIES.empty_table())
        db.execute("CREATE TEMP TABLE quarantined AS SELECT * FROM batch")
        for batch in _entries(context, table, quarantined.hashes.names):
            db.register("batch", batch)
            db.execute("INSERT INTO quarantined SELECT * FROM batch")
        matched = (
            "SELECT h.id, h.whole, coalesce(a.status, b.status, '') AS status FROM here AS h "
            "LEFT JOIN (SELECT id, min(status) AS status FROM quarantined GROUP BY id) AS a USING (id) LEFT JOIN "
            "(SELECT DISTINCT place, status FROM quarantined WHERE status = 'held') AS b USING (place)"
        )
        counted = {
            (whole, status): n
            for whole, status, n in db.execute(
                f"SELECT whole, status, count(*) FROM ({matched}) GROUP BY ALL"  # noqa: S608 - of this module
            ).fetchall()
        }
        [(stale,)] = db.execute(
            "SELECT count(*) FROM quarantined WHERE status = 'held' AND id NOT IN (SELECT id FROM here) "
            "AND place NOT IN (SELECT place FROM here)"
        ).fetchall()
    discarded = sum(n for (_, status), n in counted.items() if status == "discarded")
    values, rows = counted.get((False, "held"), 0), counted.get((True, "held"), 0)
    return QuarantineCount(values, rows, discarded, sum(counted.values()) - values - rows - discarded, stale)


def _entries(context: SyncContext, table: Table, names: Mapping[str, str]) -> Iterator[pa.Table]:
    for place in quarantine_places(context, [table.path]):
        by_id = {field_id(f): f.name for f in place.target.schema if field_id(f)}
        with place.stored(context) as stored:
            for entries in stored.batches():
                mine = [e for e in entries if e.status in ("held", "discarded")]
                rows = [{"id": e.id, "place": _place_of(e, by_id, names), "status": e.status} for e in mine]
                yield pa.Table.from_pylist(rows, schema=_ENTRIES)


def _place_of(entry: QuarantineEntry, by_id: Mapping[int, str], names: Mapping[str, str]) -> str:
    """Return the entry under the names that its columns have at the destination now."""
    fields = json.loads(entry.fields)

    def now(path: str) -> str:
        return by_id.get(fields.get(path, 0)) or names.get(path, path)

    def named(text: str) -> Mapping[str, Any]:
        return {now(path): value for path, value in json.loads(text).items()}

    original = entry.original if entry.column else named(entry.original or "{}")
    return place_hash(named(entry.key), now(entry.column) if entry.column else "", original)
