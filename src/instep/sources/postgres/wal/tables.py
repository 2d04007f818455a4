"""Tables whose changes are in a publication, and the reason why others cannot be: one query of the catalog.

Partitions of a table that follows the log: whether it tells all of their changes, and which ones they were.

Rows of partitions are logged as those of their table. But a partition that is attached brings rows, and one that is
detached, dropped or truncated takes rows along, of which the log has nothing under the table's name. So positions rest
on the partitions: each by its oid, the file its rows are in (a truncate gives it another one) and the transaction
that made it one of the table's. One that was created as a partition had no rows before, and harms no position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.sources.log import FILE, PART, SINCE, FollowedTable, Ref
from instep.sources.postgres.definitions import BORN, KINDS, shortened
from instep.sources.postgres.types import literal, quote, quote_table

if TYPE_CHECKING:
    import psycopg


_GENERATED = (
    "(SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a"
    " WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> '')"
)
_GENERATED_CHECKED = 180_000
"""Version of PostgreSQL from which an UPDATE fails if the whole row is the replica identity and has a generated column,
even outside of the key."""


# The first file of a table is called as it is: with another one it may have been unlogged for a while.
# `pg_partition_tree` would wait for tables that are locked.
_PARTITIONS = """
WITH RECURSIVE tree(root, member, since) AS (
  SELECT c.oid, h.inhrelid, h.xmin::text FROM pg_class c JOIN pg_inherits h ON h.inhparent = c.oid
   WHERE c.relkind = 'p' AND NOT c.relispartition
  UNION ALL
  SELECT t.root, h.inhrelid, h.xmin::text FROM tree t JOIN pg_inherits h ON h.inhparent = t.member)
SELECT rn.nspname, r.relname, n.nspname, c.relname, c.oid::int8, c.relkind, c.relpersistence, c.relreplident,
  (SELECT json_agg(a.attname) FROM pg_index i JOIN pg_attribute a
     ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = c.oid AND i.indimmediate AND i.indisvalid
      AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END),
  c.relfilenode::int8 || '.' || t.since,
  {born} AND (c.relkind = 'p' OR c.relfilenode = c.oid),
  greatest(c.reltuples, 0)::int8, {generated}
FROM tree t JOIN pg_class r ON r.oid = t.root JOIN pg_namespace rn ON rn.oid = r.relnamespace
JOIN pg_class c ON c.oid = t.member JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY c.oid
"""
_IDENTITY = {"n": "nothing", "d": "a primary key that is checked at once", "i": "an index"}


@dataclass(frozen=True)
class TablePartition:
    """`kind`, `persistence` and `replica` as PostgreSQL's catalog has them; `identity`: see `tables.LogTable`."""

    ref: Ref
    oid: int
    kind: str
    persistence: str
    replica: str
    identity: frozenset[str] | None
    state: str
    """State that changes once rows may have come or gone unseen."""
    born: bool
    """True if it was created as a partition."""
    rows: int
    """About so many."""
    generated: frozenset[str] = frozenset()
    """Generated columns of its identity."""

    @property
    def name(self) -> str:
        """The partition's name in a shape."""
        return f"{PART}{self.oid}"

    def reason_not_followable(self, key: Sequence[str], published: Iterable[str] = ()) -> str:
        """Return why its changes cannot be followed by this key, if these columns of its table are published."""
        path = ".".join(self.ref)
        if self.kind == "f":
            return f"its partition {path} is a foreign table, which has no log"
        if self.persistence != "p":
            return f"its partition {path} is not logged"
        if self.kind == "p":
            return ""
        why = unnamed(self.ref, self.replica, self.identity, key) or unpublished(self.generated, published)
        return f"of its partition {path} {why}" if why else ""


def unnamed(ref: Ref, replica: str, identity: frozenset[str] | None, key: Sequence[str]) -> str:
    """Return why the log does not name rows by this key, with the statement that makes it do so; "" if it does."""
    if identity is None or set(key) <= identity:
        return ""
    what = _IDENTITY[replica] if replica != "i" or identity else "an index that is gone"
    fix = "DEFAULT" if replica == "n" else "FULL"
    return (
        f"the log names its rows by {what}, not by {', '.join(key)}: "
        f"ALTER TABLE {quote_table(*ref)} REPLICA IDENTITY {fix};"
    )


def unpublished(generated: frozenset[str], published: Iterable[str]) -> str:
    """Return that the log lacks generated columns of the identity; PostgreSQL 18 refuses each UPDATE of the table if a
    publication has it that publishes updates without them."""
    if left := generated - set(published):
        return (
            f"its replica identity has the generated column {', '.join(sorted(left))}, which a publication has only "
            "with `publish_generated_columns = stored` (from PostgreSQL 18 on)"
        )
    return ""


