"""Sessions: the right settings, no secrets, clear errors, and a JVM that comes back after it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING

import pytest

from instep.errors import SetupError
from instep.spark import archive
from instep.spark.jars import classpath
from instep.spark.java import find_java
from instep.spark.session import (
    PYSPARK_S,
    _cluster,
    _own_interrupts,
    _plain_cluster,
    configuration,
    local_master,
    start,
)
from instep.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = os.cpu_count()


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[*]", f"local[{CORES},4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,2]", "local[3,4]"),
        ("local[3, 9]", "local[3,9]"),
        ("spark://host:7077", ""),
        ("yarn", ""),
        ("local-cluster[1,1,1024]", ""),
    ],
)
def test_local_master(master: str, expected: str) -> None:
    assert local_master(master) == expected


@pytest.mark.parametrize(
    ("master", "conf", "env", "own"),
    [
        ("spark://host:7077", {"spark.executor.memory": "2g"}, {}, True),
        ("spark://host:7077", {"spark.jars.packages": "a:b:1"}, {}, False),
        ("spark://host:7077", {"spark.driver.extraJavaOptions": "-Dx=y"}, {}, False),
        ("spark://host:7077", {}, {"SPARK_CONF_DIR": "/etc/spark"}, False),
        ("yarn", {}, {}, False),
        ("k8s://https://host", {}, {}, False),
    ],
)
def test_whose_jvm_serves_a_cluster(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], env: dict[str, str], own: bool
) -> None:
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert _plain_cluster(master, conf) == own


def test_what_a_cluster_is_given_joins_what_the_user_gave() -> None:
    given = {"spark.jars": "/mine.jar", "spark.driver.extraJavaOptions": "-Dx=y", "spark.task.maxFailures": "9"}
    conf = _cluster(SparkSettings(master="spark://host", jars=("/their.jar",)), given)
    jars = conf["spark.jars"].split(",")
    assert jars[0].rsplit("/", 1)[-1].startswith("iceberg-spark-runtime")
    assert jars[-2:] == ["/their.jar", "/mine.jar"]
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Dx=y")
    assert conf["spark.task.maxFailures"] == "9"


WITHOUT_GRPC = """
import sys
sys.modules["grpc"] = None
from instep.errors import SetupError
from instep.spark.session import start
from instep.spark.settings import SparkSettings
try:
    start(SparkSettings(remote="sc://127.0.0.1:9/;token=hush"))
except SetupError as error:
    print(error)
