"""A Spark session that the caller has started: a project's Spark work runs in it, and it stays as it is.

Settings of ours go into sessions derived from it, which share its JVM or its server. What only a new session can be
given is looked for, and an error names what is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from instep.errors import SetupError
from instep.redaction import names_secret
from instep.spark import jars
from instep.spark.executors import setting_of
from instep.spark.extract import elsewhere
from instep.spark.payload import THRESHOLD
from instep.spark.session import configuration
from instep.spark.settings import SparkSettings
from instep.spark.ship import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUPPORTED = "4.1"
CATALOG = "spark.sql.catalog."
_EXTENSIONS = "spark.sql.extensions"
_ICEBERG = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_PYTHON = "PYSPARK_PYTHON"
_START = (
    "start it with `SparkSession.builder.config(map=instep.spark_conf(FOLDER))`, FOLDER being the project's, and "
    f"`os.environ['{_PYTHON}'] = sys.executable` before"
)
_CONNECT = "start the Spark Connect server with it: docs/guides/cluster.md"


class GivenSession:
    """One session of the caller, and the sessions that are derived from it: one for each set of settings."""

    def __init__(self, spark: SparkSession) -> None:
        """Check that the session is alive and of a supported version; SetupError if it is not."""
        if _is_stopped(spark):
            raise SetupError("the given Spark session is stopped", hint="give one that is running")
        if not spark.version.startswith(f"{SUPPORTED}."):
            raise SetupError(f"the given Spark session is Spark {spark.version}", hint=f"give one of Spark {SUPPORTED}")
        self.spark = spark
        self._derived: dict[frozenset[tuple[str, str]], SparkSession] = {}
        self._lock = threading.Lock()

    @property
    def master(self) -> str:
        """Return the session's master; "" over Spark Connect."""
        context = _context(self.spark)
        return "" if context is None else str(context.master)

    def session(self, settings: SparkSettings) -> SparkSession:
        """Return a session with these settings that shares the given session's JVM or server.

        Raises SetupError that names what is missing: classes, or settings that only a new session can be given.
        """
        conf = own_settings(settings)
        with self._lock:
            if _is_stopped(self.spark):
                raise SetupError("the given Spark session has been stopped", hint="start another, and open again")
            if (derived := self._derived.get(frozenset(conf.items()))) is None:
                derived = self._derived[frozenset(conf.items())] = self._derive(conf)
            return derived

    def _derive(self, conf: Mapping[str, str]) -> SparkSession:
        is_connect = _context(self.spark) is None
        missing = [] if is_connect else [*_missing_classes(self.spark, conf)]
        derived: Any = self.spark.cloneSession() if is_connect else self.spark.newSession()  # type: ignore[attr-defined]
        missing += apply_settings(derived, conf)
        if not is_connect and _catalogs(conf) and _ICEBERG not in (_setting(derived, _EXTENSIONS) or ""):
            missing.append(f"{_EXTENSIONS} without {_ICEBERG}")
        local = not is_connect and not elsewhere(self.spark)
        if local and (program := _foreign_python(self.spark)):
            missing.append(f"Python workers with instep's packages: they run {program} ({_PYTHON} names it)")
        if missing:
            _release(derived)
            raise SetupError(
                f"the given Spark session lacks what this project needs: {'; '.join(missing)}",
                hint=_CONNECT if is_connect else _START,
            )
        if not local:
            ship(derived)
        session: SparkSession = derived
        return session

    def close(self) -> None:
        """Let go of the derived sessions; the given one goes on."""
        with self._lock:
            for session in self._derived.values():
                _release(session)
            self._derived.clear()


def check_usable(spark: SparkSession) -> None:
    """Let tasks of a session find instep; SetupError for a session that cannot be used."""
    GivenSession(spark)
    if elsewhere(spark):
        ship(spark)
    elif program := _foreign_python(spark):
        raise SetupError(
            f"the given Spark session's Python workers run {program}, which may lack instep's packages",
            hint=f"set os.environ['{_PYTHON}'] = sys.executable before the session starts",
        )


def driver_host(spark: SparkSession) -> str:
    """Return where executors on other machines reach the driver's; "" if all tasks run on that one."""
    if (_setting(spark, "spark.master") or "").startswith("local"):
        return ""
    return _setting(spark, "spark.driver.host") or ""


