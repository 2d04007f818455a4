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
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.engine.address import SOCKET
from instep.engine.wire import SPARK_WITHIN, TELLS_AFTER, log_of, log_tail, receive, send
from instep.errors import SetupError
from instep.logs import clean
from instep.spark.payload import prefix_of
from instep.spark.provided_session import CATALOG, apply_settings, own_settings
from instep.spark.session import configuration, is_alive, local_master, silence_stack_traces, start, stop
from instep.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_READS = re.compile(
    r"(AWS|AZURE|GOOGLE|GCP|CLOUDSDK|IDENTITY|MSI|OCI|ORACLE|TNS|SNOWFLAKE|SPARK|HADOOP|YARN|KUBERNETES|KRB5|JAVA|JDK|PYSPARK|PG|SSL|INSTEP_ARCHIVE|INSTEP_CACHE)(_?.*)"
    r"|KRB5CCNAME|(HTTP|HTTPS|NO|ALL)_PROXY|(REQUESTS|CURL)_CA_BUNDLE|CLASSPATH|TMPDIR|HOME|PATH|LANG|LC_\w+|TZ",
    re.IGNORECASE,
)
"""The variables that Spark's JVM and its workers read: other values, another JVM."""
_OF_A_SESSION = {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}
"""Variables that pyspark sets in each process that has a session, so that what it starts has them, too."""
_SECRET = re.compile(r"SECRET|PASSW|TOKEN|KEY|SAS|CREDENTIAL|CONNECTION_STRING|AUTH", re.IGNORECASE)
_REUSE = "spark.python.worker.reuse"
_OPTIONS = re.compile(r"_OPT(ION)?S$")
_SLACK = 30.0
"""Seconds that the engine has beyond its own bound to say what became of Spark."""
_TELLS_WHERE = SPARK_WITHIN * 0.9
"""Seconds after which a keeper that still starts Spark says where it stands."""
_TRIES = 100
_LOOKS = 1.0
"""Seconds between two looks whether the JVM is there."""
_LATE = 60.0
"""Seconds for which jobs of a command that has ended may still begin: it has asked for them before."""
_lock = threading.Lock()
_joined: SparkSession | None = None


def attach(settings: SparkSettings) -> SparkSession | None:
    """Return a session of this command in the engine's context; None if it needs a JVM of its own.

    Raises SetupError if Spark is not there in time, or a second connection of the command needs settings that the
    context has not.
    """
    global _joined
    with _lock:
        first = _joined is None
        if first and (answer := _ask(settings)) is not None:
            try:
                _joined = _join(answer)
            except Exception:  # it has just ended, whatever the reason: this command starts one of its own
                _leave()
        if _joined is None:
            return None
        session: SparkSession = _joined.newSession()
        if not (refused := apply_settings(session, own_settings(settings))):
            return session
        if first:
            _leave()
            return None
        raise SetupError(
            f"Spark's session of this command cannot be given {', '.join(refused)}",
            hint="sync the connections with other Spark settings by commands of their own",
        )


def _ask(settings: SparkSettings) -> dict[str, Any] | None:
    """Return where the engine's JVM listens; None without an engine, or where its JVM is not for these settings."""
    place = os.environ.get(SOCKET)
    if not place or settings.remote or not local_master(settings.master) or (variables := _variables()) is None:
        return None
    umask = os.umask(0o077)
    os.umask(umask)
    requested = {
        "settings": _shared_settings(settings),
        "variables": variables,
        "umask": umask,
        "folder": str(Path.cwd()),
    }
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
            engine.connect(place)
            send(engine, {"ask": "spark", "command": os.getpid(), "settings": requested})
            answer = _answer(engine, Path(place))
    except OSError:
        return None
    if how := answer.get("ended"):
        message = clean(log_tail(Path(place))) or log_of(Path(place))
        sys.stderr.write(f"the engine's Spark has ended {how}, and this command starts its own: {message}\n")
    return answer if "port" in answer else None  # what is wrong is said by a JVM of its own


