"""Starts Spark: quickly and quietly on this machine and for a standalone cluster, by Spark's own launcher for others,
or over Connect.

A session of a Spark Connect server.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from instep.errors import InstepError, SetupError
from instep.spark import archive, jars
from instep.spark.executors import wait_for_executors
from instep.spark.java import LOGGING, Java, Jvm, JvmExited, find_java, launch
from instep.spark.payload import THRESHOLD
from instep.spark.settings import OWN_WORKERS, SparkSettings
from instep.spark.ship import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RETRIES = 4
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*(\d+))?\])?")
_SECRET = re.compile(
    r"(secret|password|token|credential|access-?key|account-?key)(?!.*(file|path|regex)$)", re.IGNORECASE
)
_lock = threading.Lock()
_jvm: Jvm | None = None


def start(settings: SparkSettings) -> SparkSession:
    """Return a session with these settings; raises SetupError when Java, jars, memory or the cluster are missing.

    A classic session of this process that is already there is returned with the settings that can change.
    """
    conf = configuration(settings)
    with _lock:
        if settings.remote:
            return connect(settings.remote, conf)
        if local_master(settings.master) or _plain_cluster(settings.master, conf):
            _ensure_jvm(settings, conf)
        return _classic(settings, conf)


def stop(spark: SparkSession, timeout: float = 60) -> None:
    """End the session and the JVM that `start` made for it, within `timeout` seconds."""
    global _jvm
    with suppress(Exception):  # it may be stopped, or its JVM gone
        spark.stop()
    with _lock:
        if _jvm is not None:
            _forget_gateway()
            _jvm.close(timeout)
            _jvm = None


def end(spark: SparkSession, timeout: float = 60) -> None:
    """Stop as `stop` does, when this process ends too: what pyspark keeps in it goes with it, the JVM tidies up after
    itself."""
    with _lock:
        if _jvm is None:
            with suppress(Exception):  # it may be stopped, or its JVM gone
                spark.stop()
            return
        _forget_gateway()  # a JVM waits 0.3 s for threads that still serve a connection
        _jvm.close(timeout)


def is_alive() -> bool:
    """Return whether the JVM that `start` has made runs; True where there is none of this process."""
    return _jvm is None or _jvm.alive


def local_master(master: str) -> str:
    """Return `local[N,4]` for a local master, "" for another."""
    match = _LOCAL.fullmatch(master)
    if not match:
        return ""
    cores = match[1] or "1"
    return f"local[{os.cpu_count() if cores == '*' else cores},{max(RETRIES, int(match[2] or 0))}]"


def _plain_cluster(master: str, conf: Mapping[str, str]) -> bool:
    """Return whether a JVM of our own serves a cluster: a standalone one, without anything that Spark's launcher
    reads."""
    files = (os.environ.get("SPARK_CONF_DIR"), os.environ.get("HADOOP_CONF_DIR"), os.environ.get("SPARK_HOME"))
    return master.startswith("spark://") and not any(files) and not any(map(_LAUNCHED.match, conf))


_LAUNCHED = re.compile(r"spark\.(driver\.(extra|default|memory$)|jars\.|submit\.)")
"""Settings that Spark's own launcher acts on, before there is a JVM."""


def configuration(settings: SparkSettings) -> dict[str, str]:
    """Return every Spark setting of the session; raises SetupError if one would hold a secret."""
    conf = dict(_SESSION)
    if settings.remote is None:
        conf |= _CONTEXT
        if local_master(settings.master):
            conf |= _LOCAL_ONLY
    for name, catalog in settings.catalogs.items():
        prefix = f"spark.sql.catalog.{name}"
        for key, value in catalog.items():
            conf[key if key.startswith("spark.") else f"{prefix}.{key}" if key else prefix] = value
    conf |= dict(settings.conf)
    for key, value in conf.items():
        if value and _SECRET.search(key.rsplit(".", 1)[-1]):
            raise SetupError(
                f"Spark setting {key} looks like a secret", hint="give it under the destination's properties"
            )
    return conf


