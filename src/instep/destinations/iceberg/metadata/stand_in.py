"""A catalog of Spark's own session with single tables as they are now: Spark opens their files, and not their catalog.

Procedures of Iceberg commit into it by themselves. A merge reads tables of a catalog by it whose server Spark must not
ask: properties that name code are taken off before, and files are opened by what the destination itself says.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef

from instep.destinations.base import Ref
from instep.destinations.iceberg.metadata.catalog import LAYOUT, Lake, for_java
from instep.destinations.iceberg.metadata.updates import MAIN
from instep.errors import DestinationError
from instep.spark.jars import S3_IO
from instep.spark.merge import MergeSettings
from instep.stage.files.place import remove
from instep.temporary import temporary


@dataclass(frozen=True)
class StandInCatalog:
    """A catalog under a name that nobody else has, whose `database` is a file."""

    name: str
    database: str
    settings: MergeSettings


@contextmanager
def stand_in_catalog(lake: Lake, tables: Mapping[Ref, str]) -> Iterator[StandInCatalog]:
    """Yield a catalog of tables by the location of their metadata."""
    name = f"instep_{uuid.uuid4().hex[:8]}"
    with temporary("stand-in") as place:
        database = f"{place}/catalog.db"
        with closing(sqlite3.connect(database)) as db:
            db.executescript(LAYOUT)
            rows = [(name, *ref, location) for ref, location in tables.items()]
            db.executemany("INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE')", rows)
            db.commit()
        conf = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            ".uri": f"jdbc:sqlite:{database}",
            ".jdbc.schema-version": "V1",
            ".warehouse": lake.warehouse,
            ".cache-enabled": "false",
        }
        files, secrets = lake.spark_files(name, next(iter(tables.values())))
        own = {f"spark.sql.catalog.{name}{key}": value for key, value in conf.items()}
        yield StandInCatalog(name, database, MergeSettings(own | files, secrets, database))


@contextmanager
def stand_in_of(lake: Lake, tables: Mapping[Ref, Table], folder: str) -> Iterator[StandInCatalog]:
    """Yield a catalog of the current rows of tables. Their metadata is written into a folder, and deleted at the end.
    Raises DestinationError for a store other than S3: Hadoop would open files of this machine, too."""
    if any(for_java(table.location(), lake.io()).get("io-impl") != S3_IO for table in tables.values()):
        raise DestinationError(
            f"lake {lake.config.name}: Spark does not open this store for a REST catalog that an API has set: its "
            "server could name files of this machine",
            hint="describe the destination in instep.yml: then Spark opens its catalog itself",
        )
    places = {ref: f"{folder}/{number}.metadata.json" for number, ref in enumerate(tables)}
    try:
        for ref, table in tables.items():
            properties = without_code(table.metadata.properties)
            write_current(table, places[ref], properties=properties)
        with stand_in_catalog(lake, places) as catalog:
            yield catalog
    finally:
        remove(folder, lake.io())


def write_current(table: Table, place: str, **other: Any) -> None:
    """Write metadata of the table's current snapshot alone; `other` are fields that are not the table's."""
    main = table.metadata.current_snapshot()
    refs = {MAIN: SnapshotRef.model_validate({"snapshot-id": main.snapshot_id, "type": "branch"})} if main else {}
    alone = {"snapshots": [main] if main else [], "refs": refs, "snapshot_log": [], "metadata_log": []}
    copied = table.metadata.model_copy(update={**alone, **other})
    ToOutputFile.table_metadata(copied, table.io.new_output(place), overwrite=True)


def without_code(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a table's properties without those that name code, and without our records."""
    return {k: v for k, v in properties.items() if not k.startswith("instep.") and not k.endswith(".impl")}
