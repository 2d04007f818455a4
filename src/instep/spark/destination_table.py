"""A destination's table read by Spark itself, in the caller's session where that is possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from instep.spark.merge import open_catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALOG = "spark.sql.catalog."
_ZONE = "spark.sql.session.timeZone"


def frame_of(
    spark: SparkSession, kind: str, name: str, catalog: Mapping[str, str], secrets: Mapping[str, str]
) -> DataFrame | None:
    """Return the table as the session reads it, or None where it lacks what that takes.

    A session that lacks only the catalog's settings stays as it is: one is derived from it for this table. Over Spark
    Connect frames of two sessions cannot meet, so that none is derived there.
    """
    try:
        if kind == "delta":
            found = spark.read.format("delta").load(name)
        else:
            session = spark if _has(spark, catalog) else _derived(spark, catalog, secrets)
            if session is None:
                return None
            found = session.table(name)
        _ = found.schema  # over Spark Connect nothing is looked at before
    except Exception:  # whatever it lacks: the product's own reader tells what is wrong with the table
        return None
    return found


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
