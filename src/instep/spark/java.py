"""Finds Java and starts the JVM that Spark runs in: directly, without the two shell and Java launchers."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from instep.allocators import callers_environment
from instep.errors import SetupError
from instep.temporary import TemporaryFolder

MINIMUM = 17
INSTALL = (
    f"install Java {MINIMUM} or newer (Debian: apt-get install openjdk-17-jre-headless), "
    "or set JAVA_HOME to one that is there, or `engine: local` in instep.yml (INSTEP_ENGINE=local), which needs none"
)
_OPENED = [
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
]
LOGGING = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
"""Nothing but errors."""
SPARK_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",
    LOGGING,
)


@dataclass(frozen=True)
class Java:
    """An installed Java: its launcher and full version."""

    path: Path
    version: str


def find_java() -> Java:
    """Return JAVA_HOME's Java or the one on the PATH; raises SetupError if there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not program or not Path(program).exists():
        where = f"JAVA_HOME ({home}) has no bin/java" if home else "Java was not found on the PATH"
        raise SetupError(f"{where}; Spark needs Java {MINIMUM} or newer", hint=INSTALL)
    path = Path(program).resolve()
    version = _version(path)
    major = int(re.split(r"[.\-+_]", version.removeprefix("1."))[0] or 0)
    if major < MINIMUM:
        raise SetupError(f"Java {version} ({path}) is too old; Spark needs {MINIMUM} or newer", hint=INSTALL)
    return Java(path, version)


def _version(java: Path) -> str:
    """Return Java's version from the release file, or by running it (which starts a JVM)."""
    with suppress(OSError):
        if match := re.search(r'^JAVA_VERSION="([^"]+)"', (java.parents[1] / "release").read_text(), re.MULTILINE):
            return match[1]
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(f"{java} does not run: {error}", hint=INSTALL) from error
    match = re.search(r'version "([^"]+)"', output)
    return match[1] if match else "0"


@dataclass
class Jvm:
    """A running JVM with a gateway on loopback; it ends with this process, however that ends."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str = field(repr=False)
    output: IO[bytes] = field(repr=False)
    folder: TemporaryFolder = field(repr=False)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def leave(self) -> None:
        """Let the JVM end by itself, without waiting: for the end of this process."""
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()

    def close(self, timeout: float = 60) -> None:
        """Ask the JVM to end and wait for it; kills it after `timeout` seconds."""
        self.leave()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()
        self.folder.close()


class JvmExited(SetupError):
    """The JVM ended before it was ready."""


def launch(java: Java, classpath: Sequence[Path], options: Sequence[str], env: Mapping[str, str] | None = None) -> Jvm:
    """Start a JVM with a Python gateway; raises JvmExited with what it said last.

    It ends with its standard input. Until it has said where it listens it does not if its folder is gone: so it is
    killed where this process ends before that, and holds the folder where this process is killed.
    """
    folder = TemporaryFolder("jvm")
    info, output = Path(folder.path, "gateway"), tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the JVM
    command = [
        str(java.path),
        "-cp",
        ":".join(map(str, classpath)),
        f"-Djava.io.tmpdir={folder.path}",
        *SPARK_OPTIONS,
        *options,
        "org.apache.spark.api.python.PythonGatewayServer",
    ]
    environment = {
        **callers_environment(),
        **(env or {}),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
        "SPARK_CONNECT_MODE": "0",
    }
    try:
        # A process group of its own: Ctrl-C reaches the driver only, which ends the JVM.
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            process_group=0,
            pass_fds=(folder.lock,),
        )
        with _killed_unless_ready(process):
            port, secret = _gateway(process, info, output)
    except BaseException:
        output.close()
        folder.close()
        raise
    info.unlink(missing_ok=True)
    return Jvm(process, port, secret, output, folder)


@contextmanager
def _killed_unless_ready(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a program if this block fails, or if this process ends meanwhile."""
    atexit.register(process.kill)
    try:
        yield
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        atexit.unregister(process.kill)


def output_tail(output: IO[bytes]) -> str:
    """Return the end of what a JVM and its workers wrote; its own place in the file is left alone."""
    size = os.fstat(output.fileno()).st_size
    return os.pread(output.fileno(), 10_000, max(0, size - 10_000)).decode(errors="replace").strip()


def _gateway(process: subprocess.Popen[bytes], info: Path, output: IO[bytes]) -> tuple[int, str]:
    """Return (port, secret) once the JVM has written them."""
    while not info.exists():
        if process.poll() is not None:
            tail = " | ".join(output_tail(output).splitlines()[-3:])[:600]
            if process.stdin:
                process.stdin.close()
            raise JvmExited(
                f"Java ended with exit code {process.returncode} before Spark could start: {tail or 'it said nothing'}",
                hint="check that memory is free (spark.driver_memory in instep.yml), then `instep doctor`",
            )
        time.sleep(0.01)
    data = info.read_bytes()
    port, length = struct.unpack("!ii", data[:8])
    return int(port), data[8 : 8 + length].decode()
