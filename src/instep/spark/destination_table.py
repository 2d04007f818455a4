"""A destination's table read by Spark itself, in the caller's session where that is possible."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from instep.redaction import Redactor, blot
from instep.spark.merge import open_catalog

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
            found = spark.read.format("delta").load(name)
        else:
            session = spark if _has(spark, catalog) else _derived(spark, catalog, secrets)
            if session is None:
                return None
            found = session.table(name)
        _ = found.schema  # over Spark Connect nothing is looked at before
    except Exception as error:  # the product's own reader tells what is wrong with the table, if it is that
        if not any(text in str(error) for text in _LACKS):
            cause = _without(str(error), secrets).strip().partition("\n")[0][:300]
            warnings.warn(
                f"Spark could not read {name}, so it goes through this process: {type(error).__name__}: {cause}",
                RuntimeWarning,
                stacklevel=3,
            )
        return None
    return found


def _without(text: str, secrets: Mapping[str, str]) -> str:
    return Redactor(*secrets.values()).clean(blot(text))


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
