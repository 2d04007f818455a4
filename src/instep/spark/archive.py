"""A class archive (AppCDS) beside the jars: made once, it halves the start of a session.

It holds for one Java, one list of jars and their times. A damaged archive can kill a JVM, so it is written
under another name, recorded with size and SHA-256 after its JVM has ended, and checked before use.

The folder for what is fetched or made once: jars and class archives.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from instep.errors import SetupError
from instep.private import make_own_folder
from instep.spark.java import Java

DUMP_TO = "INSTEP_ARCHIVE_DUMP"
"""Environment variable: a session started with it writes its classes there when its JVM ends."""

MOST_ARCHIVES = 3
"""Archives in one cache, of 200 MB each: as many environments start quickly beside each other."""


def path_for(java: Java, classpath: Sequence[Path], cache: str = "") -> Path:
    """Return where the archive for this Java and these jars (names, sizes, times, order) is or will be."""
    parts = [str(java.path), java.version]
    for jar in classpath:
        stat = jar.stat()
        parts.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
    return cache_folder(cache) / "archive" / f"{digest}.jsa"


def usable(archive: Path) -> bool:
    """Return whether the archive is there and is what was recorded; one that is not is deleted.

    The hash is computed again only if the file's time or place has changed since it was last checked.
    """
    record = archive.with_suffix(".json")
    try:
        recorded, stat = json.loads(record.read_text()), archive.stat()
        if recorded["size"] == stat.st_size:
            seen = [stat.st_mtime_ns, stat.st_ino]
            if recorded.get("seen") == seen:
                return True
            if sha256_file(archive) == recorded["sha256"]:
                _write(record, {**recorded, "seen": seen})
                return True
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError):
        pass
    discard(archive)
    return False


def discard(archive: Path) -> None:
    """Delete an archive that is not good; the next build makes it anew."""
    for file in (archive.with_suffix(".json"), archive):
        with suppress(OSError):
            file.unlink(missing_ok=True)


def options(archive: Path) -> tuple[str, ...]:
    """Return JVM options that use the archive, or write one in its place when a build asks for it."""
    if target := os.environ.get(DUMP_TO):
        return (f"-XX:ArchiveClassesAtExit={target}", "-Xlog:disable", "-Xlog:all=error")
    if usable(archive):
        return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error")
    return ()


def build_later(cache: str) -> None:
    """Make the archive once this process has ended, unless $INSTEP_ARCHIVE is `off`."""
    if os.environ.get("INSTEP_ARCHIVE") != "off" and DUMP_TO not in os.environ and cache not in _later:
        _later.add(cache)
        atexit.register(build_in_background, cache)


_later: set[str] = set()


def build(java: Java, classpath: Sequence[Path], cache: str = "") -> str:
    """Make the archive unless it is there: "ready", "made" or "being made elsewhere"; raises SetupError."""
    archive = path_for(java, classpath, cache)
    if usable(archive):
        return "ready"
    make_own_folder(archive.parent)
    with _alone(archive) as alone:
        if not alone:
            return "being made elsewhere"
        _make(archive, cache)
    return "made"


def build_in_background(cache: str = "") -> None:
    """Start `build` in a process of its own that outlives this one and yields to everything else."""
    command = [sys.executable, "-m", "instep.spark.jars", "--cache", cache]
    with suppress(OSError):
        subprocess.Popen(
            ["nice", "-n", "19", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _make(archive: Path, cache: str) -> None:
    with tempfile.TemporaryDirectory(prefix="making-", dir=archive.parent) as scratch:
        fresh = Path(scratch) / "classes.jsa"
        command = [sys.executable, "-m", "instep.spark.warm_up", scratch, cache]
        done = subprocess.run(
            command, env={**os.environ, DUMP_TO: str(fresh)}, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode or not fresh.exists():
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise SetupError(
                f"the class archive could not be made: {reason[:300]}", hint="starts stay slower, nothing else"
            )
        _record(fresh, archive)


def _record(fresh: Path, archive: Path) -> None:
    digest, size = sha256_file(fresh), fresh.stat().st_size
    by_age = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime)
    for old in by_age[: 1 - MOST_ARCHIVES]:
        discard(old)
    _write(archive.with_suffix(".json"), {"size": size, "sha256": digest})
    fresh.replace(archive)


def _write(file: Path, record: dict[str, object]) -> None:
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as out:
        json.dump(record, out)
    Path(out.name).replace(file)


@contextmanager
def _alone(archive: Path) -> Iterator[bool]:
    """Try to lock the making of the archive; the system drops the lock when the process ends."""
    with archive.with_suffix(".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def cache_folder(setting: str = "") -> Path:
    """Return the project's setting, else $INSTEP_CACHE, else ~/.cache/instep."""
    chosen = setting or os.environ.get("INSTEP_CACHE", "")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "instep"


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
