"""Columns that the last load of each table has read, and which of them hashed.

A mirror of the cursors that destinations record with their data, and of how much is in their quarantines: for `status`
and for planning only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Row, Text, bindparam, cast, delete, insert, select, update

from instep.errors import Fenced
from instep.schema.planning.projection import LoadedColumn, LoadedRules
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database, of_tables
from instep.store.tables.catalogs import cursors, loaded_columns, quarantine_counts

Ref = tuple[str, str]


class LoadedColumns:
    def __init__(self, database: Database) -> None:
        self._db = database

    def save(
        self,
        connection: str,
        loaded: Mapping[Ref, Sequence[LoadedColumn]],
        filters: Mapping[Ref, LoadedRules] | None = None,
    ) -> None:
        """Replace the recorded columns of these accepted tables; a table without one of the `filters` keeps its own."""
        with self._db.write(connection) as transaction:
            now, new_filters = self._db.now(), filters or {}
            filters = {**self.filters(connection, loaded.keys() - new_filters.keys()), **new_filters}
            ensure(transaction, connection, now)
            _forget(transaction, connection, loaded)
            rows = [
                {
                    "connection": connection,
                    "table_schema": table[0],
                    "table_name": table[1],
                    "at": now,
                    "columns": [vars(c) for c in columns],
                    "filter": _rules_document(filters.get(table)),
                }
                for table, columns in loaded.items()
            ]
            if rows:
                transaction.execute(insert(loaded_columns), rows)

    def of(self, connection: str, tables: Collection[Ref] | None = None) -> dict[Ref, tuple[LoadedColumn, ...]]:
        """Return the columns by accepted table, of all tables or of these; tables that were never loaded are left
        out."""
        return {ref: tuple(LoadedColumn(**c) for c in row.columns) for ref, row in self._rows(connection, tables)}

    def incomplete(self, connection: str) -> list[tuple[Ref, str]]:
        """Return (table, column) of the columns without values in older rows, in order. Other tables are not read."""
        c = loaded_columns.c
        some = cast(c.columns, Text).contains('"partial": true', autoescape=True)
        with self._db.read() as transaction:
            rows = transaction.execute(select(loaded_columns).where(c.connection == connection, some)).all()
        return sorted(((r.table_schema, r.table_name), o["name"]) for r in rows for o in r.columns if o.get("partial"))

    def documents_of(self, names: Sequence[str]) -> dict[str, dict[Ref, Sequence[Mapping[str, Any]]]]:
        """Return the columns of several connections by accepted table, each with the fields of a `LoadedColumn`."""
        query = select(loaded_columns).where(loaded_columns.c.connection.in_(names))
        documents: dict[str, dict[Ref, Sequence[Mapping[str, Any]]]] = {name: {} for name in names}
        with self._db.read() as transaction:
            for r in transaction.execute(query):
                documents[r.connection][r.table_schema, r.table_name] = r.columns
        return documents

    def filters(self, connection: str, tables: Collection[Ref] | None = None) -> dict[Ref, LoadedRules]:
        """Return the rules by accepted table, of all tables or of these; a table without rules has all rows."""
        return {ref: LoadedRules(**row.filter) for ref, row in self._rows(connection, tables) if row.filter}

    def with_rules(
        self, connection: str, tables: Collection[Ref] | None = None
    ) -> dict[Ref, tuple[tuple[LoadedColumn, ...], LoadedRules]]:
        """Return the columns and the rules by accepted table, of all tables or of these; tables that were never loaded
        are left out."""
        return {
            ref: (tuple(LoadedColumn(**c) for c in row.columns), LoadedRules(**(row.filter or {})))
            for ref, row in self._rows(connection, tables)
        }

    def _rows(self, connection: str, tables: Collection[Ref] | None) -> list[tuple[Ref, Row[Any]]]:
        query = select(loaded_columns).where(loaded_columns.c.connection == connection)
        queries = [query] if tables is None else [query.where(these) for these in of_tables(loaded_columns, tables)]
        with self._db.read() as transaction:
            rows = [row for part in queries for row in transaction.execute(part)]
        return [((row.table_schema, row.table_name), row) for row in rows]

    def rename(self, connection: str, names: Mapping[tuple[Ref, str], str]) -> None:
        """Move records to the new names of renamed columns, by table and old name; all at once."""
        self._change(connection, lambda table, c: replace(c, name=names.get((table, c.name), c.name)))

    def fill(self, connection: str, table: Ref, column: str) -> None:
        """Record that every row of the table has the column's value where it was NULL. Values from before the column
        was left out are no NULL: they stay on record."""

        def filled(ref: Ref, c: LoadedColumn) -> LoadedColumn:
            return replace(c, partial=False) if (ref, c.name) == (table, column) and not c.outdated else c

        self._change(connection, filled)

    def lack(self, connection: str, table: Ref, columns: Collection[str]) -> None:
        """Record that rows of the table lack the values of these columns."""
        self._change(connection, lambda t, c: replace(c, partial=True) if t == table and c.name in columns else c)

    def forget(self, connection: str, columns: Collection[tuple[Ref, str]]) -> None:
        """Delete the records of columns that are removed, by table and name: the next one of that name is another. It
        stays on record whether their values are hashes."""
        tables = {table for table, _ in columns}
        with self._db.write(connection):
            known = self.with_rules(connection, tables)
            left = {t: tuple(c for c in own if (t, c.name) not in columns) for t, (own, _) in known.items()}
            gone = {t: {c.name: c.hashed for c in own if (t, c.name) in columns} for t, (own, _) in known.items()}
            rules = {t: replace(was, removed={**was.removed, **gone[t]}) for t, (_, was) in known.items()}
            self.save(connection, left, rules)

    def mark_returned(self, connection: str, table: Ref, column: str) -> None:
        """Record that a removed column is back, and that rows of the table have its values of then until they change or
        are read again. A table that was never loaded has none."""
        with self._db.write(connection):
            for own, rules in self.with_rules(connection, [table]).values():
                hashed = rules.removed.get(column, False)
                back = LoadedColumn(column, hashed=hashed, partial=True, outdated=True)
                self.save(connection, {table: (*(c for c in own if c.name != column), back)})

    def _change(self, connection: str, act: Callable[[Ref, LoadedColumn], LoadedColumn]) -> None:
        with self._db.write(connection):
            loaded = self.of(connection)
            changed = {table: tuple(act(table, c) for c in columns) for table, columns in loaded.items()}
            self.save(connection, {table: columns for table, columns in changed.items() if columns != loaded[table]})

    def move(self, connection: str, moves: Mapping[Ref, Ref]) -> None:
        """Move records to the new names of renamed tables; all at once, names may be swapped."""
        with self._db.write(connection) as transaction:
            loaded, filters = self.of(connection), self.filters(connection)
            _forget(transaction, connection, moves)
            moved = {moves[t]: columns for t, columns in loaded.items() if t in moves}
            self.save(connection, moved, {moves[t]: filters.get(t, LoadedRules()) for t in loaded if t in moves})


def _rules_document(loaded_rules: LoadedRules | None) -> dict[str, object] | None:
    return asdict(loaded_rules) if loaded_rules is not None and loaded_rules != LoadedRules() else None


def _forget(transaction: Connection, connection: str, tables: Collection[Ref]) -> None:
    for these in of_tables(loaded_columns, tables):
        transaction.execute(delete(loaded_columns).where(loaded_columns.c.connection == connection, these))


@dataclass(frozen=True)
class CursorRecord:
    """The cursor of a table's last load."""

    connection: str
    table: Ref
    cursor: str
    """The JSON text of the data commit by `run`, which held `fence`."""
    run: str
    fence: int
    at: datetime
    proof: str = ""
    """Proof by which a later run knows that nothing has changed since, "" if there is none (see
    sync/loading/unchanged.py)."""