def _answer(engine: socket.socket, place: Path) -> dict[str, Any]:
    """Return the engine's answer, and report after a while what is waited for; raises SetupError if it takes too
    long."""
    answer: dict[str, Any] | None = {"late": SPARK_WITHIN + _SLACK}
    if not select.select([engine], [], [], TELLS_AFTER)[0]:
        sys.stderr.write(f"waiting for the engine's Spark to start, which writes to {log_of(place)}\n")
    if select.select([engine], [], [], SPARK_WITHIN + _SLACK)[0]:
        engine.settimeout(_SLACK)
        answer = receive(engine)[0]
    if answer is not None and (seconds := answer.get("late")):
        raise SetupError(
            f"the engine's Spark is not there after {seconds:.0f} s: {clean(log_tail(place)) or 'it says nothing'} "
            f"({log_of(place)})",
            hint="`instep engine stop` ends it; `--no-engine` runs a command with its own Spark",
        )
    return answer or {"ended": "with the engine"}


def _variables() -> dict[str, str] | None:
    """Return the variables that the JVM has to have; None if one is a secret, which a JVM must not keep."""
    names = {name for name in os.environ if _JVM_READS.fullmatch(name)} - _OF_A_SESSION
    variables = {name: os.environ[name] for name in sorted(names)}
    return None if any(_holds_secret(name, value) for name, value in variables.items()) else variables


def _holds_secret(name: str, value: str) -> bool:
    if name.upper().endswith("_PROXY"):
        return "@" in value
    if _OPTIONS.search(name):
        return bool(_SECRET.search(value))
    return bool(_SECRET.search(name)) and not Path(value).is_file()  # of a file only the path is kept


def _shared_settings(settings: SparkSettings) -> dict[str, Any]:
    """Return the settings that a JVM and its context are started with, without those that each session has."""
    values = asdict(replace(settings, catalogs={}, quick=True, resident=True))
    conf = {key: value for key, value in settings.conf.items() if not key.startswith(CATALOG)}
    from instep.spark import jars

    stores = [*map(str, jars.stores(configuration(settings), settings.cache, settings.jars))]
    files = [*settings.jars, *settings.drivers, *stores]
    changed = {file: Path(file).stat().st_mtime_ns for file in files if Path(file).is_file()}
    return {**values, "conf": conf, "stores": stores, "changed": changed}


def _join(answer: Mapping[str, Any]) -> SparkSession:
    """Make this process one of those that use the JVM's context, with a session of its own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    class SharedContext(SparkContext):
        """The keeper's context: what would end it, or the jobs of others, does nothing here."""

        def stop(self) -> None:
            if server := getattr(self, "_accumulatorServer", None):
                server.shutdown()
            with SparkContext._lock:
                SparkContext._active_spark_context = None

        def cancelAllJobs(self) -> None:
            pass

    environment = {"PYSPARK_GATEWAY_PORT": str(answer["port"]), "PYSPARK_GATEWAY_SECRET": str(answer["secret"])}
    os.environ.update(environment)
    os.environ["PYSPARK_PYTHON"] = str(answer["python"])
    try:
        SparkContext._ensure_initialized()
        silence_stack_traces()
    finally:
        for name in environment:
            os.environ.pop(name, None)
    jvm: Any = SparkContext._jvm
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext(running)
    conf: Any = SparkConf(_jconf=running.getConf())
    context: Any = SharedContext(conf=conf, gateway=SparkContext._gateway, jsc=java_context)
    # what tasks have counted is told to the keeper: a command that stands still would hold up the jobs of all
    context._javaAccumulator = jvm.org.apache.spark.util.AccumulatorContext.get(answer["counts"]).get()
    base = jvm.org.apache.spark.sql.classic.SparkSession.builder().sparkContext(running).getOrCreate()
    atexit.register(_leave)
    return SparkSession(context, base.newSession())


