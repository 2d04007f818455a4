"""Large work on the files of a table in parts: by tasks of Spark, or one after the other in this process.

What a part of a rewrite has written is recorded beside its files, so that the next run continues where one was killed.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import FileWorkers
from instep.errors import Conflict, IllegalChange
from instep.stage.files.place import StorageFolder, children, clear_errors, delete_files
from instep.stage.partition import Partition
from instep.stage.spec import StagedFile
from instep.stage.task import ChunkProgress, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_ROWS, PART_BYTES = 4_000_000, 256 << 20
"""Limits of what is read for one part of a rewrite, if it is more than one file. They do not depend on the engine, so
that either goes on with what the other has left."""
HERE_BYTES = 512 << 20
"""The most bytes of a table that are worked on in this process alone."""
Progress = Callable[[int, int], None]
"""Hears rows and bytes so far."""


def is_large(rows: int, size: int, limit: int) -> bool:
    """Return whether work on so many rows and bytes is for tasks of Spark; `limit` is the setting, in rows."""
    return rows > limit or size > HERE_BYTES


def grouped(sizes: Sequence[tuple[int, int]], rows: int, size: int, wide: int = 1) -> list[range]:
    """Return runs of neighbours whose (rows, bytes) add up to no more than these, and to no more than a share if there
    are to be `wide` of them."""
    rows = min(rows, max(-(-sum(r for r, _ in sizes) // wide), 1)) if wide > 1 else rows
    runs, start, own = list[range](), 0, (0, 0)
    for at, (count, weight) in enumerate(sizes):
        if at > start and (own[0] + count > rows or own[1] + weight > size):
            runs.append(range(start, at))
            start, own = at, (0, 0)
        own = own[0] + count, own[1] + weight
    return [*runs, range(start, len(sizes))] if sizes else []


def rewrite_groups(sizes: Sequence[tuple[int, int]], limit: int) -> list[range]:
    """Return the parts of a rewrite, by (rows, bytes) of its files; a part has no more rows than `limit`, the setting,
    if it is more than one file."""
    return grouped(sizes, min(PART_ROWS, max(limit, 1)), PART_BYTES)


def run_tasks(
    session: SparkSession | None,
    work: Callable[..., Any],
    tasks: Sequence[Any],
    what: str,
    on_progress: Progress | None = None,
) -> list[Any]:
    """Return the results in the order of the tasks, which run in Spark, or here without a session."""
    if session is not None:
        from instep.spark.extract import run_parts

        def count(counts: Mapping[str, tuple[int, int]]) -> None:
            if on_progress:
                on_progress(*(sum(count[at] for count in counts.values()) for at in (0, 1)))

        return run_parts(session, work, tasks, count, what)
    so_far = [(0, 0)] * len(tasks)

    def report(number: int) -> Report | None:
        def hear(progress: ChunkProgress) -> None:
            so_far[number] = progress.rows, progress.bytes
            if on_progress:
                on_progress(*(sum(progress_of[at] for progress_of in so_far) for at in (0, 1)))

        return hear if on_progress else None

    return [work(task, 0, report(number)) for number, task in enumerate(tasks)]


def digest(*facts: Any) -> str:
    """Return a name for what these facts say."""
    return sha256(repr(facts).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class RewriteArea:
    """The folder of a rewrite in parts, named by all that the parts have in common. Runs that follow one another, and
    one that is late, work in it: each deletes files of its own only, until a commit has landed."""

    folder: StorageFolder
    run: str

    @property
    def _own(self) -> str:
        return f"{re.sub(r'[^A-Za-z0-9]+', '-', self.run)[:64]}-"

    def record(self, key: str, files: Sequence[StagedFile]) -> None:
        """Record that the part `key` is finished."""
        text = json.dumps([{**asdict(f), "footer": _text(f.footer), "partition": _plain(f.partition)} for f in files])
        file = self.folder.create(f"{self._own}{key}-{uuid.uuid4().hex[:8]}.json")
        with clear_errors(file.uri):
            file.sink.write(text.encode())
        file.finish()

    def finished(self) -> dict[str, tuple[StagedFile, ...]]:
        """Return the files of the parts that are finished and all there."""
        names = set(children(self.folder.uri, self.folder.io))
        parts = dict[str, tuple[StagedFile, ...]]()
        for name in (n for n in names if n.endswith(".json")):
            files = self._read(name)
            if files is not None and all(self._name(f) in names for f in files):
                parts[name.rsplit("-", 2)[-2]] = files
        return parts

    def _name(self, file: StagedFile) -> str:
        """Return the name of a file in the folder, "" for one that is elsewhere."""
        name = file.path.rpartition("/")[2]
        return name if file.path == self.folder.child(name) else ""

    def _read(self, name: str) -> tuple[StagedFile, ...] | None:
        """Return the files of a record; None for one whose writer was killed, or was another version's."""
        filesystem, path = self.folder.resolve(name)
        try:
            with filesystem.open_input_stream(path) as stream:
                records = json.loads(stream.read())
            return tuple(
                StagedFile(**{**r, "footer": base64.b64decode(r["footer"]), "partition": _partition(r["partition"])})
                for r in records
            )
        except (OSError, ValueError, TypeError, KeyError, pa.ArrowInvalid):
            return None

    def check(self, files: Sequence[StagedFile]) -> None:
        """Raise Conflict if files that are about to be committed have gone: those of an earlier run may be orphans to
        others."""
        names = set(children(self.folder.uri, self.folder.io))
        if any(self._name(f) not in names for f in files):
            raise Conflict(f"files of an earlier run have gone from {self.folder.uri}", hint="run this again")

    def clear(self, landed: Sequence[str] | None = None) -> None:
        """Delete all but the files that have `landed`; without them, what this run has written."""
        names = children(self.folder.uri, self.folder.io)
        stay = {path.rpartition("/")[2] for path in landed or ()}
        gone = [n for n in names if n not in stay and (landed is not None or n.startswith(self._own))]
        delete_files(self.folder.uri, self.folder.io, gone)

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Delete what this run has written if the block finds values that do not fit: they will not the next time."""
        try:
            yield
        except IllegalChange:
            self.clear()
            raise


@dataclass(frozen=True)
class _RecordedPart:
    key: str
    part: Any
    write: Callable[[Any, int, Report | None], Sequence[StagedFile]]
    area: RewriteArea = field(repr=False)


def _write_recorded(recorded_part: _RecordedPart, attempt: int, report: Report | None) -> Sequence[StagedFile]:
    files = recorded_part.write(recorded_part.part, attempt, report)
    recorded_part.area.record(recorded_part.key, files)
    crashpoint("rewrite.part")
    return files


def write_parts(
    area: RewriteArea,
    parts: Mapping[str, Any],
    write: Callable[[Any, int, Report | None], Sequence[StagedFile]],
    workers: FileWorkers,
    *,
    large: bool,
) -> list[StagedFile]:
    """Return the files that `write` makes of the parts, in their order; those that an earlier run has finished are not
    written again. `parts` are known by all that their files follow from."""
    files_of = {key: files for key, files in area.finished().items() if key in parts}
    left = [_RecordedPart(key, part, write, area) for key, part in parts.items() if key not in files_of]
    finished = [f for files in files_of.values() for f in files]
    rows, size = sum(f.rows for f in finished), sum(f.bytes for f in finished)
    session = workers.session() if left and large else None
    written = run_tasks(session, _write_recorded, left, "rewrite", lambda r, b: workers.on_progress(rows + r, size + b))
    files_of |= {recorded.key: files for recorded, files in zip(left, written, strict=True)}
    files = [f for key in parts for f in files_of[key]]
    area.check(files)
    return files


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _plain(partition: Partition | None) -> list[Any] | None:
    """Return a partition as JSON has it; values that it has no form for with the name of their type."""
    if partition is None:
        return None
    return [partition.spec, [_tagged(v) for v in partition.values]]


def _tagged(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case bytes():
            return ["bytes", value.hex()]
        case float():
            return ["float", value.hex()]
        case Decimal():
            return ["decimal", str(value)]
    raise TypeError(f"no partition has a value of {type(value).__name__}")


_UNTAGGED: Mapping[str, Callable[[str], Any]] = {"bytes": bytes.fromhex, "float": float.fromhex, "decimal": Decimal}


def _partition(document: Any) -> Partition | None:
    if document is None:
        return None
    spec, values = document
    return Partition(spec, tuple(_UNTAGGED[v[0]](v[1]) if isinstance(v, list) else v for v in values))