def _generated(names: Iterable[str] | None, identity: frozenset[str] | None, version: int) -> frozenset[str]:
    """Return the generated columns that the log has to have of a table with this identity."""
    every = frozenset(names or ())
    if identity is None:
        return every if version >= _GENERATED_CHECKED else frozenset()
    return every & identity


def partitions(connection: psycopg.Connection[Any]) -> Mapping[Ref, tuple[TablePartition, ...]]:
    """Return the partitions of all partitioned tables, on every level, by table."""
    table_partitions: dict[Ref, tuple[TablePartition, ...]] = {}
    version = connection.info.server_version
    for row in connection.execute(
        _PARTITIONS.replace("{generated}", _GENERATED).replace("{born}", BORN).encode()
    ).fetchall():
        root, name, schema, own, oid, kind, persistence, replica, identity, state, born, rows, computed = row
        named = None if replica == "f" else frozenset(identity or ())
        generated = _generated(computed, named, version)
        part = TablePartition((schema, own), oid, kind, persistence, replica, named, state, born, rows, generated)
        table_partitions[root, name] = (*table_partitions.get((root, name), ()), part)
    return table_partitions


_TABLES = """
SELECT n.nspname, c.relname, c.oid::int8, c.relkind, c.relpersistence, c.relreplident,
  (SELECT json_agg(a.attname) FROM pg_index i JOIN pg_attribute a
     ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = c.oid AND i.indimmediate AND i.indisvalid
      AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END),
  c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
  (SELECT json_agg(json_build_array(a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.xmin::text) ORDER BY a.attnum)
     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  c.relfilenode::int8,
  k.labels, k.fields, k.alias, row_security_active(c.oid),
  coalesce(p.oid, 0)::int8, coalesce(r.oid, 0)::int8,
  json_strip_nulls(json_build_object('publication', p.xmin::text, 'membership', r.xmin::text, 'namespace', {schema})),
  k.formulas, to_json(t), greatest(c.reltuples, 0)::int8, {generated}
FROM (VALUES {values}) w(schema, name)
JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
LEFT JOIN pg_publication p ON p.pubname = {publication}
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
LEFT JOIN pg_publication_tables t ON t.pubname = p.pubname AND t.schemaname = n.nspname AND t.tablename = c.relname
CROSS JOIN LATERAL ({kinds}) k
"""
# Of PostgreSQL 15 on, which has publications of schemas; a table that is moved to another schema and back depends on it
# anew
_SCHEMA = (
    "(SELECT s.oid || '.' || s.xmin || '.' || d.xmin FROM pg_publication_namespace s JOIN pg_depend d"
    " ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0"
    " AND d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid"
    " WHERE s.pnpubid = p.oid AND s.pnnspid = n.oid)"
)
_SCHEMAS = 150_000
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