"""


def test_ctrl_c_while_spark_starts_is_an_interrupt_and_no_error_of_spark() -> None:
    """As pyspark does it: a handler that calls the JVM, from within the call that it interrupts."""

    def asks_the_jvm(*_: object) -> None:
        raise RuntimeError("the answer is another one's")

    as_pyspark = FunctionType(asks_the_jvm.__code__.replace(co_name=PYSPARK_S), {"RuntimeError": RuntimeError})

    def interrupted() -> None:
        with _own_interrupts():
            signal.signal(signal.SIGINT, as_pyspark)
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert signal.getsignal(signal.SIGINT) is before


KEEPS = """
import signal
from instep.spark.session import start, stop
from instep.spark.settings import SparkSettings
before = signal.getsignal(signal.SIGINT)
spark = start(SparkSettings(master="local[1]", driver_memory="512m"))
print(signal.getsignal(signal.SIGINT) is before)
stop(spark)
"""


@pytest.mark.slow
def test_a_session_leaves_ctrl_c_to_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", KEEPS], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True"], done.stderr


def test_connect_without_its_packages() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_GRPC], capture_output=True, text=True)
    assert "Spark Connect needs packages that are not installed" in done.stdout, done.stderr
    assert "pip install 'instep[connect]'" in done.stdout
    assert "hush" not in done.stdout + done.stderr


class TestConfiguration:
    def test_what_every_session_has(self) -> None:
        conf = configuration(SparkSettings())
        assert {
            k: conf[k] for k in conf if k.startswith(("spark.sql.store", "spark.sql.ansi", "spark.sql.session"))
        } == {
            "spark.sql.storeAssignmentPolicy": "STRICT",
            "spark.sql.ansi.enabled": "true",
            "spark.sql.session.timeZone": "UTC",
        }
        assert (conf["spark.ui.enabled"], conf["spark.speculation"]) == ("false", "false")
        assert conf["spark.driver.bindAddress"] == "127.0.0.1"

    def test_a_cluster_binds_where_its_workers_reach_it(self) -> None:
        conf = configuration(SparkSettings(master="spark://host:7077"))
        assert "spark.driver.bindAddress" not in conf
        assert "spark.python.daemon.module" not in conf

    def test_connect_takes_session_settings_only(self) -> None:
        assert set(configuration(SparkSettings(remote="sc://host"))) == {
            "spark.sql.storeAssignmentPolicy", "spark.sql.ansi.enabled", "spark.sql.session.timeZone",
            "spark.sql.execution.arrow.maxRecordsPerBatch",
        }  # fmt: skip

    @pytest.mark.parametrize("form", ["", "spark.sql.catalog.lake"])
    def test_catalogs(self, form: str) -> None:
        keys = {f"{form}{'.' if form else ''}uri": "u", (form or ""): "Catalog"}
        conf = configuration(SparkSettings(catalogs={"lake": keys}))
        assert conf["spark.sql.catalog.lake"] == "Catalog"
        assert conf["spark.sql.catalog.lake.uri"] == "u"

    def test_own_settings_win(self) -> None:
        assert configuration(SparkSettings(conf={"spark.ui.enabled": "true"}))["spark.ui.enabled"] == "true"

    @pytest.mark.parametrize(
        ("key", "refused"),
        [
            ("spark.sql.catalog.lake.s3.secret-access-key", True),
            ("spark.sql.catalog.lake.s3.access-key-id", True),
            ("spark.sql.catalog.lake.token", True),
            ("spark.sql.catalog.lake.credential", True),
            ("spark.hadoop.fs.azure.account-key", True),
            ("spark.authenticate.secret", True),
            ("spark.kubernetes.authenticate.oauthTokenFile", False),
            ("spark.sql.catalog.token_lake.uri", False),
        ],
    )
    def test_secrets_are_refused(self, key: str, refused: bool) -> None:
        settings = SparkSettings(conf={key: "hush"})
        if not refused:
            assert configuration(settings)[key] == "hush"
            return
        with pytest.raises(SetupError, match="looks like a secret") as caught:
            configuration(settings)
        assert "hush" not in str(caught.value)


def test_a_jar_that_is_not_there() -> None:
    with pytest.raises(SetupError, match=r"the jar /nowhere\.jar does not exist"):
        classpath(extra=("/nowhere.jar",))


def test_own_jars_come_first() -> None:
    names = [path.name for path in classpath()]
    assert names[0].startswith("iceberg-spark-runtime")
    assert names[2:] == sorted(names[2:])


@pytest.mark.spark
class TestRunning:
    def test_settings_hold(self, spark_session: SparkSession) -> None:
        conf = spark_session.conf
        assert conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark_session.sparkContext.master == "local[2,4]"
        assert spark_session.sparkContext.uiWebUrl is None
        assert spark_session.sql("SELECT timestamp '2024-07-01 12:00:00' = timestamp '2024-07-01 12:00:00Z'").first()[0]

    def test_a_second_start_is_the_same_session(self, spark_session: SparkSession) -> None:
        again = start(SparkSettings(conf={"spark.sql.shuffle.partitions": "3"}))
        assert again.sparkContext is spark_session.sparkContext
        assert again.conf.get("spark.sql.shuffle.partitions") == "3"

    def test_nothing_secret_is_left_in_the_environment(self, spark_session: SparkSession) -> None:
        assert not [name for name in os.environ if name.startswith("PYSPARK_GATEWAY")]

    def test_iceberg_and_sqlite_are_there(self, spark_session: SparkSession, tmp_path: Path) -> None:
        session = spark_session.newSession()
        prefix = "spark.sql.catalog.probe"
        for key, value in {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            ".uri": f"jdbc:sqlite:{tmp_path}/c.db",
            ".jdbc.schema-version": "V1",
            ".warehouse": str(tmp_path / "w"),
        }.items():
            session.conf.set(prefix + key, value)
        session.sql("CREATE NAMESPACE probe.n")
        session.sql("CREATE TABLE probe.n.t (id BIGINT) USING iceberg")
        session.sql("INSERT INTO probe.n.t SELECT id FROM range(5)")
        session.sql("MERGE INTO probe.n.t t USING (SELECT 9L AS id) s ON t.id <=> s.id WHEN NOT MATCHED THEN INSERT *")
        assert session.table("probe.n.t").count() == 6

    def test_a_connect_server_that_is_not_there(self) -> None:
        with pytest.raises(SetupError, match=r"the Spark server at sc://127\.0\.0\.1:9 does not answer"):
            start(SparkSettings(remote="sc://127.0.0.1:9"))


ALONE = textwrap.dedent(
    """
    import os, signal, sys
    from instep.errors import SetupError
    import instep.spark.session as session
    import atexit
    from instep.spark.session import end, start, stop
    from instep.spark.settings import SparkSettings
    settings = SparkSettings(master="local[1]", driver_memory=sys.argv[1])
    try:
        spark = start(settings)
        print(spark.range(3).count())
        if sys.argv[2:] == ["once"]:
            sys.exit()
        os.kill(session._jvm.process.pid, signal.SIGKILL)
        session._jvm.process.wait()
        print(start(settings).range(4).count())
        stop(start(settings))
        print(session._jvm)
        for n in range(2):
            atexit.register(end, start(settings))
        atexit.register(end, spark)
        print(start(settings).range(5).count())
        if sys.argv[2:]:
            stop(start(settings))
    except SetupError as error:
        print(error)
    """
)


def alone(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ALONE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "INSTEP_ARCHIVE": "off", **env})


def with_archive(folder: Path) -> tuple[Path, Path]:
    """A cache with this machine's jars and an archive that is none; (cache, archive)."""
    cache = folder / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(classpath()[0].parent)
    made = archive.path_for(find_java(), classpath(str(cache)), str(cache))
    made.parent.mkdir()
    (folder / "fresh").write_bytes(b"not classes" * 1000)
    archive._record(folder / "fresh", made)
    return cache, made


