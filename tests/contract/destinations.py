"""The destinations that the one behaviour suite runs over: a new one is a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from instep.destinations.base import HERE, Commit, FileWorkers, LoadOutcome, Ref, SparkStart
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination, DeltaSchema
from instep.destinations.delta.shape import partition_error
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.facets import Destination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.postgres.connect import PostgresServerConfig
from instep.destinations.postgres.destination import PostgresDestination
from instep.destinations.sql.database import SqlDatabase
from instep.destinations.sql.destination import SqlWrite
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.layout import PartitionTerm, TableLayout
from instep.schema.changes.describe import TableAdded
from instep.schema.planning.step import SetLayout, Step, step
from instep.stage.spec import StagedFile
from memory.destination import MemoryDestination
from postgres_server import Database
from s3_server import Bucket


def delta(folder: Path) -> Destination:
    """An empty folder of Delta tables."""
    return DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(folder / "delta")))


def delta_by_spark(folder: Path) -> Destination:
    """The same, whose upserts are all done by tasks of Spark, as those of large tables are."""
    return DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(folder / "delta"), upsert_rows=0))


class PartitioningSchema(DeltaSchema):
    """Each table is made with partitions by its key, or else by its first column that can be."""

    def execute(
        self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, workers: FileWorkers = HERE
    ) -> None:
        if isinstance(made := steps[0].change, TableAdded):
            named = [c for c in made.after.columns if c.name in (made.after.key or (c.name,))]
            terms = [PartitionTerm("identity", c.name) for c in named]
            by = [t for t, c in zip(terms, named, strict=True) if not partition_error(t, c.type)][:1]
            steps = [*steps, step(ref, SetLayout(ref, TableLayout(), TableLayout(partition=tuple(by))))]
        super().execute(ref, steps, after, commit, workers)


class PartitionedDelta(DeltaDestination):
    """A destination whose tables are made so."""

    def __init__(self, config: DeltaConfig) -> None:
        super().__init__(config)
        self.schema = PartitioningSchema(self.warehouse, config.prefix, config.upsert_rows)


def delta_in_partitions(folder: Path) -> Destination:
    """The same, whose tables are partitioned: each key has files of its own."""
    return PartitionedDelta(DeltaConfig.resolved(name="lake", warehouse=str(folder / "delta")))


def duckdb(folder: Path) -> Destination:
    """A DuckDB file that is not there yet."""
    return DuckDbDestination(DuckDbConfig.resolved(name="lake", path=str(folder / "lake.duckdb")))


def iceberg(folder: Path) -> Destination:
    """An empty local lake."""
    return IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder / "lake")))


def iceberg_by_spark(folder: Path) -> Destination:
    """An empty local lake whose upserts are all MERGEs of Spark, as those of large tables are."""
    return IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder / "lake"), upsert_rows=0))


def memory(folder: Path) -> Destination:
    """Tables in this process."""
    return MemoryDestination(folder)


def postgres(folder: Path, database: Database, **more: Any) -> PostgresDestination:
    """An empty database."""
    return PostgresDestination(
        PostgresServerConfig.resolved(name="lake", **{**database.login, "staging": str(folder), **more})
    )


class CopiedBySpark(SqlWrite):
    """Loads whose rows come by tasks of a session."""

    def __init__(self, database: SqlDatabase, start: SparkStart) -> None:
        super().__init__(database)
        self.start = start

    def append(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        return super().append(ref, files, commit, spark or self.start)

    def overwrite(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        return super().overwrite(ref, files, commit, spark or self.start)


def postgres_by_spark(folder: Path, database: Database, start: SparkStart) -> PostgresDestination:
    """The same, whose staged rows are all copied by tasks of Spark, as many rows are."""
    made = postgres(folder, database, copy_rows=0)
    made.write = CopiedBySpark(made.database, start)
    return made


def delta_in_bucket(bucket: Bucket) -> Destination:
    """An empty bucket for Delta tables."""
    return DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=f"{bucket.uri}/a lake", properties=bucket.io))


def iceberg_in_bucket(folder: Path, bucket: Bucket) -> Destination:
    """An empty bucket for a lake whose catalog is a file here."""
    properties = {**bucket.io, "uri": f"sqlite:///{folder / 'catalog.db'}"}
    return IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse=f"{bucket.uri}/lake", properties=properties)
    )


def iceberg_over_rest(folder: Path, catalog: str) -> Destination:
    """A REST catalog without tables, over a folder."""
    return IcebergDestination(
        IcebergConfig.resolved(
            name="lake", warehouse=(folder / "rest").as_uri(), catalog="rest", properties={"uri": catalog}
        )
    )


DESTINATIONS: Mapping[str, Callable[[Path], Destination]] = {
    "delta": delta,
    "delta by Spark": delta_by_spark,
    "delta in partitions": delta_in_partitions,
    "duckdb": duckdb,
    "iceberg": iceberg,
    "iceberg by Spark": iceberg_by_spark,
    "memory": memory,
}
