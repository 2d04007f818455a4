"""JDBC in Spark's own JVM: drivers from any jar, a driver's metadata, and Spark's reader over queries of ours.

Spark's reader is given the columns' forms by us and asks no driver for types, so what it would change (moments by the
JVM's time zone, decimals by its scale) comes as the driver's own text. A login's properties go to the driver alone:
not into Spark's configuration, and not into a plan, whose text is the query.
"""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from instep.errors import ConnectError, InstepError, ReadError, SetupError, SourceLost
from instep.redaction import without_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Form = Literal["long", "double", "float", "binary", "string"]
"""The way of a column from the driver to Arrow; `string` is the driver's getString."""
_ARROW: Mapping[Form, pa.DataType] = {
    "long": pa.int64(),
    "double": pa.float64(),
    "float": pa.float32(),
    "binary": pa.binary(),
    "string": pa.string(),
}
_CATALOG_ROWS = 50_000
_lock = threading.Lock()


@dataclass(frozen=True)
class Login:
    """Login to a database: its URL without a login, the driver's class, the jars that have it, and the driver's
    properties, password included."""

    url: str
    driver: str
    jars: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def clean(self, text: str) -> str:
        """Return `text` without the values of secret properties, whatever a driver puts into its messages."""
        secrets = {
            v for k, v in self.properties.items() if re.search(r"pass|pwd|secret|token|key", k, re.I) and len(v) > 3
        }
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "******")
        return text


def classic(spark: SparkSession) -> Any:
    """Return the JVM of a classic session; SetupError on Spark Connect, which lets nobody at its JVM."""
    if getattr(spark, "_sc", None) is None:
        raise SetupError(
            "a source of type jdbc asks its driver for tables and types inside Spark's JVM, which Spark Connect does "
            "not allow",
            hint="set `spark.master` instead of `spark.remote` for this project",
        )
    return spark._jvm


def running() -> SparkSession:
    """Return the session of this process; SetupError if there is none."""
    from pyspark.sql import SparkSession

    session: SparkSession | None = SparkSession._instantiatedSession
    if session is None:
        raise SetupError("no Spark session is running in this process", hint="sources of type jdbc are read by Spark")
    return session


def load(spark: SparkSession, login: Login) -> Any:
    """Return the driver's class: from the class path, where a session of ours has it, or from the source's jars, which
    are then brought to a running session and its executors. Raises SetupError."""
    jvm = classic(spark)
    with suppress(Exception):  # it is not on the class path
        return jvm.java.lang.Class.forName(login.driver)
    shared = spark._jsparkSession.sharedState().jarClassLoader()
    with _lock:
        have = {Path(url.getPath()).name for url in shared.getURLs()}
        new = [jar for jar in login.jars if Path(jar).name not in have]
        for jar in new:
            spark._jsparkSession.sessionState().resourceLoader().addJar(jar)
        if new:
            _let_in(jvm, shared)
    jvm.java.lang.Thread.currentThread().setContextClassLoader(shared)  # where Spark looks for drivers
    try:
        return jvm.java.lang.Class.forName(login.driver, True, shared)
    except Exception as error:
        if "ClassNotFoundException" not in str(error) and "NoClassDefFoundError" not in str(error):
            raise
        jars = ", ".join(Path(j).name for j in login.jars) or "no jar is named"
        raise SetupError(
            f"the driver class {login.driver} is not in the source's jars ({jars})",
            hint="name the driver's jar under `jars`, with those that it needs, and its class under `driver`",
        ) from None


def _let_in(jvm: Any, loader: Any) -> None:
    """Let the threads that take in what tasks answer find the classes of jars that came later: an exception whose
    class they cannot load is lost with all that it says. Threads that these start have it from them."""
    for thread in jvm.java.lang.Thread.getAllStackTraces().keySet():
        if thread.getName().startswith(("task-result-getter", "dispatcher-")):
            thread.setContextClassLoader(loader)


