"""One consistent read point of a PostgreSQL database, shared with tasks where the server can export it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from instep.errors import ReadError
from instep.project.sections.databases import PostgresSourceSection
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import DataType
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import NOT_GUARANTEED, CursorBounds, CursorRange, Discovery
from instep.sources.postgres.catalog import PARENTS, Names, read_catalog, read_fingerprint
from instep.sources.postgres.chunks import (
    HeapStorage,
    bounds_statement,
    chunk_list,
    condition,
    cursor_column,
    moved_back,
    parts,
    rewritten,
    storage,
    storages,
)
from instep.sources.postgres.connect import connect, dial, set_statement, settings, translated
from instep.sources.postgres.definitions import value_definitions
from instep.sources.postgres.locks import MAIN, SessionWatch, marking, new_key, unlocked
from instep.sources.postgres.read import PostgresReader
from instep.sources.postgres.types import expression, literal, octets, quote, quote_table, select, yielded
from instep.sources.postgres.versions import SMALL, ReadPoint, batches, read_point, row_versions, sizes
from instep.sources.query import differing
from instep.sources.server import nearest
from instep.stage.spec import Chunk
from instep.stage.timeouts import timed_connection

if TYPE_CHECKING:
    import psycopg

LANE = "snapshot"
TOGETHER = 100
"""Tables that are looked up with one statement."""
Found = TypeVar("Found")


class PostgresSnapshot:
    """See `Snapshot`. `note` says what is unusual about it, "" if nothing. Where the read point cannot be shared, every
    chunk is in one lane, read on one connection at its own read point, which is not before this one."""

    def __init__(
        self,
        config: PostgresSourceSection,
        connection: psycopg.Connection[Any],
        exported: str,
        note: str,
        watch: SessionWatch | None = None,
    ) -> None:
        self._config, self._connection, self.note = config, connection, note
        self._watch = watch or SessionWatch(config, connection, new_key())
        self._lane = "" if exported else LANE
        self._seen: Discovery | None = None
        self._stored: dict[tuple[str, str], list[HeapStorage]] = {}
        self.reader = PostgresReader(
            config, tuple(_task_settings(config, connection).items()), exported, self._watch.key
        )

    def _ask(self, act: Callable[[], Found]) -> Found:
        """Answer what `act` reads at this read point; it keeps no lock."""
        return unlocked(self._config, self._connection, act, self._watch.turn)

    def discover(self) -> Discovery:
        """Return the catalog as of this snapshot."""
        with translated(self._config):
            self._seen = self._ask(lambda: read_catalog(self._connection, self._names))
        return self._seen

    def look_up(self, refs: Sequence[tuple[str, str]]) -> None:
        """Look up where the rows of tables are, many with one statement: `chunks` asks for what is not found here, for
        instance because another session has one of the tables."""
        import psycopg

        for at in range(0, len(refs), TOGETHER):
            part = refs[at : at + TOGETHER]
            with suppress(psycopg.Error), self._watch.turn, self._connection.transaction(force_rollback=True):
                self._stored |= storages(self._connection, part)

    def chunks(self, read: TableRead, key: str, rows: CursorRange, *, columns: Sequence[str] = ()) -> list[Chunk]:
        """Return page ranges, or one query where an index finds the rows; raises ReadError if the table is gone."""
        selected = [c for c in _sourced(read) if not columns or c.column.name in columns]
        what = ", ".join(_expression(c.source) for c in selected if c.source)
        limit = condition(read, rows)
        with translated(self._config, read.source.path):
            ref = read.source.ref
            stored = self._stored.get(ref) or self._ask(lambda: storage(self._connection, *ref))
            if not stored:  # its name is another table's now, which did not exist at this read point
                raise ReadError(f"{read.source.path}: was replaced while it was being read", hint="sync again")
            query_parts = parts(stored, self._connection.info.server_version)
            if limit and len(query_parts) > 1 and self._finds(read, limit):
                query_parts = parts(stored[:1], 0)
        return chunk_list(key, what, query_parts, limit, self._lane, size(read))

    def _finds(self, read: TableRead, limit: str) -> bool:
        """Return whether the planner would fetch the range through an index."""
        query = select("1", quote_table(*read.source.ref), limit)
        row = self._ask(lambda: self._connection.execute(f"EXPLAIN (FORMAT JSON) {query}".encode()).fetchone())
        kinds = set(_nodes(row[0][0]["Plan"])) if row else set()
        return any("Index" in k for k in kinds) and not any("Seq Scan" in k for k in kinds)

    def query_types(self, read: TableRead) -> Mapping[str, DataType]:
        """Return the types that ADBC yields for accepted columns with a source."""
        return {c.column.name: yielded(c.source.type) for c in _sourced(read) if c.source}

    def cursor_bounds(
        self, read: TableRead, column: str, after: str | None, lookback: float
    ) -> tuple[str | None, CursorBounds]:
        """Return (`after` moved back, the bounds now) of an accepted `column`. Rows whose cursor is NULL, infinite
        or NaN count as NULL."""
        source = cursor_column(read, column)
        bounds = bounds_statement(read.source, source, read.condition)
        with translated(self._config, read.source.path):
            row = self._ask(lambda: self._connection.execute(bounds.encode()).fetchone())
            assert row is not None
            if after is not None and lookback:
                back = f"SELECT {moved_back(source, after, lookback, read.source.path)}"
                moved = self._ask(lambda: self._connection.execute(back.encode()).fetchone())
                after = moved[0] if moved else after
        return after, CursorBounds(row[0], row[1])

    def count(self, read: TableRead) -> int:
        """Return the exact number of rows as of this snapshot."""
        query = select("count(*)", quote_table(*read.source.ref), read.condition)
        with translated(self._config, read.source.path):
            row = self._ask(lambda: self._connection.execute(query.encode()).fetchone())
        return int(row[0]) if row else 0

    @property
    def dialect(self) -> str:
        return "postgres"

    def filter_error(self, read: TableRead) -> str:
        """Return the planner's error, if any; runs within a savepoint."""
        import psycopg

        query = "EXPLAIN " + select("1", quote_table(*read.source.ref), read.condition)
        try:
            self._ask(lambda: self._connection.execute(query.encode()))
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            return self._config.redacted(error.diag.message_primary or str(error))
        return ""

    def transactions(self) -> str:
        """Return the transactions that this snapshot shows, as the text of `pg_current_snapshot()`."""
        with translated(self._config):
            row = self._ask(lambda: self._connection.execute("SELECT pg_current_snapshot()::text").fetchone())
        return str(row[0]) if row else ""

    def versions(self, reads: Sequence[TableRead], before: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
        """Return the versions of tables whose rows are read at this very read point; see `versions`."""
        import psycopg

        if self._lane or not reads:
            return {}
        with translated(self._config):
            refs = [r.source.ref for r in reads]
            try:
                point = self._ask(lambda: read_point(self._connection))
            except psycopg.Error:
                if self._connection.closed:
                    raise
                return {}  # it speaks PostgreSQL's protocol, and has not all of its functions
            if point is None:
                return {}
            size_of = self._ask(lambda: sizes(self._connection, refs))
            last = {ref: ReadPoint(*before[ref].split("|")) for ref in size_of if ref in before}
            unchanged = {ref for ref, was in last.items() if (was.start, was.shown) == (point.start, point.shown)}
            rows: dict[tuple[str, str], str] = {}
            for some_refs in batches([ref for ref, size in size_of.items() if ref not in unchanged and size <= SMALL]):
                rows |= self._ask(partial(row_versions, self._connection, some_refs))
            moved = self._ask(lambda: rewritten(self._connection, refs))
        now = {ref: replace(point, rows=rows.get(ref, "")) for ref in size_of.keys() - moved}
        unchanged |= {ref for ref, at in now.items() if ref in last and at.has_rows_of(last[ref])}
        return {ref: before[ref] if ref in unchanged else at.text for ref, at in now.items()}

    def definitions(
        self, reads: Sequence[TableRead], before: Mapping[tuple[str, str], Mapping[str, str]]
    ) -> dict[tuple[str, str], dict[str, str]]:
        """Return the definitions of tables; of none where the server lacks a catalog that tells them."""
        import psycopg

        definitions_of: dict[tuple[str, str], dict[str, str]] = {}
        with translated(self._config):
            for some in batches([r.source.ref for r in reads]):
                try:
                    definitions_of |= self._ask(partial(value_definitions, self._connection, some, before))
                except psycopg.Error:
                    if self._connection.closed:
                        raise
                    return {}
        return definitions_of

    def weak_key(self, table: Table) -> str:
        """Return why the key is weak: in tables that others inherit from it holds in each, and not for the rows of
        all."""
        return NOT_GUARANTEED if table.ref in self._parents else ""

    @cached_property
    def _parents(self) -> frozenset[tuple[str, str]]:
        with translated(self._config):
            found = self._ask(lambda: self._connection.execute(PARENTS.encode()).fetchall())
        return frozenset((schema, name) for schema, name in found)

    @property
    def reason_not_repeatable(self) -> str:
        return self.note or "its read point cannot be shared" if self._lane else ""

    def changed_tables(self, catalog: Catalog) -> frozenset[tuple[str, str]]:
        """Return a fingerprint on a new connection, and the whole catalog only if that differs; and the tables whose
        rows were rewritten: this read point shows nothing of these."""
        with connect(self._config) as connection, translated(self._config):
            seen, names = self._seen, self._names
            if seen is None or unlocked(self._config, connection, lambda: read_fingerprint(connection, names)) != (
                seen.fingerprint
            ):
                seen = unlocked(self._config, connection, lambda: read_catalog(connection, names))
        with translated(self._config):
            moved = self._ask(lambda: rewritten(self._connection, [t.ref for t in catalog.tables]))
        return differing(catalog, seen.catalog) | moved

    @property
    def _names(self) -> Names:
        return Names(self._config.include, self._config.exclude)


def _sourced(read: TableRead) -> list[ColumnRead]:
    return [c for c in read.columns if c.source is not None]


def _nodes(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kinds of a plan's nodes."""
    yield plan["Node Type"]
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


def size(read: TableRead) -> str:
    """Return SQL for a row's key, as far as it may be shown, and its size in bytes."""
    keys = [c.source.name for c in _sourced(read) if c.source and c.source.key and not c.hashed]
    shown = [f"{literal(f'{name}=')} || left({quote(name)}::text, 100)" for name in keys]
    parts = [f"coalesce({octets(quote(c.source.name), c.source.native)}, 0)::int8" for c in _sourced(read) if c.source]
    return f"concat_ws(', ', {', '.join(shown) or 'NULL::text'}), {' + '.join(parts)}"


def _expression(column: Column) -> str:
    name = quote(column.name)
    return f"{expression(name, column.native, column.type, column.name)} AS {name}"


@contextmanager
def open_snapshot(config: PostgresSourceSection) -> Iterator[PostgresSnapshot]:
    """Open a snapshot that lives as long as this context."""
    with nearest(config, connect) as at:
        exported, why = export(at.config, at.connection)
        alone = f"the read point cannot be shared ({why}): the tables are read one after another" if why else ""
        note, watch = "; ".join(filter(None, (at.note, alone))), SessionWatch(at.config, at.connection, new_key())
        with translated(at.config):
            at.connection.execute(f"SELECT {marking(watch.key, MAIN)}".encode())
        snapshot = PostgresSnapshot(at.config, at.connection, exported, note, watch)
        with watch.watching():
            yield snapshot


def export(config: PostgresSourceSection, connection: psycopg.Connection[Any]) -> tuple[str, str]:
    """Return (the snapshot's name, "") once a second connection has used it, else ("", why not). A failure ends the
    transaction (a subtransaction cannot export), so this comes before anything is read."""
    import psycopg

    try:
        row = connection.execute("SELECT pg_export_snapshot()").fetchone()
        name = str(row[0]) if row else ""
        _take_up(config, name)
    except psycopg.Error as error:
        with translated(config):
            connection.rollback()
            connection.execute(set_statement(settings(config)).encode())
        return "", config.redacted(str(error).splitlines()[0])
    return name, ""


def _take_up(config: PostgresSourceSection, name: str) -> None:
    with dial(config, lambda info: timed_connection(config.read_timeout).connect(info, autocommit=True)) as other:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        other.execute(f"SET TRANSACTION SNAPSHOT {literal(name)}".encode())


def _task_settings(config: PostgresSourceSection, connection: psycopg.Connection[Any]) -> Mapping[str, str]:
    """Return session settings for tasks, with a check whether the task still lives where the platform has it.

    A query of a killed task ends. Texts of a server that does not check them come as they are; `stage` quarantines
    what is not UTF-8.
    """
    import psycopg

    parameters = settings(config)
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        parameters["client_encoding"] = "SQL_ASCII"
    alive = {"client_connection_check_interval": "1s"}
    try:
        with connection.transaction():
            connection.execute(set_statement(alive).encode())
    except psycopg.Error:
        return parameters
    return {**parameters, **alive}
