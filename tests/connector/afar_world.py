"""A connector in the task of another process, as Spark runs it: tried again when the process is killed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sdk_world import Sync, World

from instep.errors import InstepError, StageError
from instep.sources.connector.cluster.runner import Cluster, RemoteSegments
from instep.sources.connector.cluster.task import Assignment
from instep.sources.connector.segment import read_manifest
from instep.stage.files.place import StorageFolder

_TASK = """
import pickle, sys
from instep.sources.connector.cluster.task import perform
perform(*pickle.load(sys.stdin.buffer))
"""
ATTEMPTS = 4


@dataclass
class Machines:
    """Where tasks run: processes of this machine, in folders of their own. `tasks` are those of all attempts, and
    `descriptions` what travelled to them."""

    place: StorageFolder
    folder: Path
    tasks: list[subprocess.Popen[bytes]] = field(default_factory=list)
    descriptions: list[bytes] = field(default_factory=list)

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.place, self._run)

    def _run(self, work: Assignment, tick: Callable[[], None]) -> None:
        for attempt in range(ATTEMPTS):
            task = self.start(work, attempt)
            try:
                while task.poll() is None:
                    tick()
                    time.sleep(0.05)
                if task.returncode == 0:
                    return
            finally:
                task.kill()
                task.wait()
        raise StageError(f"the task failed {ATTEMPTS} times")

    def start(self, work: Assignment, attempt: int) -> subprocess.Popen[bytes]:
        home = self.folder / f"machine-{attempt}"
        home.mkdir(parents=True, exist_ok=True)
        environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "TMPDIR": str(home), "PATH": "/usr/bin:/bin"}
        task = subprocess.Popen([sys.executable, "-c", _TASK], stdin=subprocess.PIPE, cwd=home, env=environment)
        self.tasks.append(task)
        assert task.stdin is not None
        self.descriptions.append(pickle.dumps((work, attempt)))
        task.stdin.write(self.descriptions[-1])
        task.stdin.close()
        return task


@dataclass
class Afar:
    """Syncs of a world's connectors on machines; `each` is called with the run at every segment."""

    world: World
    machines: Machines

    def begin(
        self, code: str | Path, sync: Sync, state: Mapping[str, Any] | None = None, **said: Any
    ) -> RemoteSegments:
        config = self.world.config(code, **said)
        spool = str(self.world.folder / "taken")
        return RemoteSegments(config, spool, state or {}, sync.told.append, sync.logs.append, self.machines.cluster)

    def sync(
        self,
        code: str | Path,
        state: Mapping[str, Any] | None = None,
        each: Callable[[Sync], None] = lambda _: None,
        **settings: Any,
    ) -> Sync:
        sync = Sync()
        try:
            segments = self.begin(code, sync, state, **settings)
            try:
                while (segment := segments.next()) is not None:
                    assert read_manifest(segment.folder) == segment
                    sync.segments.append(segment)
                    each(sync)
                    segments.acknowledge(segment)
            finally:
                segments.close()
        except InstepError as error:
            sync.error = error
        return sync

    def left(self) -> list[str]:
        """What is in the place where task and driver meet."""
        assert self.machines.place.local is not None
        return [p.name for p in self.machines.place.local.rglob("*") if p.is_file()]