@contextmanager
def connect(spark: SparkSession, login: Login, what: str) -> Iterator[JdbcConnection]:
    """Open a connection of the driver process, read-only where the driver supports that; raises ConnectError if it
    is refused."""
    jvm = classic(spark)
    gateway = _gateway(spark)
    kind = load(spark, login)
    settings = jvm.java.util.Properties()
    for name, value in login.properties.items():
        settings.setProperty(name, value)
    try:
        none = gateway.new_array(jvm.java.lang.Class, 0)
        driver = kind.getDeclaredConstructor(none).newInstance(gateway.new_array(jvm.java.lang.Object, 0))
        link = driver.connect(login.url, settings)
    except Exception as error:
        raise ConnectError(f"{what}: {login.clean(driver_message(error))}", hint=_LOGIN) from None
    if link is None:
        raise SetupError(
            f"{what}: {login.driver} does not take URLs such as {login.url}", hint="correct `driver` or `url`"
        )
    with suppress(Exception):  # some drivers allow it before the login only
        link.setReadOnly(True)
    connection = JdbcConnection(spark, login, link, what)
    try:
        yield connection
    finally:
        with suppress(Exception):  # what was read is there; a lost connection need not be told again
            link.close()


_LOGIN = "check the address, `user`, `password` and TLS options of the source, then `instep source test`"


