# ruff: noqa: S608 - names are of this module
"""The quarantine of one table as entries that need not fit into memory: DuckDB has them, on disk where it must."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import StageError
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.files.place import StorageFolder
from instep.stage.fold import slices
from instep.stage.quarantine import (
    ID_LENGTH,
    SCHEMA,
    SETTLED,
    QuarantineEntry,
    batches_of,
    entry_of,
    files_in,
    remove_files,
    write_statuses,
)

if TYPE_CHECKING:
    import duckdb

MEMORY = "256MB"
GROUP = 10_000
FIRST_IDS = 10_000
"""The most ids of settled entries that an answer names."""
ALL = tuple(SCHEMA.names)
COUNTED = ("id", "column", "reason", "change", "run", "since", "at", "status")
"""The columns by which entries are counted and found: neither keys nor originals."""
_KEYED = ("key", "original", "digest", "hashed")
"""The columns that change with the key: an original may be hashed by then."""


Place = tuple[datetime, str]
"""Place of an entry among those of its table, newest first: its moment and id."""


@dataclass(frozen=True)
class EntryFilter:
    """The entries that are looked for; all without one of these."""

    status: str = ""
    column: str = ""
    run: str = ""
    """Beginning of the run's id."""
    id: str = ""
    """Beginning of the entry's id."""
    until: datetime | None = None
    """The last moment at which they were quarantined."""

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition and its parameters."""
        conditions = {
            "status = ?": self.status,
            '"column" = ?': self.column,
            "starts_with(run, ?)": self.run,
            "starts_with(id, ?)": self.id,
            '"at" <= ?': self.until,
        }
        chosen = {sql: value for sql, value in conditions.items() if value}
        return " AND ".join(chosen) or "true", list(chosen.values())


@dataclass(frozen=True)
class EntryCount:
    """Entries that are alike."""

    column: str
    reason: str
    change: str
    status: str
    count: int
    newest: datetime


class StoredQuarantine:
    """The entries of one table, one an id, oldest first; the `files` that they are in, and those that cannot be read
    (`broken`). What leaves is passed through `guard`."""

    def __init__(
        self,
        db: duckdb.DuckDBPyConnection,
        place: StorageFolder,
        ignored: Collection[str],
        guard: Callable[[QuarantineEntry], QuarantineEntry],
        columns: Sequence[str] = ALL,
        only: pc.Expression | None = None,
    ) -> None:
        self._db, self._place, self._guard = db, place, guard
        self._columns, self._only = columns, only
        self.files, self.broken = list[str](), list[str]()
        schema = pa.schema([SCHEMA.field(c) for c in columns])
        marks = [pa.field("file", pa.string()), pa.field("settled", pa.bool_())]
        db.register("batch", pa.schema([*schema, *marks]).empty_table())
        db.execute("CREATE TEMP TABLE found AS SELECT * FROM batch")
        for name in files_in(place.uri, place.io, ignored):
            self._read(name)
        db.execute(_newest(columns))
        db.execute("DROP TABLE found")
        self.count = self._rows = self._number("SELECT count(*) FROM entries")
        self.buckets = 1

    def _read(self, name: str) -> None:
        """Take a file in, all of it or nothing."""
        settled = str(name.startswith(SETTLED)).lower()
        self._db.execute("BEGIN")
        try:
            for entries in batches_of(self._place, name, self._columns):
                rows = entries if self._only is None else entries.filter(self._only)
                self._insert(rows, f"INSERT INTO found SELECT *, ?, {settled} FROM batch", name)
        except (OSError, pa.ArrowException):
            self._db.execute("ROLLBACK")
            self.broken.append(name)
        else:
            self._db.execute("COMMIT")
            self.files.append(name)

    def _insert(self, rows: pa.Table, sql: str, *parameters: Any) -> None:
        self._db.register("batch", rows)
        self._db.execute(sql, parameters)
        self._db.unregister("batch")

    def _number(self, sql: str, *parameters: Any) -> int:
        [(number,)] = self._db.execute(sql, parameters).fetchall()
        return int(number)

    def counts(self, chosen: EntryFilter) -> list[EntryCount]:
        """Count entries by column, reason, change and status."""
        names, (where, parameters) = '"column", reason, change, status', chosen.where()
        sql = f'SELECT {names}, count(*), max("at") FROM entries WHERE {where} GROUP BY ALL ORDER BY {names}'
        return [EntryCount(*row) for row in self._db.execute(sql, parameters).fetchall()]

    def reasons(self) -> dict[tuple[str, str], int]:
        """Count the entries that are held, by column and reason."""
        sql = "SELECT \"column\", reason, count(*) FROM entries WHERE status = 'held' GROUP BY ALL"
        return {(column, reason): count for column, reason, count in self._db.execute(sql).fetchall()}

    def newest_ids(self, chosen: EntryFilter, after: Place | None, limit: int) -> list[str]:
        """Return the ids of at most `limit` entries, newest first, behind the place `after`."""
        self._page(chosen, after, limit)
        return [id for (id,) in self._db.execute("SELECT id FROM page ORDER BY turn").fetchall()]

    def newest(self, chosen: EntryFilter, after: Place | None, limit: int) -> Iterator[list[QuarantineEntry]]:
        """Yield at most `limit` entries, newest first, behind the place `after`, some at a time."""
        self._page(chosen, after, limit)
        for start in range(0, self._number("SELECT count(*) FROM page"), GROUP):
            turns = f"page.turn > {start} AND page.turn <= {start + GROUP}"
            yield self._entries(f"{turns} ORDER BY turn", source="entries JOIN page USING (id)")

    def _page(self, chosen: EntryFilter, after: Place | None, limit: int) -> None:
        where, parameters = chosen.where()
        if after is not None:
            where += ' AND ("at" < ? OR ("at" = ? AND id > ?))'
            parameters += [after[0], after[0], after[1]]
        order = 'ORDER BY "at" DESC, id'
        self._db.execute(
            f"CREATE OR REPLACE TEMP TABLE page AS SELECT id, row_number() OVER ({order}) AS turn "
            f"FROM entries WHERE {where} {order} LIMIT {limit}",
            parameters,
        )

    def starting(self, ids: Collection[str]) -> dict[str, tuple[int, str]]:
        """Return by each of these ids, or beginnings of ids, how many entries it names, and the first of them."""
        self._db.register("batch", pa.table({"prefix": pa.array(sorted(set(ids)), pa.string())}))
        joined = (
            "SELECT prefix, count(*), min(id) FROM (SELECT * FROM batch WHERE length(prefix) {}) JOIN entries ON {}"
        )
        whole = joined.format(f">= {ID_LENGTH}", "id = prefix")
        short = joined.format(f"< {ID_LENGTH}", "starts_with(id, prefix)")
        rows = self._db.execute(f"{whole} GROUP BY ALL UNION ALL {short} GROUP BY ALL").fetchall()
        self._db.unregister("batch")
        return {prefix: (count, id) for prefix, count, id in rows}

    def count_older(self, limit: datetime) -> int:
        """Return how many were held last before this moment."""
        return self._number('SELECT count(*) FROM entries WHERE "at" < ?', limit)

    def batches(self) -> Iterator[list[QuarantineEntry]]:
        """Yield all entries, some at a time."""
        for start in range(0, self._rows, GROUP):
            if entries := self._entries("n >= ? AND n < ? ORDER BY n", start, start + GROUP):
                yield entries

    def divide(self, size: int, place_of: Callable[[QuarantineEntry], tuple[int, int]]) -> None:
        """Divide entries into buckets of about `size`, in the order of their places; those of one place are together.
        From then on entries are in the order of the buckets, so that each is read by itself."""
        if self.count <= size:
            return
        self._db.execute("CREATE OR REPLACE TEMP TABLE places (n BIGINT, place BIGINT, mix BIGINT)")
        for start, entries in enumerate(self.batches()):
            place, mix = zip(*map(place_of, entries), strict=True)
            numbers = range(start * GROUP, start * GROUP + len(entries))
            columns = {"n": numbers, "place": place, "mix": mix}
            rows = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
            self._insert(rows, "INSERT INTO places SELECT * FROM batch")
        ranked = f"SELECT n, (rank() OVER (ORDER BY place, mix) - 1) // {size} AS bucket FROM places"
        self._db.execute(
            "CREATE TEMP TABLE divided AS SELECT row_number() OVER (ORDER BY found.bucket, n) - 1 AS n, found.bucket, "
            f"entries.* EXCLUDE (n, bucket) FROM entries JOIN ({ranked}) AS found USING (n) ORDER BY n"
        )
        self._db.execute("DROP TABLE entries; DROP TABLE places; ALTER TABLE divided RENAME TO entries")
        self.buckets = self._number("SELECT max(bucket) + 1 FROM entries")

    def bucket(self, number: int) -> list[QuarantineEntry]:
        """Return the entries of a bucket."""
        return self._entries("bucket = ? ORDER BY n", number)

    def _entries(self, where: str, *parameters: Any, source: str = "entries") -> list[QuarantineEntry]:
        sql = f"SELECT {_quoted(ALL)} FROM {source} WHERE {where}"
        rows = self._db.sql(sql, params=parameters).to_arrow_table().cast(SCHEMA)
        return [self._guard(entry_of(row)) for row in rows.to_pylist()]

    def record_status(self, changed: Sequence[QuarantineEntry], run: str, number: int) -> None:
        """Record what has become of entries, in a file beside the others; `number` rises within a run."""
        if not changed:
            return
        self.files.append(write_statuses(self._place, run, number, [changed]))
        self._insert(
            pa.table({name: [getattr(e, name) for e in changed] for name in ("id", "status", "reason")}),
            "UPDATE entries SET status = batch.status, reason = batch.reason FROM batch WHERE entries.id = batch.id",
        )

    def change_keys(self, changed: Sequence[tuple[str, QuarantineEntry]]) -> None:
        """Give entries, by the ids that they have, the ids and keys of these. `put_together` writes it down."""
        if not changed:
            return
        columns = {
            "was": [id for id, _ in changed],
            "id": [entry.id for _, entry in changed],
            **{name: [getattr(entry, name) for _, entry in changed] for name in _KEYED},
        }
        rows = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
        new = ", ".join(f"{name} = batch.{name}" for name in ("id", *_KEYED))
        self._insert(rows, f"UPDATE entries SET {new} FROM batch WHERE entries.id = batch.was")

    def discard(self, chosen: EntryFilter, ids: Collection[str] | None = None) -> tuple[int, list[str]]:
        """Discard those entries of `ids` (None: of all) that are quarantined; return how many, and the first of
        their ids. `put_together` writes it down."""
        where, parameters = chosen.where()
        self._choose(f"status = 'held' AND {where}", parameters, ids)
        gone = self._number("SELECT count(*) FROM chosen")
        first = self._db.execute(f"SELECT id FROM chosen ORDER BY id LIMIT {FIRST_IDS}").fetchall()
        self._db.execute("UPDATE entries SET status = 'discarded', original = NULL WHERE id IN (SELECT id FROM chosen)")
        return gone, [id for (id,) in first]

    def erase(self, ids: Collection[str]) -> int:
        """Erase the entries with these ids; return how many there were. `put_together` writes it down."""
        self._choose("true", [], ids)
        self._db.execute("DELETE FROM entries WHERE id IN (SELECT id FROM chosen)")
        gone, self.count = self.count, self._number("SELECT count(*) FROM entries")
        return gone - self.count

    def _choose(self, where: str, parameters: Sequence[Any], ids: Collection[str] | None) -> None:
        self._db.register("batch", pa.table({"id": pa.array(sorted(ids or ()), pa.string())}))
        among = " AND id IN (SELECT id FROM batch)" if ids is not None else ""
        self._db.execute(
            f"CREATE OR REPLACE TEMP TABLE chosen AS SELECT id FROM entries WHERE {where}{among}", parameters
        )
        self._db.unregister("batch")

    def put_together(self, run: str, number: int, limit: datetime | None = None) -> None:
        """Replace all files by one, without entries last quarantined before `limit`. A crash in between leaves both,
        which read as the new one except for removed entries: those go when it is repeated."""
        groups = ([e for e in entries if limit is None or e.at >= limit] for entries in self.batches())
        left = self.count - (self.count_older(limit) if limit is not None else 0)
        new = [write_statuses(self._place, run, number, groups)] if left else []
        remove_files(self._place, self.files)
        self.files = new


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _newest(columns: Sequence[str]) -> str:
    """Return the statement that leaves one entry an id: what was held last counts, and of that what was settled. What
    was discarded stays so."""
    discarded = "bool_or(status = 'discarded') OVER same"
    settled = [
        "min(since) OVER same AS since",
        f"CASE WHEN {discarded} THEN 'discarded' ELSE status END AS status",
        *([f"CASE WHEN {discarded} THEN NULL ELSE original END AS original"] if "original" in columns else []),
    ]
    return f"""CREATE TEMP TABLE entries AS SELECT row_number() OVER (ORDER BY "at", id) - 1 AS n, 0 AS bucket, *
    FROM (SELECT {_quoted(columns)} FROM (
        SELECT * REPLACE ({", ".join(settled)}),
            row_number() OVER (PARTITION BY id ORDER BY "at" DESC, settled DESC, file DESC) AS turn
        FROM found WINDOW same AS (PARTITION BY id)
    ) WHERE turn = 1) ORDER BY n"""


def _unreadable(why: str) -> StageError:
    return StageError(f"the quarantine could not be read: {why}", hint="nothing was changed; run it again")


@contextmanager
def stored_quarantine(
    uri: str,
    io: Mapping[str, str],
    ignored: Collection[str],
    guard: Callable[[QuarantineEntry], QuarantineEntry],
    columns: Sequence[str] = ALL,
    only: pc.Expression | None = None,
) -> Iterator[StoredQuarantine]:
    """Read what the folder `uri` holds; the files of `ignored` runs, which have committed nothing, are left out.
    `columns`: those that are needed, of COUNTED at least. `only`: a condition that all files of an entry meet alike."""
    with in_duckdb(MEMORY, wrong=_unreadable) as db:
        yield StoredQuarantine(db, StorageFolder(uri, io), ignored, guard, columns, only)


def count_waiting(uri: str, io: Mapping[str, str], ignored: Collection[str]) -> tuple[int, list[str]]:
    """Return how many entries of a folder are held, and the files that could be read. Of each entry only what decides
    that is read, and no entry is put in order: a number of 64 bits stands for its id."""
    place, read = StorageFolder(uri, io), list[str]()
    with in_duckdb(MEMORY, wrong=_unreadable) as db:
        db.execute(
            'CREATE TEMP TABLE states (id UBIGINT, "at" TIMESTAMPTZ, status VARCHAR, settled BOOLEAN, file VARCHAR)'
        )
        for name in files_in(uri, io, ignored):
            db.execute("BEGIN")
            try:
                for batch in slices(b for t in batches_of(place, name, ("id", "at", "status")) for b in t.to_batches()):
                    db.register("batch", batch)
                    number = "coalesce(TRY_CAST('0x' || substr(id, 3) AS UBIGINT), hash(id))"
                    sql = f'INSERT INTO states SELECT {number}, "at", status, ?, ? FROM batch'
                    db.execute(sql, [name.startswith(SETTLED), name])
                    db.unregister("batch")
            except (OSError, pa.ArrowException):
                db.execute("ROLLBACK")
            else:
                db.execute("COMMIT")
                read.append(name)
        [(count,)] = db.execute(
            'SELECT count(*) FROM (SELECT arg_max(status, ROW("at", settled, file)) AS last, '
            "bool_or(status = 'discarded') AS discarded FROM states GROUP BY id) WHERE last = 'held' AND NOT discarded"
        ).fetchall()
    return int(count), read