@pytest.mark.spark
class TestAlone:
    """In processes of their own."""

    @pytest.mark.sampled
    @pytest.mark.slow
    @pytest.mark.parametrize("at_the_end", [[], ["stop"]], ids=["ended at exit", "stopped before"])
    def test_a_jvm_that_died_or_was_stopped_is_replaced_and_nothing_is_said(
        self, tmp_path: Path, at_the_end: list[str]
    ) -> None:
        done = alone(
            "512m",
            *at_the_end,
            HOME=str(tmp_path),
            INSTEP_CACHE=os.environ.get("INSTEP_CACHE") or str(Path.home() / ".cache/instep"),
        )
        assert done.stdout.split() == ["3", "4", "None", "5"]
        assert done.stderr == ""

    def test_too_much_memory_is_told(self) -> None:
        done = alone("900000g")
        assert "before Spark could start" in done.stdout
        assert "spark.driver_memory" in done.stdout

    def test_a_jvm_that_ends_for_another_reason_costs_no_archive(self, tmp_path: Path) -> None:
        cache, made = with_archive(tmp_path)
        alone("900000g", INSTEP_CACHE=str(cache))
        assert made.exists()

    @pytest.mark.slow
    def test_a_harmed_archive_costs_only_time(self, tmp_path: Path) -> None:
        """Its record is made to agree, so that only the JVM can notice. Some JVMs end over it, and some ignore it."""
        cache, made = with_archive(tmp_path)
        used = (f"-XX:SharedArchiveFile={made}", "-Xshare:auto", "-version")
        ends = subprocess.run([find_java().path, *used], capture_output=True).returncode != 0
        done = alone("512m", "once", INSTEP_CACHE=str(cache))
        assert done.stdout.split() == ["3"], done.stderr
        assert made.exists() is not ends
