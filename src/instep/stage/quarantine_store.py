# ruff: noqa: S608 - names are of this module
"""The quarantine of one table as entries that need not fit into memory: DuckDB has them, on disk where it must."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.errors import StageError
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.files.place import StorageFolder
from instep.stage.quarantine import (
    SCHEMA,
    SETTLED,
    QuarantineEntry,
    batches_of,
    entry_of,
    files_in,
    remove_files,
    write_settled,
)

if TYPE_CHECKING:
    import duckdb

GROUP = 10_000
_COLUMNS = ", ".join(f'"{name}"' for name in SCHEMA.names)
_FILES = pa.schema([*SCHEMA, pa.field("file", pa.string()), pa.field("settled", pa.bool_())])
_NEWEST = f"""CREATE TEMP TABLE entries AS SELECT row_number() OVER (ORDER BY "at", id) - 1 AS n, 0 AS bucket, *
FROM (SELECT {_COLUMNS} FROM (
    SELECT * REPLACE (min(since) OVER same AS since,
        CASE WHEN bool_or(status = 'discarded') OVER same THEN 'discarded' ELSE status END AS status,
        CASE WHEN bool_or(status = 'discarded') OVER same THEN NULL ELSE original END AS original),
        row_number() OVER (PARTITION BY id ORDER BY "at" DESC, settled DESC, file DESC) AS turn
    FROM found WINDOW same AS (PARTITION BY id)
) WHERE turn = 1) ORDER BY n"""
"""As `quarantine.merged` does it."""


class StoredQuarantine:
    """The entries of one table, one an id, oldest first; the `files` that they are in, and those that cannot be read
    (`broken`). What leaves is passed through `guard`."""

    def __init__(
        self,
        db: duckdb.DuckDBPyConnection,
        place: StorageFolder,
        ignored: Collection[str],
        guard: Callable[[QuarantineEntry], QuarantineEntry],
    ) -> None:
        self._db, self._place, self._guard = db, place, guard
        self.files, self.broken = list[str](), list[str]()
        db.register("batch", _FILES.empty_table())
        db.execute("CREATE TEMP TABLE found AS SELECT * FROM batch")
        for name in files_in(place.uri, place.io, ignored):
            self._read(name)
        db.execute(_NEWEST)
        db.execute("DROP TABLE found")
        self.count = self._number("SELECT count(*) FROM entries")
        self.buckets = 1

    def _read(self, name: str) -> None:
        """Take a file in, all of it or nothing."""
        settled = name.startswith(SETTLED)
        self._db.execute("BEGIN")
        try:
            for entries in batches_of(self._place, name):
                rows = [{**vars(e), "file": name, "settled": settled} for e in entries]
                self._insert(pa.Table.from_pylist(rows, schema=_FILES), "INSERT INTO found SELECT * FROM batch")
        except (OSError, pa.ArrowException):
            self._db.execute("ROLLBACK")
            self.broken.append(name)
        else:
            self._db.execute("COMMIT")
            self.files.append(name)

    def _insert(self, rows: pa.Table, sql: str) -> None:
        self._db.register("batch", rows)
        self._db.execute(sql)
        self._db.unregister("batch")

    def _number(self, sql: str, *parameters: Any) -> int:
        [(number,)] = self._db.execute(sql, parameters).fetchall()
        return int(number)

    def reasons(self) -> dict[tuple[str, str], int]:
        """Count the entries that are held, by column and reason."""
        sql = "SELECT \"column\", reason, count(*) FROM entries WHERE status = 'held' GROUP BY ALL"
        return {(column, reason): count for column, reason, count in self._db.execute(sql).fetchall()}

    def older(self, limit: datetime) -> int:
        """Return how many were held last before this moment."""
        return self._number('SELECT count(*) FROM entries WHERE "at" < ?', limit)

    def batches(self) -> Iterator[list[QuarantineEntry]]:
        """Yield all entries, some at a time."""
        for start in range(0, self.count, GROUP):
            yield self._entries("n >= ? AND n < ?", start, start + GROUP)

    def divide(self, size: int, number_of: Callable[[QuarantineEntry], int]) -> None:
        """Put entries of one number into one bucket; on average there are `size` in it at most."""
        self.buckets = max(-(-self.count // size), 1)
        if self.buckets == 1:
            return
        for start, entries in enumerate(self.batches()):
            numbers = pa.array([number_of(e) % self.buckets for e in entries])
            places = pa.array(range(start * GROUP, start * GROUP + len(entries)))
            self._insert(
                pa.table({"n": places, "bucket": numbers}),
                "UPDATE entries SET bucket = batch.bucket FROM batch WHERE entries.n = batch.n",
            )

    def bucket(self, number: int) -> list[QuarantineEntry]:
        """Return the entries of a bucket."""
        return self._entries("bucket = ?", number)

    def _entries(self, where: str, *parameters: Any) -> list[QuarantineEntry]:
        sql = f"SELECT {_COLUMNS} FROM entries WHERE {where} ORDER BY n"
        rows = self._db.sql(sql, params=parameters).to_arrow_table().cast(SCHEMA)
        return [self._guard(entry_of(row)) for row in rows.to_pylist()]

    def settle(self, changed: Sequence[QuarantineEntry], run: str, number: int) -> None:
        """Record what has become of entries, in a file beside the others; `number` rises within a run."""
        if not changed:
            return
        self.files.append(write_settled(self._place, run, number, [changed]))
        self._insert(
            pa.table({name: [getattr(e, name) for e in changed] for name in ("id", "status", "reason")}),
            "UPDATE entries SET status = batch.status, reason = batch.reason FROM batch WHERE entries.id = batch.id",
        )

    def put_together(self, run: str, number: int, limit: datetime | None = None) -> None:
        """Put one file in the place of all, without entries that were held last before `limit`."""
        groups = ([e for e in entries if limit is None or e.at >= limit] for entries in self.batches())
        left = self.count - (self.older(limit) if limit is not None else 0)
        new = [write_settled(self._place, run, number, groups)] if left else []
        remove_files(self._place, self.files)
        self.files = new


def _unreadable(why: str) -> StageError:
    return StageError(f"the quarantine could not be read: {why}", hint="nothing was changed; run it again")


@contextmanager
def stored_quarantine(
    uri: str, io: Mapping[str, str], ignored: Collection[str], guard: Callable[[QuarantineEntry], QuarantineEntry]
) -> Iterator[StoredQuarantine]:
    """Read what the folder `uri` holds; the files of `ignored` runs, which have committed nothing, are left out."""
    with in_duckdb(wrong=_unreadable) as db:
        yield StoredQuarantine(db, StorageFolder(uri, io), ignored, guard)
