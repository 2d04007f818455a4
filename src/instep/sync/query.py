"""SQL over a destination's tables: DuckDB over Arrow, so that no engine extension has to be fetched."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from pyarrow import csv, ipc
from pyarrow import parquet as pq
from pyarrow.dataset import Dataset, dataset

from instep.destinations.base import Ref
from instep.destinations.facets import Destination
from instep.destinations.filters import ColumnFilter
from instep.errors import DestinationError, InstepError
from instep.schema.planning.aliases import View
from instep.schema.planning.naming import quote
from instep.suggest import did_you_mean
from instep.sync.query_filters import Shown, filters_of, nodes
from instep.temporary import temporary

T = TypeVar("T")
_MISSING = re.compile(r'Table with name "?([^"\s]+)"? does not exist')
_GUESSED = re.compile(r"\nDid you mean \"[^\n]*| because schema \"[^\"\n]*\" does not exist")
"""Pattern of what DuckDB takes for the reason, or for the table that was meant: it knows its own tables and schemas,
and none of the destination's."""


IN_MEMORY_BYTES = 256 << 20
"""The most bytes of one table that a query holds in memory; what is more goes through a temporary file."""
_BATCH = 10_000
"""Rows that are written to a file at a time."""


@dataclass(frozen=True)
class QueryAnswer:
    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool = False
    """True if there are rows beyond these."""


def ask(destination: Destination, sql: str, most: int | None = None) -> QueryAnswer:
    """Run one SELECT over the tables that it names, with or without their namespace; InstepError if it cannot be run.

    Rows that the source has deleted are there, marked in the system column. `most`: rows to return, None for all.
    """
    with _tables_as_views(destination, sql) as connection:

        def fetch() -> QueryAnswer:
            relation = connection.sql(sql)
            rows = relation.fetchall() if most is None else relation.limit(most + 1).fetchall()
            return QueryAnswer(relation.columns, rows[:most], more=most is not None and len(rows) > most)

        return _interruptible(connection, fetch)


def write_rows(destination: Destination, sql: str, file: Path) -> int:
    """Run one SELECT as `ask` does, and write its rows to a Parquet or CSV file, a batch at a time; return how many.

    The file is replaced once all of them are written. Raises InstepError for another kind of file.
    """
    if file.suffix not in _WRITERS:
        raise InstepError(f"{file.name}: rows are written as {' or '.join(_WRITERS)}", hint="end the name so")
    draft = file.with_name(f".{file.name}.{os.getpid()}")

    def write() -> int:
        count, rows = 0, connection.sql(sql).to_arrow_reader(_BATCH)
        with _WRITERS[file.suffix](draft, rows.schema) as writer:
            for batch in rows:
                writer.write_batch(batch)
                count += batch.num_rows
        return count

    try:
        with _tables_as_views(destination, sql) as connection:
            count = _interruptible(connection, write)
        draft.replace(file)
    except OSError as error:
        raise InstepError(f"{file} cannot be written: {error.strerror or error}", hint="name another file") from None
    finally:
        draft.unlink(missing_ok=True)
    return count


_WRITERS: Mapping[str, Callable[..., Any]] = {".parquet": pq.ParquetWriter, ".csv": csv.CSVWriter}
"""Writers of a query's rows, by the ending of the file's name."""


def ask_arrow(destination: Destination, sql: str, most: int | None = None) -> pa.Table:
    """Run one SELECT as `ask` does; return Arrow.

    Integers of 128 bits come as int64 where every value fits, enumerations and intervals as text. Raises
    DestinationError for a table of which more than `most` bytes would be read.
    """
    with _tables_as_views(destination, sql, most) as connection:
        return _interruptible(connection, lambda: _arrow(connection.sql(sql)))