def active_session() -> SparkSession | None:
    """Return the active session of this thread, classic or Spark Connect, if there is one."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        return None
    return SparkSession.getActiveSession()


def chosen_session(*sessions: SparkSession | None) -> SparkSession:
    """Return the first of these sessions that is one, else the active one; SetupError if there is none."""
    session = next((s for s in sessions if s is not None), None) or active_session()
    if session is None:
        raise SetupError(
            "there is no Spark session", hint="give one: to_spark(spark), or instep.open(FOLDER, spark=spark)"
        )
    return session


def own_settings(settings: SparkSettings) -> dict[str, str]:
    """Return the settings of a derived session: what instep and the project want of SQL, and the catalogs."""
    conf = configuration(SparkSettings(remote="given", conf=settings.conf, catalogs=settings.catalogs))
    return {key: value for key, value in conf.items() if not key.startswith("spark.instep.")}


def start_settings(settings: SparkSettings) -> dict[str, str]:
    """Return what a session needs from its start on, to be given to a project with these settings.

    Fetches the pinned jars if they are not there; raises SetupError if that fails.
    """
    conf = {key: value for key, value in own_settings(settings).items() if key.startswith(CATALOG)}
    files = [*jars.ensure(cache=settings.cache), *jars.stores(conf, settings.cache, settings.jars)]
    paths = [*map(str, files), *settings.jars]
    return {
        **conf,
        **settings.conf,
        _EXTENSIONS: _ICEBERG,
        THRESHOLD: "1g",
        "spark.jars": ",".join(paths),
        "spark.driver.extraClassPath": ":".join(paths),
    }


def _context(spark: SparkSession) -> Any:
    return getattr(spark, "_sc", None)


def _is_stopped(spark: SparkSession) -> bool:
    context = _context(spark)
    return bool(getattr(spark, "is_stopped", False)) if context is None else context._jsc is None


def _catalogs(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the class of each catalog by its name."""
    named = {key.removeprefix(CATALOG): value for key, value in conf.items() if key.startswith(CATALOG)}
    return {name: value for name, value in named.items() if "." not in name}


def _missing_classes(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[str]:
    """Name the jars whose classes the session's JVM cannot load."""
    jar_of = dict.fromkeys(_catalogs(conf).values(), jars.ICEBERG)
    if any(value.startswith("jdbc:sqlite:") for value in conf.values()):
        jar_of["org.sqlite.JDBC"] = jars.SQLITE
    if jars.S3_IO in conf.values():
        jar_of["software.amazon.awssdk.services.s3.S3Client"] = jars.AWS
    for name, jar in jar_of.items():
        if not _loads(spark, name):
            yield f"the class {name} ({jar.coordinates})"


def _loads(spark: SparkSession, name: str) -> bool:
    """Return whether the class loader that Spark's own threads have finds the class."""
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName(name, False, False)
    except Exception as error:
        if "ClassNotFoundException" not in str(error) and "NoClassDefFoundError" not in str(error):
            raise
        return False
    return True


def apply_settings(session: Any, conf: Mapping[str, str]) -> list[str]:
    """Set these in the derived session; return those that only a new session can be given, unless it has them."""
    from pyspark.errors import PySparkException

    refused = []
    for key, value in conf.items():
        try:
            session.conf.set(key, value)
        except PySparkException:
            if (setting := _setting(session, key)) != value:
                # errors are stored and sent on: the value of a setting that names a secret is in none of them
                refused.append(key if names_secret(key) else f"{key}={value} (it has {setting or 'none'})")
    return refused


def _setting(session: Any, key: str) -> str | None:
    """Return the setting as the session has it, or its context."""
    with suppress(Exception):  # a setting that is not set is an error on Spark Connect
        value: str | None = session.conf.get(key, None)
        if value is not None:
            return value
    context = _context(session)
    return None if context is None else setting_of(context, key)


def _foreign_python(spark: SparkSession) -> str:
    """Return the Python that tasks on this machine run, if it is not this process's; "" if it is."""
    import subprocess
    import sys

    program = str(_context(spark).pythonExec)
    command = [program, "-c", "import sys; print(sys.prefix)"]
    try:
        prefix = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return program
    return "" if prefix == sys.prefix else f"{program} of {prefix}"


def _release(session: Any) -> None:
    """End a derived session at its server; `stop` would end more. In a JVM the garbage collector does it."""
    if _context(session) is None:
        with suppress(Exception):  # the server may be gone
            session.client.release_session()
            session.client.close()
