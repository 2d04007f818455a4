"""A real Spark on this machine, in processes that share nothing with the tests but the disk: Spark's own classes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from instep.spark.jars import ensure, spark_jars
from instep.spark.java import SPARK_OPTIONS, find_java

_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile("Successfully registered with master")
_LISTENS = re.compile(r"Spark Connect server started at: \S+:(\d+)")
_RAN = re.compile(r"Finished task \d+\.\d+ in stage")
_PLACES = {"TMPDIR": "tmp", "HOME": "home", "SPARK_LOCAL_DIRS": "scratch"}


@dataclass
class Process:
    """One JVM of a cluster in a `folder` of its own: current directory, HOME, TMPDIR and scratch space."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def wait_for(self, pattern: re.Pattern[str], seconds: float = 600) -> re.Match[str]:
        """What its log says first that fits."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and self.process.poll() is None:
            if found := pattern.search(self.log):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{pattern.pattern} was not said:\n{self.log[-3000:]}")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(folder: Path, main: Sequence[str], memory: str = "256m", jars: Sequence[Path] = (), **env: str) -> Process:
    """A JVM whose environment is the system's and `env`, nothing of the caller's."""
    places = {name: folder / part for name, part in _PLACES.items()}
    for place in places.values():
        place.mkdir(parents=True)
    plain = {name: os.environ[name] for name in ("PATH", "LANG", "JAVA_HOME") if name in os.environ}
    command = [
        str(find_java().path),
        "-cp",
        ":".join([*map(str, jars), f"{spark_jars()[0].parent}/*"]),
        *_options(memory),
        *main,
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**plain, **{n: str(p) for n, p in places.items()}, "SPARK_LOCAL_IP": "127.0.0.1", **env},
        )  # fmt: skip
    return Process(folder, process)


QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Of a JVM that lives for a minute: it compiles little."""


def _options(memory: str) -> list[str]:
    quiet = [o for o in SPARK_OPTIONS if "log4j2" not in o]
    return [*quiet, f"-Xmx{memory}", *QUICK]


def environment(folder: Path) -> Path:
    """Another environment with the same packages but without instep; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    packages = next((folder / "lib").glob("python*/site-packages"))
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "instep" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    return python


def archive(folder: Path) -> Path:
    """`environment` as an archive that Spark brings to its executors."""
    environment(folder)
    packed = folder.with_suffix(".tar.gz")
    subprocess.run(["tar", "-czf", packed, "-C", folder, "."], check=True)
    return packed


@dataclass
class Worker(Process):
    """A worker's process; its executors have folders below `work`."""

    def logs(self) -> list[str]:
        return [log.read_text(errors="replace") for log in self.folder.glob("work/app-*/*/stderr")]

    def started(self) -> int:
        """How many tasks its executors have begun."""
        return sum(log.count("Executor: Running task") for log in self.logs())

    def finished(self) -> int:
        """How many tasks its executors have finished."""
        return sum(len(_RAN.findall(log)) for log in self.logs())


@dataclass
class Standalone:
    """A master and workers of one core each."""

    folder: Path
    workers: list[Worker] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> Standalone:
        self.master = start(
            self.folder / "master",
            ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"],
        )
        self.url = self.master.wait_for(_STARTED)[1]
        return self

    def add_workers(self, *names: str, memory: str = "1g", quick: bool = True) -> None:
        """Workers that have registered; `quick`: their executors live for a minute, too."""
        home = str(spark_jars()[0].parents[1])
        for name in names:
            folder = self.folder / name
            main = [
                "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1",
                "--memory", memory, "--work-dir", str(folder / "work"), self.url,
            ]  # fmt: skip
            executors = {"JAVA_TOOL_OPTIONS": " ".join(QUICK)} if quick else {}  # the environment of their worker
            begun = start(folder, main, SPARK_HOME=home, SPARK_SCALA_VERSION="2.13", **executors)
            self.workers.append(Worker(begun.folder, begun.process))
        for worker in self.workers:
            worker.wait_for(_REGISTERED)

    def __exit__(self, *_: object) -> None:
        for process in [*self.workers, self.master]:
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class ConnectServer:
    """A Spark Connect server with Iceberg on its class path, as its operators would set it up."""

    folder: Path
    python: Path
    url: str = ""

    def __enter__(self) -> ConnectServer:
        extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        settings = {
            "spark.master": "local[2,4]", "spark.ui.enabled": "false", "spark.sql.extensions": extensions,
            "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0",
        }  # fmt: skip
        main = ["org.apache.spark.sql.connect.service.SparkConnectServer"]
        options = [f"-D{key}={value}" for key, value in settings.items()]
        self.server = start(
            self.folder / "connect", [*options, *main], "1g", ensure(),
            SPARK_HOME=str(spark_jars()[0].parents[1]), PYSPARK_PYTHON=str(self.python),
        )  # fmt: skip
        found = self.server.wait_for(_LISTENS)
        self.url = f"sc://127.0.0.1:{found[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