def _leave() -> None:
    """Detach from the JVM, which goes on."""
    global _joined
    _joined = None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    _forget_objects(gateway)
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    with suppress(Exception):  # it may be gone
        gateway.close()


def _forget_objects(gateway: Any) -> None:
    """Make the JVM release what this process refers to: sessions with their settings and catalogs, plans, rows."""
    from py4j.finalizer import ThreadSafeFinalizer  # type: ignore[import-untyped]

    with suppress(Exception):  # it may be gone
        client = gateway._gateway_client
        for key in tuple(ThreadSafeFinalizer.finalizers):
            client.garbage_collect_object(key.removeprefix(f"{client.address}{client.port}"), enqueue=False)


def run_keeper(peer: socket.socket, requested: Mapping[str, Any]) -> None:
    """Start Spark, tell the engine where it is, and keep it until the engine closes its end."""
    for name in [name for name in os.environ if _JVM_READS.fullmatch(name) and name not in requested["variables"]]:
        del os.environ[name]
    os.environ.update(requested["variables"])
    os.umask(requested["umask"])
    os.chdir(requested["folder"])
    shared = {key: value for key, value in requested["settings"].items() if key not in ("stores", "changed")}
    settings = SparkSettings(**{**shared, "jars": tuple(shared["jars"]), "drivers": tuple(shared["drivers"])})
    settings = replace(
        settings,
        drivers=(*requested["settings"]["stores"], *settings.drivers),
        conf={_REUSE: "false", **settings.conf},  # what a task was given goes with its process
    )
    print(f"process {os.getpid()} starts Spark", flush=True)
    late = threading.Timer(_TELLS_WHERE, _tell_where)
    late.daemon = True
    late.start()
    session = start(settings)
    context: Any = session.sparkContext
    counts = _count_for_commands(context)
    late.cancel()
    print(f"process {os.getpid()} has Spark", flush=True)
    parameters = context._gateway.gateway_parameters
    where = {
        "port": parameters.port,
        "secret": parameters.auth_token,
        "python": context.pythonExec,
        "counts": counts.id(),
    }
    send(peer, where)
    ended: dict[int, float] = {}
    while is_alive() and not context._jsc.sc().isStopped():
        if select.select([peer], [], [], _LOOKS)[0]:
            if (message := _next(peer)) is None:
                break
            ended[int(message["ended"])] = time.monotonic()
        ended = {pid: since for pid, since in ended.items() if time.monotonic() - since < _LATE}
        for pid in ended:
            _cancel(session, pid)
    stop(session, timeout=10)


def _count_for_commands(context: Any) -> Any:
    """Return the accumulator of all commands, whose counts come here as soon as a task ends.

    Spark's scheduler waits until they are read: pyspark's own server, which reads one connection until that ends, has
    the keeper's.
    """
    from pyspark.accumulators import AccumulatorTCPServer, UpdateRequestHandler

    class CountServer(socketserver.ThreadingMixIn, AccumulatorTCPServer):
        """One that reads all its connections."""

        daemon_threads = True

    secret = context._gateway.gateway_parameters.auth_token
    server = CountServer(("127.0.0.1", 0), UpdateRequestHandler, secret)
    threading.Thread(target=server.serve_forever, name="counts", daemon=True).start()
    counts = context._jvm.PythonAccumulatorV2(*server.server_address, secret)
    context._jsc.sc().register(counts)
    return counts


def _tell_where() -> None:
    """Write to the log where this process stands."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    stack = reversed(traceback.extract_stack(frame)[-5:])
    print("it stands in", *(f"{at.name} ({Path(at.filename).name}:{at.lineno})" for at in stack), flush=True)


def _next(peer: socket.socket) -> dict[str, Any] | None:
    try:
        return receive(peer)[0]
    except OSError:
        return None


def _cancel(session: SparkSession, command: int) -> None:
    """Cancel the running jobs of a command that has ended, if it has left any."""
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
                if prefix in tag  # Spark puts the session's name before it
            }
            if not tags:
                return
            for tag in tags:
                context.cancelJobsWithTag(tag)
