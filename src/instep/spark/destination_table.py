"""A destination's table read by Spark itself, in the caller's session where that is possible; and the procedures of a
catalog, in a session of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.redaction import Redactor, blot
from instep.spark.merge import MergeSettings, explained, is_connect, name, open_catalog, own_session
from instep.spark.payload import job_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALOG = "spark.sql.catalog."
_ZONE = "spark.sql.session.timeZone"
_LACKS = ("DATA_SOURCE_NOT_FOUND", "ClassNotFoundException", "NoClassDefFoundError", "Cannot find catalog plugin class")
"""Texts in the errors of a session that lacks a reader's classes."""


def frame_of(
    spark: SparkSession, kind: str, name: str, catalog: Mapping[str, str], secrets: Mapping[str, str]
) -> DataFrame | None:
    """Return the table as the session reads it, or None where it lacks what that takes.

    A session that lacks only the catalog's settings stays as it is: one is derived from it for this table. Over Spark
    Connect frames of two sessions cannot meet, so that none is derived there. A warning says what went wrong in a
    session that has what it takes.
    """
    try:
        if kind == "delta":
            frame = spark.read.format("delta").load(name)
        else:
            session = spark if _has(spark, catalog) else _derived(spark, catalog, secrets)
            if session is None:
                return None
            frame = session.table(name)
        _ = frame.schema  # over Spark Connect nothing is looked at before
    except Exception as error:  # the product's own reader tells what is wrong with the table, if it is that
        if not any(text in str(error) for text in _LACKS):
            cause = Redactor(*secrets.values()).clean(blot(str(error))).strip().partition("\n")[0][:300]
            warnings.warn(
                f"Spark could not read {name}, so it goes through this process: {type(error).__name__}: {cause}",
                RuntimeWarning,
                stacklevel=3,
            )
        return None
    return frame


def _has(spark: SparkSession, settings: Mapping[str, str]) -> bool:
    return all(spark.conf.get(key, None) == value for key, value in settings.items())


def _derived(spark: SparkSession, settings: Mapping[str, str], secrets: Mapping[str, str]) -> SparkSession | None:
    if getattr(spark, "_sc", None) is None:
        return None
    session = spark.newSession()
    session.conf.set(_ZONE, str(spark.conf.get(_ZONE)))
    for key, value in settings.items():
        session.conf.set(key, value)
    open_catalog(session, min(settings, key=len).removeprefix(CATALOG), secrets)
    return session


@dataclass(frozen=True)
class Procedures:
    """The procedures of one catalog."""

    session: SparkSession
    catalog: str

    def call(self, procedure: str, arguments: Mapping[str, str]) -> list[dict[str, Any]]:
        """Run one procedure, whose arguments are SQL; return its rows. InstepError if it fails."""
        named = ", ".join(f"{key} => {value}" for key, value in arguments.items())
        with explained():
            rows = self.session.sql(f"CALL {name(self.catalog)}.system.{procedure}({named})").collect()
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
