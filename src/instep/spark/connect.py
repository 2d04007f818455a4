"""A session of a Spark Connect server."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from instep.errors import InstepError, SetupError
from instep.spark.ship import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_PORT, REACH_SECONDS = 15002, 20
CLUSTER_HINT = "check spark.master and spark.remote in instep.yml, then `instep doctor`"


def connect(remote: str, conf: Mapping[str, str]) -> SparkSession:
    """Raise SetupError when the server is not there, or does not take the settings `conf`."""
    try:
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError as error:
        raise SetupError(
            f"Spark Connect needs packages that are not installed: {str(error).splitlines()[0]}",
            hint="pip install 'instep[connect]'",
        ) from error
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it prints what is raised as well
    where = remote.partition("/;")[0]  # what follows may be a token
    _reach(where)
    try:
        session: Any = ConnectSession.builder.remote(remote).getOrCreate()
        _configure(session, conf, where)
        ship(session)
    except InstepError:
        raise
    except Exception as error:
        reason = first_line(error).replace(remote, where)
        raise SetupError(f"the Spark server at {where} does not answer: {reason}", hint=CLUSTER_HINT) from error
    return cast("SparkSession", session)


def _reach(where: str) -> None:
    """Its own client asks a server that is not there again and again, for ten minutes."""
    try:
        place = urlsplit(where)
        socket.create_connection((place.hostname or "localhost", place.port or CONNECT_PORT), REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SetupError(f"the Spark server at {where} does not answer: {reason}", hint=CLUSTER_HINT) from error


def _configure(session: Any, conf: Mapping[str, str], where: str) -> None:
    from pyspark.errors import AnalysisException

    for key, value in conf.items():
        try:
            session.conf.set(key, value)
        except AnalysisException as error:
            raise SetupError(
                f"the Spark server at {where} does not take the setting {key}: {first_line(error)}",
                hint="what a server starts with is set there: take it out of spark.conf in instep.yml",
            ) from error


def first_line(error: Exception) -> str:
    """Return what an error says first, up to 300 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