def _interruptible(connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """Run the work on a thread: DuckDB does not notice Ctrl-C while it computes, this thread does."""
    with ThreadPoolExecutor(1, thread_name_prefix="query") as pool:
        done = pool.submit(work)
        try:
            return done.result()
        except KeyboardInterrupt:
            while not done.done():  # an interrupt before a statement begins is forgotten
                connection.interrupt()
                wait([done], 0.05)
            raise


def first_rows(destination: Destination, ref: Ref, limit: int) -> tuple[QueryAnswer, pa.Table]:
    """Return the first rows of a table, with the values that `ask` and `ask_arrow` answer."""
    rows = destination.write.first_rows(ref, limit)
    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        connection.execute("set timezone = 'UTC'")
        relation = connection.from_arrow(rows)
        return QueryAnswer(list(rows.column_names), relation.fetchall()), _arrow(relation)


def _arrow(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    wide = [str(kind).endswith("HUGEINT") for kind in relation.types]
    table: pa.Table = relation.to_arrow_table()
    columns = [_plain(column, wide=is_wide) for column, is_wide in zip(table.columns, wide, strict=True)]
    return pa.Table.from_arrays(columns, names=table.column_names)


def _plain(column: pa.ChunkedArray, *, wide: bool) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_interval(column.type):
        return pa.chunked_array([pa.array([_interval(value) for value in column.to_pylist()], pa.string())])
    if wide:
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int64())
    return column


def _interval(value: Any) -> str | None:
    return None if value is None else f"{value.months} months {value.days} days {value.nanoseconds / 1e9:g} seconds"


@contextmanager
def _tables_as_views(
    destination: Destination, sql: str, most: int | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB with the tables that a query names as views; what it raises in the block becomes an InstepError."""
    opened = list[TableRows]()
    with (
        temporary("query") as folder,
        temporary("spill") as spill,  # else rows that do not fit into memory go to the current folder
        duckdb.connect(":memory:", config={"enable_external_access": "false", "temp_directory": spill}) as connection,
    ):
        connection.execute("set timezone = 'UTC'")
        try:
            # the views that show tables with old names
            views = destination.views.all() if destination.views else {}
            tree = _tree(connection, sql)
            tables = _tables_by_name(tree, destination, views)
            shown = {ref: _shown(destination, views, ref) for ref in tables.values()}
            columns = _columns(tree, shown)
            filters = filters_of(connection, tree, tables, shown)
            once = _each_is_scanned_once(tree)
            for number, (named, ref) in enumerate(tables.items()):
                table = views[ref].table if ref in views else ref
                names = _names(shown[ref], columns.get(ref), every=ref in views)
                rows = TableRows(destination, table, names, filters.get(ref, ()), most)
                opened.append(rows)
                source = rows if once else rereadable_rows(rows.read(), Path(folder) / f"{number}.arrow")
                _register(connection, source, named, f"arrow_{number}")
            yield connection
        except duckdb.Error as error:
            for rows in opened:
                rows.raise_failure()
            why = _GUESSED.sub("", str(error))
            raise InstepError(f"the query failed: {why}", hint=_hint(why, destination)) from None
        finally:
            for rows in opened:
                rows.close()


def _hint(error: str, destination: Destination) -> str:
    """Return the table that was probably meant, or the tables that there are."""
    missing = _MISSING.search(error)
    if missing is None:
        return 'names that are reserved words or have capitals need quotes: shop."order"'
    names = sorted(".".join(ref) for ref in destination.schema.tables())
    listed = (
        f"the destination has {', '.join(names[:8])}{' and others' * (len(names) > 8)}"
        if names
        else "the destination has no tables"
    )
    return did_you_mean(missing[1], [*names, *(name.partition(".")[2] for name in names)], listed)


def _tree(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """Return the query as DuckDB parses it. Raises InstepError for anything but one SELECT."""
    try:
        count = len(connection.extract_statements(sql))
    except TypeError:  # DuckDB takes no halves of characters
        raise InstepError("the query is not valid UTF-8", hint="write it in UTF-8, or set LC_ALL") from None
    if count != 1:
        raise InstepError(f"the query has {count} statements", hint="it must be one SELECT")
    [(text,)] = connection.execute("select json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(text)
    if tree.get("error"):
        raise InstepError(f"the query cannot be run: {tree.get('error_message')}", hint="it must be one SELECT")
    return tree


def _tables_by_name(tree: Any, destination: Destination, views: Iterable[Ref]) -> dict[Ref, Ref]:
    """Return the destination's table by (schema or "", table) as the query writes it. A name that is no table of
    ours may be one that the query defines itself."""
    tables = [*destination.schema.tables(), *views]
    refs: dict[Ref, Ref] = {}
    for node in nodes(tree):
        if node.get("type") != "BASE_TABLE":
            continue
        schema, name = node["schema_name"], node["table_name"]
        fits = [r for r in tables if _same(r[1], name) and (not schema or _same(r[0], schema))]
        if len(fits) > 1:
            raise DestinationError(f"table {name} exists in several namespaces", hint="write namespace.table")
        if fits:
            refs[schema, name] = fits[0]
    return refs


def _same(a: str, b: str) -> bool:
    return a.lower() == b.lower()


_WHOLE_TYPES = ("PIVOT", "SHOW_REF", "TABLE_FUNCTION")
_WHOLE_CLASSES = ("STAR", "POSITIONAL_REFERENCE")


def _columns(tree: Any, tables: Mapping[Ref, Shown]) -> dict[Ref, list[str]]:
    """Return the columns by their names in the destination that a query can use, of each of its tables; nothing if it
    may use all of them: by `*`, by their place, by a name that no table has, or as a row of the table."""
    names, last, labels_used, whole = set[str](), set[str](), set[str](), set[str]()
    for node in nodes(tree):
        if node.get("type") in _WHOLE_TYPES or node.get("class") in _WHOLE_CLASSES or node.get("column_name_alias"):
            return {}
        if node.get("ref_type") == "NATURAL":
            return {}
        parts = [str(part).lower() for part in node.get("column_names") or () if node.get("class") == "COLUMN_REF"]
        names.update(parts)
        last.update(parts[-1:])
        names.update(str(column).lower() for column in node.get("using_columns") or ())
        labels = {str(node[name]).lower() for name in ("alias", "table_name", "schema_name") if node.get(name)}
        labels_used |= labels
        if node.get("type") == "BASE_TABLE":
            whole |= labels  # a table's name, its schema before it or not, may be a row of it
    columns_known = {shown.lower() for columns in tables.values() for shown in columns}
    if names - columns_known - labels_used or last & whole:
        return {}
    columns_by_table = {
        ref: [c.name for name, c in columns.items() if name.lower() in names] for ref, columns in tables.items()
    }
    return {
        ref: columns or [next(iter(tables[ref].values())).name]
        for ref, columns in columns_by_table.items()
        if tables[ref]
    }


def _shown(destination: Destination, views: Mapping[Ref, View], ref: Ref) -> Shown:
    """Return the columns of a table or view, by the names that queries use; of a copy that was kept of a table none:
    it has no record of its own."""
    view = views.get(ref)
    try:
        table = destination.schema.inspect([physical := view.table if view else ref]).get(physical)
    except DestinationError:
        return {}  # whoever reads it tells what is wrong
    columns = table.by_name if table is not None else {}
    return {name: columns[c] for name, c in view.columns if c in columns} if view else columns


def _names(shown: Shown, columns: Sequence[str] | None, *, every: bool) -> list[tuple[str, str]]:
    """Return the columns to read, as the query and as the table calls them; none for all that the table has, unless
    `every` one of them is named."""
    if columns is None and not every:
        return []
    return [(name, c.name) for name, c in shown.items() if columns is None or c.name in columns]


def _each_is_scanned_once(tree: Any) -> bool:
    """Return whether a query reads each table from its beginning to its end, or to where it stops, and no more."""
    seen = set[Ref]()
    for node in nodes(tree):
        if (
            node.get("class") == "SUBQUERY"
            or node.get("type") in _WHOLE_TYPES
            or (node.get("cte_map") or {}).get("map")
        ):
            return False
        if node.get("type") == "BASE_TABLE":
            named = node["schema_name"].lower(), node["table_name"].lower()
            if named[1] in {name for _, name in seen}:
                return False
            seen.add(named)
    return True


class TableRows:
    """The rows of a table by filters, as far as DuckDB asks for them; each of its scans reads them anew. `names`: the
    columns, as the query and as the table calls them; none for all. Rows of more bytes than `most` end in
    DestinationError."""

    def __init__(
        self,
        destination: Destination,
        table: Ref,
        names: Sequence[tuple[str, str]],
        filters: Sequence[ColumnFilter],
        most: int | None,
    ) -> None:
        self._destination, self._table, self._names = destination, table, names
        self._filters, self._most, self._failures = filters, most, list[Exception]()
        self._next: pa.RecordBatchReader | None = self._read()
        self._schema = self._next.schema

    def _read(self) -> pa.RecordBatchReader:
        columns = tuple(dict.fromkeys(physical for _, physical in self._names))
        rows = self._destination.write.read(self._table, columns, self._filters)
        names = self._names or [(name, name) for name in rows.schema.names]
        schema = pa.schema([rows.schema.field(own).with_name(name) for name, own in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches(rows, [own for _, own in names], schema))

    def _batches(
        self, rows: pa.RecordBatchReader, columns: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        size = 0
        try:
            for batch in rows:
                size += batch.nbytes
                if self._most is not None and size > self._most:
                    raise too_large(".".join(self._table), self._most)
                yield pa.RecordBatch.from_arrays([batch.column(name) for name in columns], schema=schema)
        except Exception as error:
            self._failures.append(error)
            raise

    def read(self) -> pa.RecordBatchReader:
        """Return the rows from the first one on."""
        rows, self._next = self._next or self._read(), None
        return rows

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Release rows that nobody has scanned."""
        self._next = None

    def raise_failure(self) -> None:
        """Raise what went wrong while rows were read, if anything did."""
        if self._failures:
            raise self._failures[0]


def too_large(table: str, most: int) -> DestinationError:
    """Return the error for a table with more bytes than go through one process."""
    return DestinationError(
        f"table {table} has more than {most / (1 << 30):,.3g} GiB, and this session cannot read it by itself",
        hint="start the session with instep.spark_conf(FOLDER), or read the part that you need by `query`",
    )


def rereadable_rows(rows: pa.RecordBatchReader, file: Path, most: int = IN_MEMORY_BYTES) -> pa.Table | Dataset:
    """Return rows so that they may be read several times: in memory, or from this file if they are more bytes."""
    batches, size = list[pa.RecordBatch](), 0
    for batch in rows:
        batches.append(batch)
        size += batch.nbytes
        if size > most:
            break
    else:
        return pa.Table.from_batches(batches, rows.schema)
    with ipc.new_file(file, rows.schema) as writer:
        while batches:
            writer.write_batch(batches.pop(0))
        for batch in rows:
            writer.write_batch(batch)
    return dataset(file, format="ipc")


def _register(
    connection: duckdb.DuckDBPyConnection, rows: pa.Table | Dataset | TableRows, named: Ref, source: str
) -> None:
    connection.register(source, rows)
    if named[0]:
        connection.execute(f"create schema if not exists {quote(named[0], 'ansi')}")
    view = ".".join(quote(part, "ansi") for part in named if part)
    connection.execute(f"create view {view} as select * from {source}")  # noqa: S608