_SESSION = {
    "spark.sql.storeAssignmentPolicy": "STRICT",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
_CONTEXT = {
    "spark.app.name": "instep",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.redaction.regex": "(?i)secret|password|token|credential|access[.-]?key",
    "spark.python.worker.reuse": "true",
    f"spark.executorEnv.{OWN_WORKERS}": "1",
    THRESHOLD: "1g",
}
_LOCAL_ONLY = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "instep.spark.daemon",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.shuffle.compress": "true",
    "spark.cleaner.periodicGC.interval": "1h",
    "spark.sql.catalogImplementation": "in-memory",
}


def _ensure_jvm(settings: SparkSettings, conf: Mapping[str, str]) -> None:
    """Start a JVM with pyspark's gateway to it, unless one is running."""
    global _jvm
    if _jvm is not None and _jvm.alive:
        return
    loaded = sys.modules.get("pyspark")  # importing it takes as long as starting half a JVM
    if loaded is not None and loaded.SparkContext._gateway is not None:
        if _jvm is None:
            return  # somebody else's gateway: a notebook or spark-submit
        _forget_gateway()
    java = find_java()
    jvm = _launch(java, settings, [*jars.stores(conf, settings.cache, settings.jars), *map(Path, settings.drivers)])
    _adopt(jvm)
    _jvm = jvm
    atexit.register(jvm.leave)


def _launch(java: Java, settings: SparkSettings, stores: Sequence[Path]) -> Jvm:
    path = jars.classpath(settings.cache, settings.jars)
    archive_file = archive.path_for(java, path, settings.cache)
    fast = archive.options(archive_file) if settings.quick else ()
    if settings.quick and not fast:
        archive.build_later(settings.cache)
    env = {
        **({"SPARK_LOCAL_IP": "127.0.0.1"} if local_master(settings.master) else {}),
        "SPARK_HOME": str(path[-1].parents[1]),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),  # what the driver can import, its workers can
    }
    thread = threading.Thread(target=importlib.import_module, args=("pyspark.sql",), daemon=True)
    thread.start()
    try:
        jvm = launch(java, [*path, *stores], (*_memory(settings), *_compiler(settings), *fast), env)
        thread.join()  # two threads that import modules which need each other may see half of one
        return jvm
    except JvmExited:
        if not fast:
            raise
        jvm = launch(java, [*path, *stores], (*_memory(settings), *_compiler(settings)), env)
        archive.discard(archive_file)  # without it the JVM starts: the archive was to blame
        return jvm


def _memory(settings: SparkSettings) -> tuple[str, ...]:
    if settings.driver_memory:
        return (f"-Xmx{settings.driver_memory}",)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (f"-Xmx{min(4096, max(1024, total // 4 >> 20))}m",)


def _compiler(settings: SparkSettings) -> tuple[str, ...]:
    """Return options for a JVM that mostly waits for Python: one command is over before optimized code pays, and in a
    JVM that stays only what is called ten times as often as by default is optimized."""
    options = ["-XX:+UseSerialGC"] if (os.cpu_count() or 1) <= 4 else []
    if settings.resident:
        return (*options, "-XX:+ExitOnOutOfMemoryError", *_OPTIMIZED_LATE)
    return (*options, "-XX:TieredStopAtLevel=1") if settings.quick else tuple(options)


_OPTIMIZED_LATE = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)


def _adopt(jvm: Jvm) -> None:
    """Make `jvm` the one that pyspark talks to. The variables are how pyspark is told, and only that long."""
    from pyspark import SparkContext

    environment = {"PYSPARK_GATEWAY_PORT": str(jvm.port), "PYSPARK_GATEWAY_SECRET": jvm.secret}
    os.environ.update(environment)
    try:
        SparkContext._ensure_initialized()
        silence_stack_traces()
    finally:
        for name in environment:
            os.environ.pop(name, None)


