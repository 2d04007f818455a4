"""Rows that were replaced as a whole, by statements that write none of those that were: TRUNCATE, ATTACH PARTITION.

A new row may have the key of an old one and a cursor that is no newer, so that a cursor does not find it. TRUNCATE
gives a table another file, as VACUUM FULL and CLUSTER do. But these keep the transaction that has made each row, while
no row that is older than a TRUNCATE outlives it: one row of a transaction that was over when the file before was seen
shows that the rows were kept. A table that is attached brings the rows that are no newer than that.

ALTER TABLE makes all rows anew if it gives a column another type. They count as kept if such a column is as old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.sources.log import OWN_FILE, SINCE
from instep.sources.postgres.types import quote_table

if TYPE_CHECKING:
    import psycopg

_ROWS = "rows"
"""Names the moment in a shape from which on the rows were not replaced."""
_HALF_ROUND = 1 << 31
_AGE = "(({xid} - r.xmin::text::int8) & 4294967295)"
"""The number of transactions that a row is older than another one. Numbers come again after 2^32."""


@dataclass(frozen=True)
class RowFile:
    """A table that rows are in: the table itself, a partition, or one that inherits from it."""

    oid: int
    since: str
    """Transaction that made it a part of the table, "" for the table itself."""
    number: int
    born: bool
    schema: str
    name: str
    readable: bool

    @property
    def key(self) -> str:
        return f"{OWN_FILE}{self.oid}"

    @property
    def state(self) -> str:
        return f"{self.number}.{self.since}"


@dataclass(frozen=True)
class RowFiles:
    """The files of a table's rows at a snapshot: transactions below `settled` are over, none is `following`."""

    table: tuple[str, str]
    settled: int
    following: int
    files: tuple[RowFile, ...]

    def definition(
        self, connection: psycopg.Connection[Any], before: Mapping[str, str], now: Mapping[str, str]
    ) -> dict[str, str]:
        """Return what to add to the definition `now`: its `rows` differ from those of `before` if rows were replaced,
        or if that cannot be ruled out."""
        since, files = before.get(_ROWS, ""), {f.key: f.state for f in self.files}
        changed = [f for f in self.files if before.get(f.key) != f.state] if since else []
        if changed and not int(since) <= self.following < int(since) + _HALF_ROUND:
            since = ""
        import psycopg

        retyped = [xid for name, xid in now.items() if name.startswith(SINCE) and name not in before]
        try:
            empty = [f for f in changed if f.key in before and not self._has(connection, f, "true")]
            filled = [f for f in changed if f not in empty]
            if not all(
                self._has_old_rows(connection, f, before.get(f.key), int(since), retyped) for f in filled if since
            ):
                since = ""
        except psycopg.OperationalError:
            raise
        except psycopg.Error:  # not all of its columns may be read, or its rows have no transactions
            since, empty = "", []
        # What has lost its rows is looked at again once it has new ones.
        return {_ROWS: since or str(self.settled), **files, **{f.key: before[f.key] for f in empty}}

    def _has_old_rows(
        self, connection: psycopg.Connection[Any], file: RowFile, was: str | None, since: int, retyped: Sequence[str]
    ) -> bool:
        if was is None and not file.since:
            return False  # the name is another table's
        number, _, joined = (was or "").partition(".")
        if file.since and file.since != joined and not file.born:
            age = _AGE.format(xid=file.since)
            if self._has(connection, file, f"{age} < {_HALF_ROUND} OR r.xmin::text::int8 < 3"):
                return False
        if was is None or number == str(file.number):
            return True
        age, same = _AGE.format(xid=since), "".join(f" OR r.xmin::text = '{int(xid)}'" for xid in retyped)
        return self._has(connection, file, f"{age} BETWEEN 1 AND {_HALF_ROUND} OR r.xmin::text::int8 < 3{same}")

    def _has(self, connection: psycopg.Connection[Any], file: RowFile, condition: str) -> bool:
        """Return whether the file has a row; who may not read it by itself reads it as a part of the table."""
        place = f"ONLY {quote_table(file.schema, file.name)}" if file.readable else quote_table(*self.table)
        query = f"SELECT EXISTS (SELECT FROM {place} r WHERE r.tableoid = {file.oid} AND ({condition}))"  # noqa: S608 - quoted
        with connection.transaction():
            row = connection.execute(query.encode()).fetchone()
        return bool(row and row[0])
