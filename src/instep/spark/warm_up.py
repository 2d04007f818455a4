# ruff: noqa: S608 - the names are our own
"""Run a small sync of every kind once, so that the JVM's class archive contains the classes that syncs use."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from (pa.record_batch({"result": batch.column(0).cast(pa.string()).cast(pa.binary())}) for batch in batches)


def exercise(spark: SparkSession) -> None:
    """Run a job, the same with Arrow, then a merge-on-read MERGE between two tables of the catalog `warm`."""
    spark.sparkContext.parallelize(range(4), 4).map(str).collect()
    spark.range(0, 4, 1, 2).mapInArrow(_answer, "result binary").collect()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS warm.n")
    for name in ("a", "b"):
        spark.sql(
            f"CREATE TABLE warm.n.{name} (id BIGINT, s STRING, d DECIMAL(12,2), t TIMESTAMP) USING iceberg "
            "TBLPROPERTIES ('format-version'='2', 'write.merge.mode'='merge-on-read')"
        )
        spark.sql(f"INSERT INTO warm.n.{name} SELECT id, 'x', 1.5, current_timestamp() FROM range(100)")
    spark.newSession().sql(
        "MERGE INTO warm.n.a t USING (SELECT * FROM warm.n.b) s ON t.id <=> s.id "
        "WHEN MATCHED THEN UPDATE SET t.s = s.s WHEN NOT MATCHED THEN INSERT (id, s, d, t) VALUES (s.id, s.s, s.d, s.t)"
    )
    spark.sql("SELECT count(*), max(d) FROM warm.n.a").collect()


def main(folder: str, cache: str) -> None:
    from instep.spark.session import start, stop
    from instep.spark.settings import SparkSettings

    catalog = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{Path(folder) / 'warm.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": str(Path(folder) / "warehouse"),
    }
    spark = start(SparkSettings(catalogs={"warm": catalog}, cache=cache, driver_memory="512m"))
    try:
        exercise(spark)
    finally:
        stop(spark, timeout=600)


if __name__ == "__main__":
    main(*sys.argv[1:3])