def silence_stack_traces() -> None:
    """Silence the stack traces of pyspark and py4j at the end of the JVM; the job itself reports what happened."""
    from pyspark.accumulators import AccumulatorTCPServer

    AccumulatorTCPServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    root = logging.getLogger()
    if _not_of_py4j not in root.filters:
        root.addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _forget_gateway() -> None:
    """Reset pyspark after its JVM has ended, so that it can start again."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._gateway is not None:
        with suppress(Exception):  # the other side may be gone
            SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _classic(settings: SparkSettings, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    local = local_master(settings.master)
    os.environ["PYSPARK_PYTHON"] = conf.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    conf = {"spark.master": local or settings.master, **(conf if local else _cluster(settings, conf))}
    builder: Any = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        with _own_interrupts():
            if local and settings.quick:
                _start_workers(conf)
            session: SparkSession = builder.getOrCreate()
        if not local:
            ship(session)
            wait_for_executors(session)
    except InstepError:
        SparkSession.builder.getOrCreate().stop()  # it would hold its place in the cluster's queue
        raise
    except PySparkException as error:
        raise SetupError(f"Spark does not start on {settings.master}: {error}", hint=CLUSTER_HINT) from error
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = next((line.strip() for line in lines[1:] if ": " in line), type(error).__name__)
        raise SetupError(f"Spark does not start on {settings.master}: {reason}", hint=CLUSTER_HINT) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


PYSPARK_S = "signal_handler"
"""Name of the function by which pyspark takes Ctrl-C."""


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, now and later: pyspark sets a handler that calls the JVM from within whatever
    call it interrupts, which fails with an error of py4j instead."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except Exception as error:
        if any(frame.name == PYSPARK_S for frame in extract_tb(error.__traceback__)):
            raise KeyboardInterrupt from error
        raise
    finally:
        if before is not None:  # None: a handler that was not set in Python, and cannot be set from it
            signal.signal(signal.SIGINT, before)


def _start_workers(conf: Mapping[str, str]) -> None:
    """Start Python workers while the session is made: the first job finds them running."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:
        return
    context = SparkContext.getOrCreate(SparkConf().setAll(list(conf.items())))
    cores = context.defaultParallelism

    def run() -> None:
        with suppress(Exception):  # the session may have ended meanwhile; a real job tells what is wrong
            context.parallelize(range(cores), cores).foreach(_nothing)

    threading.Thread(target=run, name="workers", daemon=True).start()


def _nothing(_: int) -> None:
    """No-op that makes a worker start."""


_PYTHON = "spark.pyspark.python"
"""Python on the executors: Spark takes it from its own launcher's arguments, which we do not go through."""
_JARS, _DRIVER_PATH = "spark.jars", "spark.driver.extraClassPath"
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"


def _cluster(settings: SparkSettings, conf: Mapping[str, str]) -> dict[str, str]:
    """Return `conf` with what a remote master needs; settings of both are joined."""
    find_java()
    own = [*jars.ensure(cache=settings.cache), *jars.stores(conf, settings.cache, settings.jars)]
    files = [*map(str, own), *settings.jars, *settings.drivers]
    configured = {key: [conf[key]] if conf.get(key) else [] for key in (_JARS, _DRIVER_PATH, _DRIVER_OPTIONS)}
    out = {
        **conf,
        _DRIVER_PATH: ":".join([*files, *configured[_DRIVER_PATH]]),
        _DRIVER_OPTIONS: " ".join([LOGGING, *configured[_DRIVER_OPTIONS]]),
        _JARS: ",".join([*files, *configured[_JARS]]),
        "spark.task.maxFailures": conf.get("spark.task.maxFailures", str(RETRIES)),
    }
    return out | ({"spark.driver.memory": settings.driver_memory} if settings.driver_memory else {})


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
    where = remote.partition(";")[0].rstrip("/")  # what follows may be a token
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
    """Check that the server can be reached: Spark's own client would try for ten minutes."""
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
    """Return the first line of an error, up to 300 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
