"""Tables as Spark DataFrames: those of a source by `spark.read`, those of a destination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.errors import NotFound
from instep.python.results import QueryResult
from instep.schema.planning.naming import quote
from instep.suggest import first_of, unknown_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from instep.destinations.facets import Destination

MOST_BYTES = 1 << 30
"""The most bytes of a table that go through this process: at the destination, as far as it knows, and in memory."""


def register(spark: SparkSession) -> None:
    """Let this session, classic or Spark Connect, read tables of sources: `spark.read.format("instep")`.

    Example:
        instep.register(spark)
        orders = (
            spark.read.format("instep")
            .option("project", "/srv/shop").option("connection", "shop").option("table", "main.orders").load()
        )

    The rows come from the source, not from the destination, with the columns and types that are accepted; all tasks
    read one snapshot. Raises SetupError for a session that is stopped, of another version of Spark, or whose workers
    run another Python.
    """
    from instep.spark.data_source import TableSource, source_reached_at
    from instep.spark.provided_session import check_usable, driver_host

    check_usable(spark)
    host = driver_host(spark)
    spark.dataSource.register(source_reached_at(host) if host else TableSource)


class DestinationTable:
    """One table of a destination, rows that the source has deleted and system columns included.

    Example:
        orders = project.table("shop.orders")
        orders.to_spark(spark).groupBy("status").count().show()
    """

    def __init__(self, ref: tuple[str, str], destination: Destination, spark: SparkSession | None) -> None:
        self.name, self._ref, self._destination, self._spark = ".".join(ref), ref, destination, spark

    def __repr__(self) -> str:
        return f"<instep table {self.name} of a destination>"

    @classmethod
    def named(cls, name: str, destination: Destination, spark: SparkSession | None) -> DestinationTable:
        """Return the table of this name, with or without its namespace; NotFound if there is none or are several."""
        known = [*destination.schema.tables(), *(destination.views.all() if destination.views else ())]
        similar = [ref for ref in known if name.casefold() in (".".join(ref).casefold(), ref[1].casefold())]
        if len(similar) == 1:
            return cls(similar[0], destination, spark)
        if similar:
            raise NotFound(f"several tables are called {name}", hint=f"name one: {first_of([*map('.'.join, similar)])}")
        names = sorted(map(".".join, known))
        listed = f"the destination has {', '.join(names[:8]) or 'no tables'}"
        raise unknown_table(f"the destination has no table {name}", name, names, listed, kind=NotFound)

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the table as a Spark DataFrame, with the rows that `query` returns.

        `spark`: the session, classic or Spark Connect; without it, the one that the project was opened with, else the
        active one. Iceberg tables are read by the session's own tasks where it has Iceberg, Delta tables in a folder
        where it has Delta. Other tables go through this process, up to 1 GiB: DestinationError for a larger one. A
        warning says why a session could not read a table by itself. Raises SetupError where there is no session.
        """
        from instep.spark.destination_table import frame_of
        from instep.spark.provided_session import chosen_session
        from instep.sync.query import ask_arrow, too_large

        session, destination = chosen_session(spark, self._spark), self._destination
        is_view = self._ref not in destination.schema.tables()
        table = None if is_view else destination.lifecycle.spark_table(self._ref)
        if table is not None:
            frame = frame_of(session, table.format, table.name, table.catalog, table.secrets)
            if frame is not None:
                return frame
        size = destination.schema.sizes([self._ref]).get(self._ref)
        if size is not None and (size.bytes or 0) > MOST_BYTES:
            raise too_large(self.name, MOST_BYTES)
        names = ".".join(quote(part, "ansi") for part in self._ref)
        return QueryResult(ask_arrow(destination, f"select * from {names}", MOST_BYTES)).to_spark(session)  # noqa: S608