class Cursors:
    def __init__(self, database: Database) -> None:
        self._db = database

    def save(
        self,
        connection: str,
        values: Mapping[Ref, str],
        *,
        run: str,
        fence: int,
        proofs: Mapping[Ref, str] = MappingProxyType({}),
    ) -> None:
        """Record the cursor of each of these tables, with the proof of those that have one; raises Fenced if a later
        run has recorded one of them."""
        if not values:
            return
        c, now = cursors.c, self._db.now()
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, now)
            newer = select(c.table_schema, c.table_name).where(c.connection == connection, c.fence > fence)
            for schema, name in transaction.execute(newer):
                if (schema, name) in values:
                    raise Fenced(f"connection {connection}: a later run has loaded {schema}.{name}")
            same = (c.connection == connection, c.table_schema == bindparam("of"), c.table_name == bindparam("name"))
            transaction.execute(cursors.delete().where(*same), [{"of": s, "name": n} for s, n in values])
            common = {"connection": connection, "run": run, "fence": fence, "at": now}
            rows = [
                {"table_schema": s, "table_name": n, "cursor": cursor, "proof": proofs.get((s, n), "")}
                for (s, n), cursor in values.items()
            ]
            transaction.execute(insert(cursors), [row | common for row in rows])

    def disprove(self, connection: str, tables: Collection[Ref]) -> None:
        """Take away the proofs of these tables: the next run loads them."""
        c = cursors.c
        with self._db.write(connection) as transaction:
            for these in of_tables(cursors, tables):
                transaction.execute(update(cursors).where(c.connection == connection, these).values(proof=""))

    def proven(self, connection: str) -> bool:
        """Return whether the last load of some table has left a proof."""
        query = select(cursors.c.connection).where(cursors.c.connection == connection, cursors.c.proof != "").limit(1)
        with self._db.read() as transaction:
            return transaction.execute(query).first() is not None

    def of(self, connection: str) -> dict[Ref, CursorRecord]:
        with self._db.read() as transaction:
            rows = transaction.execute(select(cursors).where(cursors.c.connection == connection))
            return {record.table: record for record in map(_record, rows)}

    def reading(self, slot: str) -> frozenset[str]:
        """Return the connections that have a table whose log is read from this slot."""
        query = select(cursors.c.connection).distinct()
        names_slot = cursors.c.cursor.contains(f'"slot": {json.dumps(slot)}', autoescape=True)
        with self._db.read() as transaction:
            return frozenset(transaction.execute(query.where(names_slot)).scalars()) if slot else frozenset()

    def reading_slots(self) -> frozenset[str]:
        """Return the connections that have a table whose log is read from some slot, removed ones too."""
        query = select(cursors.c.connection).distinct().where(cursors.c.cursor.contains('"slot": "', autoescape=True))
        with self._db.read() as transaction:
            return frozenset(transaction.execute(query).scalars())

    def forget(self, connection: str, table: Ref) -> None:
        """Delete the record of a table's loads: the next one starts from nothing."""
        c = cursors.c
        where = (c.connection == connection, c.table_schema == table[0], c.table_name == table[1])
        with self._db.write(connection) as transaction:
            transaction.execute(cursors.delete().where(*where))


class CountedQuarantines:
    """Counts of waiting quarantine entries, by the place of the quarantine and the digest of its files' names: files
    are never changed, so what was counted is true while the names are the same."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def save(self, connection: str, place: str, files: str, waiting: int) -> None:
        """Record the number in the place of the one before."""
        c = quarantine_counts.c
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            transaction.execute(delete(quarantine_counts).where(c.connection == connection, c.place == place))
            values = {"connection": connection, "place": place, "files": files, "waiting": waiting}
            transaction.execute(insert(quarantine_counts).values(**values, at=self._db.now()))

    def of(self, connection: str) -> dict[tuple[str, str], int]:
        """Return the numbers by place and digest."""
        query = select(quarantine_counts).where(quarantine_counts.c.connection == connection)
        with self._db.read() as transaction:
            return {(row.place, row.files): row.waiting for row in transaction.execute(query)}


def _record(row: Row[Any]) -> CursorRecord:
    values = dict(row._mapping)
    return CursorRecord(table=(values.pop("table_schema"), values.pop("table_name")), **values)
