"""The jars that Spark needs beside its own: pinned, fetched once by Spark's resolver, verified, kept in a cache.

`python -m instep.spark.jars` fetches them and makes the class archive that shortens later starts.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from instep.errors import InstepError, SetupError
from instep.private import make_own_folder
from instep.spark import archive
from instep.spark.archive import cache_folder, sha256_file
from instep.spark.java import Jvm, find_java, launch


@dataclass(frozen=True)
class Jar:
    """A jar by its Maven coordinates and content."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


ICEBERG = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.11.0",
    "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242",
)
SQLITE = Jar(
    "org.xerial",
    "sqlite-jdbc",
    "3.50.3.0",
    "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
)
PINNED = (ICEBERG, SQLITE)
DELTA = (
    Jar(
        "io.delta",
        "delta-spark_4.1_2.13",
        "4.4.0",
        "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    ),
    Jar("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)
"""For Spark as a reader of Delta tables; our own tasks and commits need none of them."""
S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
ADLS_IO = "org.apache.iceberg.azure.adlsv2.ADLSFileIO"
AZURE = "iceberg-azure-bundle"
"""The jar with what `ADLS_IO` needs, which is the user's to add."""
AWS = Jar(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    "1.11.0",
    "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f",
)
"""For Spark as a writer of tables in S3: 60 MB, so only where a catalog's files are read by `S3_IO`."""


def ensure(jars: Sequence[Jar] = PINNED, cache: str = "") -> tuple[Path, ...]:
    """Return the jars' files in order, fetched if they are not there; raises SetupError.

    A jar that is there was verified when it came; it is verified again if its size or time has changed.
    """
    folder = cache_folder(cache) / "jars"
    missing = [jar for jar in jars if not _verified(folder / jar.file, jar)]
    if missing:
        fetch(missing, folder)
    return tuple(folder / jar.file for jar in jars)


def _verified(file: Path, jar: Jar) -> bool:
    mark = file.with_suffix(".verified")
    if not file.exists():
        return False
    stat = file.stat()
    mark_text = f"{jar.sha256} {stat.st_size} {stat.st_mtime_ns}"
    if mark.exists() and mark.read_text() == mark_text:
        return True
    if sha256_file(file) != jar.sha256:
        return False
    mark.write_text(mark_text)
    return True


def fetch(jars: Sequence[Jar], folder: Path) -> None:
    """Resolve `jars` into `folder`, each verified before it takes its place; raises SetupError."""
    try:
        make_own_folder(folder)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
            paths = _resolve(jars, Path(scratch))
            for jar in jars:
                _adopt(jar, paths, folder)
    except OSError as error:
        raise SetupError(
            f"the jars cannot be kept in {folder}: {error.strerror}",
            hint="set INSTEP_CACHE to a folder with 200 MB free",
        ) from error


def _adopt(jar: Jar, paths: Iterable[Path], folder: Path) -> None:
    file = next((f for f in paths if f.name.endswith(jar.file)), None)
    if file is None:
        raise SetupError(f"the resolver did not bring {jar.coordinates}", hint=_HINT)
    if (digest := sha256_file(file)) != jar.sha256:
        raise SetupError(
            f"{jar.coordinates} is not the pinned file: SHA-256 {digest[:16]}… instead of {jar.sha256[:16]}…",
            hint="a repository or proxy on the way serves another file: do not use it",
        )
    file.replace(folder / jar.file)
    _verified(folder / jar.file, jar)


_HINT = "check the network (behind a mirror set DEFAULT_ARTIFACT_REPOSITORY to its URL), then run `make setup` again"


def _resolve(jars: Sequence[Jar], scratch: Path) -> list[Path]:
    """Resolve the jars with Spark's own resolver, in a JVM of its own, into `scratch`."""
    jvm = launch(find_java(), spark_jars(), ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))
    try:
        return _ask(jvm, ",".join(jar.coordinates for jar in jars), scratch)
    finally:
        jvm.close(timeout=10)


def _ask(jvm: Jvm, coordinates: str, scratch: Path) -> list[Path]:
    from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=jvm.port, auth_token=jvm.secret))
    try:
        java, option = gateway.jvm, getattr(gateway.jvm.scala, "Option")  # noqa: B009 - Option is a Java class
        output = java.java.io.PrintStream(java.java.io.ByteArrayOutputStream())
        resolver = java.org.apache.spark.util.MavenUtils
        cached, fresh = (
            resolver.buildIvySettings(option.apply(None), option.apply(str(scratch)), use, output)
            for use in (True, False)
        )
        none = java.scala.collection.immutable.List.newBuilder().result()
        paths = resolver.resolveMavenCoordinates(coordinates, cached, option.apply(fresh), False, none, False, output)
        return [Path(paths.apply(at)) for at in range(paths.size())]
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).strip().replace("\n", " ")
        raise SetupError(f"the jars cannot be fetched: {reason[:400]}", hint=_HINT) from None
    finally:
        gateway.shutdown()


def spark_jars() -> list[Path]:
    """Return the jars that come with pyspark, in an order that does not change."""
    spec = importlib.util.find_spec("pyspark")  # not imported: the JVM can start meanwhile
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("pyspark is not installed", hint="install instep's dependencies: `make setup`")
    home = Path(os.environ.get("SPARK_HOME") or spec.submodule_search_locations[0])
    return sorted((home / "jars").glob("*.jar"))


def classpath(cache: str = "", extra: tuple[str, ...] = ()) -> list[Path]:
    """Return the jars of a local session, ours first: the archive is valid for exactly this list."""
    for jar in extra:
        if not Path(jar).is_file():
            raise SetupError(f"the jar {jar} does not exist", hint="correct spark.jars in instep.yml")
    return [*ensure(cache=cache), *map(Path, extra), *spark_jars()]


def stores(conf: Mapping[str, str], cache: str = "", extra: Sequence[str] = ()) -> list[Path]:
    """Return the jars for the object stores that these Spark settings name: last on the class path, so that the archive
    of those before them holds. SetupError if tables in Azure need a jar that is not among `extra`."""
    if ADLS_IO in conf.values() and not any(Path(jar).name.startswith(AZURE) for jar in extra):
        raise SetupError(
            f"Spark cannot read tables in Azure without the jar {AZURE}",
            hint=f"fetch org.apache.iceberg:{AZURE}:{ICEBERG.version} and name it in spark.jars of instep.yml",
        )
    return [*ensure([AWS], cache)] if S3_IO in conf.values() else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the console entry: exit code 0, or 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="python -m instep.spark.jars", description="fetch the pinned jars once")
    parser.add_argument(
        "--cache", default="", help="folder to keep them in (default: $INSTEP_CACHE or ~/.cache/instep)"
    )
    parser.add_argument("--no-archive", action="store_true", help="do not make the class archive")
    chosen = parser.parse_args(arguments)
    try:
        files = ensure(cache=chosen.cache)
        print(f"jars: {len(files)} in {files[0].parent}")
        if not chosen.no_archive:
            path = archive.build(find_java(), classpath(chosen.cache), chosen.cache)
            print(f"class archive: {path}")
    except InstepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
