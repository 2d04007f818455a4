"""Calls of Iceberg's procedures in a session of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.spark.merge import MergeSettings, explained, is_connect, name, open_catalog, own_session
from instep.spark.payload import job_tag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Procedures:
    """The procedures of one catalog."""

    session: SparkSession
    catalog: str

    def call(self, procedure: str, arguments: Mapping[str, str]) -> list[dict[str, Any]]:
        """Run one procedure, whose arguments are SQL; return its rows. InstepError if it fails."""
        given = ", ".join(f"{key} => {value}" for key, value in arguments.items())
        with explained():
            rows = self.session.sql(f"CALL {name(self.catalog)}.system.{procedure}({given})").collect()
        return [row.asDict() for row in rows]

    def has_rows(self, query: str) -> bool:
        """Return whether a query has a row."""
        with explained():
            return bool(self.session.sql(query).take(1))


def reaches_files_here(spark: SparkSession) -> bool:
    """Return whether the session's driver runs on this machine, and sees a file of it."""
    return not is_connect(spark)


@contextmanager
def procedures(spark: SparkSession, settings: MergeSettings, catalog: str) -> Iterator[Procedures]:
    """Yield the procedures of a catalog that the settings describe."""
    with explained():
        session = own_session(spark, settings)
        open_catalog(session, catalog, settings.secrets)
        spark.sparkContext.addJobTag(job_tag())
    yield Procedures(session, catalog)