@dataclass
class JdbcConnection:
    """One connection of the driver process."""

    spark: SparkSession
    login: Login
    raw: Any = field(repr=False)
    """The java.sql.Connection."""
    what: str

    @contextmanager
    def describing(self, doing: str) -> Iterator[None]:
        """Turn whatever the driver raises into a ReadError that names what was being done, SourceLost if the database
        has gone."""
        try:
            yield
        except InstepError:
            raise
        except Exception as error:
            raise read_failure(self.login, error, f"{self.what}: {doing}") from None

    def metadata(self) -> Any:
        return self.raw.getMetaData()

    def table(self, result: Any, columns: int) -> list[tuple[str | None, ...]]:
        """Return all rows of a java.sql.ResultSet as texts; its first `columns` columns, None for those that it
        lacks."""
        width = min(columns, result.getMetaData().getColumnCount())
        jvm, rows = classic(self.spark), []
        jvm.org.apache.spark.sql.execution.python.EvaluatePython.registerPicklers()
        try:
            groups = self._rows(result, ["string"] * width).grouped(_CATALOG_ROWS)
            while groups.hasNext():
                some = jvm.java.util.ArrayList(jvm.scala.jdk.javaapi.CollectionConverters.asJava(groups.next()))
                rows += pickle.loads(bytes(jvm.net.razorvine.pickle.Pickler().dumps(some)))  # no job: 20 times as fast
        finally:
            result.close()
        return [(*row, *[None] * (columns - width)) for row in rows]

    def texts(self, sql: str, timeout: float = 0) -> tuple[str | None, ...]:
        """Return the first row of a query, as the driver's texts."""
        with self._statement(sql, 1, timeout) as statement:
            result = statement.executeQuery()
            if not result.next():
                return ()
            return tuple(result.getString(n + 1) for n in range(result.getMetaData().getColumnCount()))

    def rows(self, sql: str, columns: int, timeout: float = 0) -> list[tuple[str | None, ...]]:
        """Return all rows of a query of so many columns, as texts."""
        with self._statement(sql, 0, timeout) as statement:
            return self.table(statement.executeQuery(), columns)

    def batches(self, sql: str, forms: Sequence[Form], fetch: int, timeout: float = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query in batches of up to `fetch`, while they are fetched."""
        self.raw.setAutoCommit(False)  # drivers that hold whole results otherwise
        try:
            with self._statement(sql, fetch, timeout) as statement:
                yield from self._batches(statement.executeQuery(), forms, fetch)
        finally:
            with suppress(Exception):  # the connection may be gone; the reader says so
                self.raw.rollback()
                self.raw.setAutoCommit(True)

    @contextmanager
    def _statement(self, sql: str, fetch: int, timeout: float) -> Iterator[Any]:
        """Prepare a statement, as Spark does: some drivers print other texts for unprepared ones."""
        statement = self.raw.prepareStatement(sql)
        try:
            statement.setFetchSize(fetch)
            if timeout:
                statement.setQueryTimeout(max(1, round(timeout)))
            yield statement
        finally:
            with suppress(Exception):  # the connection may be gone; the reader says so
                statement.close()

    def _rows(self, result: Any, forms: Sequence[Form]) -> Any:
        """Return a Scala iterator over the rows of a java.sql.ResultSet."""
        jvm = classic(self.spark)
        reader = jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
        return reader.resultSetToRows(result, _schema(jvm, forms))

    def _batches(self, result: Any, forms: Sequence[Form], size: int) -> Iterator[pa.RecordBatch]:
        from pyspark.sql import DataFrame

        jvm = classic(self.spark)
        schema = _schema(jvm, forms)
        groups = self._rows(result, forms).grouped(size)
        names = [f"c{n}" for n in range(len(forms))]
        while groups.hasNext():
            some = jvm.scala.jdk.javaapi.CollectionConverters.asJava(groups.next())
            frame = DataFrame(self.spark._jsparkSession.createDataFrame(some, schema), self.spark)
            for batch in frame.toArrow().combine_chunks().to_batches():
                arrays = [c.cast(_ARROW[form]) for c, form in zip(batch.columns, forms, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names)


def _schema(jvm: Any, forms: Sequence[Form]) -> Any:
    schema = jvm.org.apache.spark.sql.types.StructType()
    for number, form in enumerate(forms):
        schema = schema.add(f"c{number}", form)
    return schema


@dataclass(frozen=True)
class JdbcScan:
    """One query over one table, in parts: `select` has the `columns`, which are names as the database quotes them;
    each of `parts` is a condition over its result, "" for all rows."""

    select: str
    columns: tuple[str, ...]
    forms: tuple[Form, ...]
    """Forms of the columns, one each."""
    parts: tuple[str, ...]
    fetch: int
    timeout: float = 0


def frame(spark: SparkSession, login: Login, scan: JdbcScan) -> DataFrame:
    """Return a data frame with one partition for each part of the scan, read by the executors.

    Spark would quote the columns by what it takes the URL for, and what is no quote to a database is a text to it:
    MariaDB would answer with the names. A scan that groups by nothing leaves the columns as they are given.
    """
    from pyspark.sql import DataFrame

    jvm, gateway = classic(spark), _gateway(spark)
    load(spark, login)
    package = jvm.org.apache.spark.sql.execution.datasources.jdbc
    some = getattr(jvm.scala, "Option").apply  # noqa: B009 - Option is a Java class
    parts = gateway.new_array(jvm.org.apache.spark.Partition, len(scan.parts))
    for number, part in enumerate(scan.parts):
        parts[number] = package.JDBCPartition(part or None, number)
    columns = gateway.new_array(jvm.java.lang.String, len(scan.columns))
    for number, name in enumerate(scan.columns):
        columns[number] = name
    none = gateway.new_array(jvm.java.lang.String, 0)
    predicates = gateway.new_array(jvm.org.apache.spark.sql.connector.expressions.filter.Predicate, 0)
    schema = _schema(jvm, scan.forms)
    options = package.JDBCOptions(jvm.PythonUtils.toScalaMap(_options(jvm, login, scan)))
    metrics = getattr(package.JDBCRDD, "scanTable$default$13")()
    rows = package.JDBCRDD.scanTable(
        spark._jsc.sc(),
        schema,
        columns,
        predicates,
        parts,
        options,
        some(schema),
        some(none),
        some(None),
        0,
        none,
        0,
        metrics,
    )
    return DataFrame(spark._jsparkSession.internalCreateDataFrame(rows, schema, False), spark)


def _gateway(spark: SparkSession) -> Any:
    return spark._sc._gateway


def _options(jvm: Any, login: Login, scan: JdbcScan) -> Any:
    options = jvm.java.util.HashMap()
    ours = {
        "url": login.url,
        "driver": login.driver,
        "dbtable": f"({scan.select}) q",
        "fetchsize": str(scan.fetch),
        "queryTimeout": str(round(scan.timeout)),
    }
    for name, value in {**login.properties, **ours}.items():
        options.put(name, value)
    return options


_THROWN = re.compile(r"(?:^|: |Caused by: )([\w.$]+(?:Exception|Error|Fault)): ([^\n]+)", re.MULTILINE)


def driver_message(error: BaseException) -> str:
    """Return what the driver said, on one line: the outermost SQLException, or the innermost cause if there is none."""
    thrown = _thrown_by(error)
    if not thrown:
        lines = str(error).strip().splitlines()
        return lines[0][:400] if lines else type(error).__name__
    chosen = next((t for t in thrown if t.is_sql), thrown[-1])
    text = " ".join(chosen.text.split())
    is_of_value = (chosen.state or "").startswith("22") or _OF_VALUES.search(text)
    return (without_value(text) if is_of_value else text)[:400]


def is_of_driver(error: BaseException) -> bool:
    """Return True if a driver raised this, False for an error of Spark's own."""
    return any(t.is_sql for t in _thrown_by(error))


def is_lost(error: BaseException) -> bool:
    """Return True if a driver raised this because its connection has ended."""
    thrown = _thrown_by(error)
    first = next((n for n, t in enumerate(thrown) if t.is_sql), len(thrown))
    return any(t.is_connection for t in thrown[first:])


def read_failure(login: Login, error: BaseException, subject: str) -> ReadError:
    """Return the error for what a driver raised while it read: SourceLost if the database has gone. `subject` names
    what was being done."""
    text = login.clean(driver_message(error))
    if is_lost(error):
        hint = "see the server's log and `instep source test`, then run `instep sync` again"
        return SourceLost(f"{subject}: the connection was lost: {text}", hint=hint)
    return ReadError(f"{subject} failed: {text}", hint="check it with `instep source test`, then sync again")


_OF_VALUES = re.compile(r"(?i)\bconver|invalid input|invalid number|out of range|overflow|truncat|incorrect .* value")
"""Parts of errors of drivers that quote a value of a row, whatever SQL state they have."""
_LOST_STATES = ("08", "57P0")
"""Beginnings of the SQL states of a connection that has ended, and of a server that ends it."""
_LOST_CLASSES = re.compile(r"Connection\w*Exception$|\.CommunicationsException$|SQLRecoverableException$")
_NETWORK_CLASSES = re.compile(
    r"^java\.net\.|^javax\.net\.ssl\.|^java\.nio\.channels\.|^java\.io\.(IO|EOF|InterruptedIO)Exception$"
)


@dataclass(frozen=True)
class _Thrown:
    """One Java exception of a chain of causes. `state`: its SQL state, None if it is no SQLException."""

    name: str
    text: str
    state: str | None

    @property
    def is_sql(self) -> bool:
        return self.state is not None

    @property
    def is_connection(self) -> bool:
        if self.state is None:
            return _NETWORK_CLASSES.search(self.name) is not None
        return self.state.startswith(_LOST_STATES) or _LOST_CLASSES.search(self.name) is not None


def _thrown_by(error: BaseException) -> list[_Thrown]:
    """Return a Java exception and its causes, from its text where the JVM no longer has it."""
    return _chain(getattr(error, "java_exception", None)) or [
        _Thrown(name, text, "" if _is_sql_name(name) else None) for name, text in _THROWN.findall(str(error))
    ]


def _is_sql_name(name: str) -> bool:
    return ("SQL" in name or "jdbc" in name.lower()) and "spark" not in name


def _chain(java: Any) -> list[_Thrown]:
    chain: list[_Thrown] = []
    with suppress(Exception):  # the JVM may be gone
        while java is not None and len(chain) < 20:
            name = java.getClass().getName()
            chain.append(_Thrown(name, str(java.getMessage() or name), _sql_state(java)))
            java = java.getCause()
    return chain


def _sql_state(java: Any) -> str | None:
    """Return the SQL state of a Java exception, "" for an SQLException without one, None for any other."""
    try:
        return str(java.getSQLState() or "")
    except Exception:  # it has no such method
        return None
