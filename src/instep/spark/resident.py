"""Spark's session of a resident engine: one process keeps it, commands attach to it.

The keeper starts the JVM and its context and does nothing else. A command makes a session of its own in that context:
settings and catalogs are not shared, Python workers and compiled code are. Jobs bear the process id of their command:
those of one that was killed are cancelled.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.engine.address import SOCKET
from instep.engine.wire import receive, send
from instep.spark.given import CATALOG, apply_settings, own_settings
from instep.spark.session import configuration, is_alive, local_master, start, stop
from instep.spark.settings import SparkSettings
from instep.spark.tags import prefix_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_READS = re.compile(
    r"(AWS|AZURE|GOOGLE|GCP|SPARK|HADOOP|YARN|KUBERNETES|KRB5|JAVA|JDK|INSTEP_ARCHIVE|INSTEP_CACHE|PYSPARK|TMPDIR)(_.*)?"
    r"|KRB5CCNAME|(HTTP|HTTPS|NO|ALL)_PROXY",
    re.IGNORECASE,
)
"""The variables that Spark's JVM and its workers read: other values, another JVM."""
_SECRET = re.compile(r"SECRET|PASSWORD|TOKEN|ACCESS_KEY|ACCOUNT_KEY|SAS|CREDENTIAL(?!S$)", re.IGNORECASE)
_NAMES_PLACE = re.compile(r"_(FILE|PATH|URI|URL)$")
_TRIES = 100
_LOOKS = 1.0
"""Seconds between two looks whether the JVM is there."""
_lock = threading.Lock()
_joined: SparkSession | None = None


def attach(settings: SparkSettings) -> SparkSession | None:
    """Return a session of this command in the engine's context; None if it needs a JVM of its own."""
    global _joined
    with _lock:
        if _joined is None and (answer := _ask(settings)) is not None:
            try:
                _joined = _join(int(answer["port"]), str(answer["secret"]))
            except Exception:  # it has just ended, whatever the reason: this command starts one of its own
                _leave()
        if _joined is None:
            return None
        session: SparkSession = _joined.newSession()
        if not apply_settings(session, own_settings(settings)):
            return session
        _leave()
        return None


def _ask(settings: SparkSettings) -> dict[str, Any] | None:
    """Return where the engine's JVM listens; None without an engine, or where its JVM is not for these settings."""
    place = os.environ.get(SOCKET)
    if not place or settings.remote or not local_master(settings.master) or (variables := _variables()) is None:
        return None
    wanted = {"settings": _kept_settings(settings), "variables": variables}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
            engine.connect(place)
            send(engine, {"ask": "spark", "command": os.getpid(), "settings": wanted})
            answer = receive(engine)[0]
    except OSError:
        return None
    return answer if answer is not None and "port" in answer else None  # what is wrong is said by a JVM of its own


def _variables() -> dict[str, str] | None:
    """Return the variables that the JVM has to have; None if one is a secret, which a JVM must not keep."""
    found = {name: value for name, value in os.environ.items() if _JVM_READS.fullmatch(name)}
    has_secret = any(
        "@" in value if name.upper().endswith("_PROXY") else _SECRET.search(name) and not _NAMES_PLACE.search(name)
        for name, value in found.items()
    )
    return None if has_secret else found


def _kept_settings(settings: SparkSettings) -> dict[str, Any]:
    """Return the settings that a JVM and its context are started with, without those that each session has."""
    said = asdict(replace(settings, catalogs={}, quick=True, resident=True))
    conf = {key: value for key, value in settings.conf.items() if not key.startswith(CATALOG)}
    return {**said, "conf": conf, "stores": [*map(str, _stores(settings))]}


def _stores(settings: SparkSettings) -> list[Path]:
    from instep.spark import jars

    return jars.stores(configuration(settings), settings.cache)


def _join(port: int, secret: str) -> SparkSession:
    """Make this process one of those that use the JVM's context, with a session of its own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        SparkContext._ensure_initialized()
    finally:
        for name in told:
            os.environ.pop(name, None)
    jvm: Any = SparkContext._jvm
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext(running)
    conf: Any = SparkConf(_jconf=running.getConf())
    context = SparkContext(conf=conf, gateway=SparkContext._gateway, jsc=java_context)
    base = jvm.org.apache.spark.sql.classic.SparkSession.builder().sparkContext(running).getOrCreate()
    atexit.register(_leave)
    return SparkSession(context, base.newSession())


def _leave() -> None:
    """Let go of the JVM, which goes on."""
    global _joined
    _joined = None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    with suppress(Exception):  # it may be gone
        gateway.close()


def keep(peer: socket.socket, wanted: Mapping[str, Any]) -> None:
    """Start Spark, tell the engine where it is, and keep it until the engine closes its end."""
    os.environ.update(wanted["variables"])
    said = {key: value for key, value in wanted["settings"].items() if key != "stores"}
    settings = SparkSettings(**{**said, "jars": tuple(said["jars"]), "drivers": tuple(said["drivers"])})
    session = start(replace(settings, drivers=(*wanted["settings"]["stores"], *settings.drivers)))
    gateway: Any = session.sparkContext._gateway
    parameters = gateway.gateway_parameters
    send(peer, {"port": parameters.port, "secret": parameters.auth_token})
    while is_alive():
        if select.select([peer], [], [], _LOOKS)[0]:
            if (heard := _next(peer)) is None:
                break
            _cancel(session, int(heard["ended"]))
    stop(session, timeout=10)


def _next(peer: socket.socket) -> dict[str, Any] | None:
    try:
        return receive(peer)[0]
    except OSError:
        return None


def _cancel(session: SparkSession, command: int) -> None:
    """Cancel the jobs of a command that has ended, if it has left any."""
    with suppress(Exception):  # the JVM may be gone: the next command finds that out
        context: Any = session.sparkContext
        prefix = prefix_of(command)
        for _ in range(_TRIES):
            jobs = context._jsc.sc().statusStore().jobsList(context._jvm.java.util.ArrayList())
            tags = {
                str(tag)
                for job in (jobs.apply(i) for i in range(jobs.size()))
                if str(job.status()) == "RUNNING"
                for tag in str(job.jobTags().mkString("\n")).split("\n")
                if tag.startswith(prefix)
            }
            if not tags:
                return
            for tag in tags:
                context.cancelJobsWithTag(tag)