@dataclass(frozen=True)
class WalTable:
    """A table as the log sees it."""

    ref: Ref
    oid: int
    kind: str
    persistence: str
    replica: str
    identity: frozenset[str] | None
    """The columns that the log names a row by, None for the whole row."""
    inherited: bool
    columns: tuple[tuple[int, str, int, int, str], ...]
    """Columns in order: (number, name, type, modifier, transaction that defined it)."""
    file: int
    """File of its rows."""
    labels: Mapping[str, str]
    """Labels of its enum types by oid."""
    publication: int
    membership: int
    since: Mapping[str, str]
    """Transactions that wrote the publication's rows in the catalog last, what computes columns, and of what their
    types consist."""
    listed: Mapping[str, Any] | None
    """Entry of the publication for it, None if there is none."""
    alias: str | None
    """A type of its columns whose values are the names of other objects."""
    secured: bool
    """Policies choose the rows that are shown."""
    estimate: int
    generated: frozenset[str] = frozenset()
    """Generated columns of its identity."""
    parts: tuple[TablePartition, ...] = ()

    @property
    def rows(self) -> int:
        """Return about how many rows it has, by the server's statistics."""
        return sum(p.rows for p in self.parts if p.kind != "p") if self.parts else self.estimate

    def reason_not_followable(self, key: Sequence[str]) -> str:
        """Return why its changes cannot be followed by this key (source columns), whatever a publication says."""
        if not key:
            return "its key has no source"
        if self.kind not in "rp":
            return f"it is {_KINDS.get(self.kind, 'no table')}, which has no log"
        if self.persistence != "p":
            return "it is not logged"
        if self.inherited:
            return "other tables inherit from it, and their rows are logged as theirs alone"
        if self.secured:
            return (
                "its row-level security chooses the rows that are shown, and the log does not tell when it is another"
            )
        if self.alias:
            return f"it has values of type {self.alias}, which change unlogged when what they name is renamed"
        published = (self.listed or {}).get("attnames") or ()
        own = unnamed(self.ref, self.replica, self.identity, key)
        if not own and self.kind == "r" and (own := unpublished(self.generated, published)) and self.listed:
            left = f"ALTER PUBLICATION {quote(self.listed['pubname'])} DROP TABLE {quote_table(*self.ref)};"
            own = f"{own}, and the publication that has it makes the source refuse updates: {left}"
        parts = (part.reason_not_followable(key, published) for part in self.parts)
        return own or next(filter(None, parts), "")

    def cut_off(self, key: Sequence[str]) -> str:
        """Return why the publication tells too little of it."""
        if self.listed is None:
            return "the publication does not have it"
        if self.listed.get("rowfilter"):
            return "the publication leaves rows of it out"
        names = self.listed.get("attnames")
        left = [k for k in key if names is not None and k not in names]
        return f"the publication leaves {', '.join(left)} out" if left else ""

    def shape(self, key: Sequence[str]) -> dict[str, str]:
        """Return the shape on which its positions rest: its oid, its key by name and number, and that it has been in
        this publication all the time (together), whose options, filters and lists of columns are unchanged; the type
        of each column by number, what computes it, fields of types, labels of enums, and the mark of rewritten rows.
        A table that is published without being named can be made unlogged for a while: then every new file counts."""
        numbers = {name: number for number, name, *_ in self.columns}
        keys = sorted((k, numbers.get(k, 0)) for k in key)
        unnamed = [] if self.membership else [self.file]
        text = json.dumps([self.oid, keys, self.publication, self.membership, *unnamed])
        kinds = {str(number): f"{kind}.{modifier}" for number, _, kind, modifier, _ in self.columns}
        defined = {f"{SINCE}{number}": xid for number, *_, xid in self.columns}
        labels = {f"label {oid}": label for oid, label in self.labels.items()}
        facts = {"key": hashlib.sha256(text.encode()).hexdigest()[:16], FILE: str(self.file)}
        return {**facts, **self.since, **kinds, **defined, **labels}


def log_tables(connection: psycopg.Connection[Any], publication: str, refs: Iterable[Ref]) -> dict[Ref, WalTable]:
    """Return the log's view of the tables that exist."""
    values = ", ".join(f"({literal(s)}, {literal(n)})" for s, n in refs)
    if not values:
        return {}
    of_schema = _SCHEMA if connection.info.server_version >= _SCHEMAS else "NULL"
    statement = _TABLES.replace("{kinds}", KINDS).replace("{generated}", _GENERATED).replace("{schema}", of_schema)
    statement = statement.replace("{values}", values).replace("{publication}", literal(publication))
    parts: Mapping[Ref, tuple[TablePartition, ...]] | None = None
    tables = {}
    for row in connection.execute(statement.encode()).fetchall():
        schema, name, oid, kind, persistence, replica, identity, inherited, columns, *rest = row
        file, labels, fields, alias, secured, pub, member, published, formulas, listed, rows, computed = rest
        facts = published | shortened(fields) | (formulas or {})
        named = None if replica == "f" else frozenset(identity or ())
        ref = (schema, name)
        if kind == "p" and parts is None:
            parts = partitions(connection)
        tables[ref] = WalTable(
            ref,
            oid,
            kind,
            persistence,
            replica,
            named,
            inherited,
            tuple(map(tuple, columns or ())),
            file,
            labels or {},
            pub,
            member,
            facts,
            listed,
            alias,
            secured,
            rows,
            _generated(computed, named, connection.info.server_version),
            (parts or {}).get(ref, ()),
        )
    return tables


def followed(
    table: WalTable | None, key: Sequence[str], parts: Sequence[TablePartition] = (), *, pending: bool = False
) -> FollowedTable:
    """Return the state of a table to be followed by this key. `parts` are its partitions from before the snapshot
    that reads it: what happens to them later has to be found by the next sync. One added meanwhile is recorded
    without a state, whether the snapshot shows it or not."""
    if table is None:
        return FollowedTable(why="it is gone")
    why = table.reason_not_followable(key) or table.cut_off(key)
    shape = table.shape(key) | {p.name: "" for p in table.parts} | {p.name: p.state for p in parts}
    return FollowedTable(shape, why, pending and not why, frozenset(p.name for p in (*table.parts, *parts) if p.born))


def additions(tables: Iterable[WalTable], publication: str) -> str:
    """Return the statement that takes the tables into the publication."""
    names = ", ".join(f"{'ONLY ' if t.kind == 'r' else ''}{quote_table(*t.ref)}" for t in tables)
    return f"ALTER PUBLICATION {quote(publication)} ADD TABLE {names}"
