"""The compatible API over a real project: its file, its store, SQLite sources, a lake, and a worker in a thread."""

from __future__ import annotations

import itertools
import json
import queue
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI
from fastapi.testclient import TestClient

from instep.api.compat.app import create_compatible
from instep.api.compat.ports import Caller, Item, Job, JobKind, Kind, Limits, Ports, Role
from instep.bootstrap import App, open_project
from instep.errors import Blocked, Conflict, InstepError
from instep.project.load import load
from instep.project.project import Project
from instep.store.store import Store
from instep.sync.changes.evolve import preview
from instep.sync.progress import Report
from instep.sync.rows.engine import Inline
from instep.sync.run import Wanted, sync

SECTIONS: Mapping[str, str] = {"source": "sources", "destination": "destinations", "connection": "connections"}
BIRTH = datetime(2026, 11, 22, tzinfo=UTC)
KEY, SECRET = "key", "secret"
PROJECT = """\
sources: {shop: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
connections: {shop: {source: shop, destination: lake}}
"""


def merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch."""
    out = dict(old)
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = merged(out.get(name) or {}, value) if isinstance(value, dict) else value
    return out


class FileObjects:
    """Sections of instep.yml, which is written and checked as people's is; what it has no section for is in a file
    beside it. `locked`: the file is people's alone."""

    def __init__(self, folder: Path) -> None:
        self.file, self.beside = folder / "instep.yml", folder / "beside.json"
        self.locked = False
        self._lock = threading.RLock()
        self._read: tuple[str, Project, dict[str, Any]] | None = None

    def project(self, name: str = "") -> Project:
        """Read again when the file has another text."""
        text = self.file.read_text()
        with self._lock:
            if self._read is None or self._read[0] != text:
                self._read = text, load(self.file), yaml.safe_load(text) or {}
            return self._read[1]

    def _all(self, kind: Kind) -> dict[str, Any]:
        if kind in SECTIONS:
            self.project()
            assert self._read is not None
            return dict(self._read[2].get(SECTIONS[kind]) or {})
        return (json.loads(self.beside.read_text()) if self.beside.exists() else {}).get(kind) or {}

    def _write(self, kind: Kind, name: str, spec: Mapping[str, Any] | None) -> None:
        file = self.file if kind in SECTIONS else self.beside
        old = file.read_text() if file.exists() else "{}"
        data = yaml.safe_load(old) or {}
        section = data.setdefault(SECTIONS.get(kind, kind), {})
        section.pop(name, None)
        if spec is not None:
            section[name] = dict(spec)
        file.write_text(yaml.safe_dump(data) if kind in SECTIONS else json.dumps(data))
        try:
            load(self.file)
        except InstepError:
            file.write_text(old)
            raise

    def _item(self, kind: Kind, name: str, spec: Mapping[str, Any]) -> Item:
        group, namespace = str(spec.get("group_id", "")), name
        if kind == "connection":
            project = self.project()
            group, namespace = project.destination_of(name), project.namespace_of(name)
        elif kind == "foreign":
            namespace = str(spec.get("config", {}).get("schema", name))
        return Item(kind, name, spec, BIRTH, "ann", group, namespace, in_file=self.locked)

    def connections(
        self, *, after: str = "", limit: int, group: str = "", namespace: str = "", groups: frozenset[str] = frozenset()
    ) -> Sequence[Item]:
        project = self.project()
        found = [
            Item("connection", n, s or {}, BIRTH, "ann", project.destination_of(n), project.namespace_of(n))
            for n, s in self._all("connection").items()
        ]
        found += [self._item("foreign", n, s) for n, s in self._all("foreign").items()]
        fits = (
            i for i in sorted(found, key=lambda i: i.name)
            if i.name > after and group in ("", i.group) and namespace in ("", i.namespace)
            and (not groups or i.group in groups)
        )  # fmt: skip
        return list(itertools.islice(fits, limit))

    def page(self, kind: Kind, *, after: str = "", limit: int) -> Sequence[Item]:
        found = [self._item(kind, n, s or {}) for n, s in sorted(self._all(kind).items()) if n > after]
        return found[:limit]

    def get(self, kind: Kind, name: str) -> Item | None:
        found = self._all(kind)
        return self._item(kind, name, found[name] or {}) if name in found else None

    def create(self, kind: Kind, name: str, spec: Mapping[str, Any], who: str) -> Item:
        with self._lock:
            if name in self._all(kind):
                raise Conflict(f"there is a {kind} {name} already", hint="use another name")
            self._check(kind, name, spec)
            self._write(kind, name, spec)
            return self._item(kind, name, spec)

    def change(self, kind: Kind, name: str, patch: Mapping[str, Any], who: str) -> Item:
        with self._lock:
            self._check(kind, name, {k: v for k, v in patch.items() if v is not None})
            spec = merged(self._all(kind)[name] or {}, patch)
            self._write(kind, name, spec)
            return self._item(kind, name, spec)

    def delete(self, kind: Kind, name: str, who: str) -> None:
        with self._lock:
            self._check(kind, name, {})
            self._write(kind, name, None)

    def _check(self, kind: Kind, name: str, spec: Mapping[str, Any]) -> None:
        if self.locked and kind in SECTIONS:
            text = yaml.safe_dump({SECTIONS[kind]: {name: dict(spec)}}, default_flow_style=True).strip()
            raise Blocked(f"{kind} {name} is managed by instep.yml", hint=f"write there: {text}")


class Worker:
    """Runs jobs one after the other in a thread, as far as `held` lets it begin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alive = True
        self.held = threading.Event()
        self.held.set()
        self.reports: list[Report] = []
        self._jobs: dict[str, Job] = {}
        self._keys: dict[str, str] = {}
        self._options: dict[str, Mapping[str, Any]] = {}
        self._changed = threading.Condition()
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def enqueue(
        self,
        connection: str,
        kind: JobKind,
        options: Mapping[str, Any],
        *,
        key: str = "",
        urgent: bool = False,
        who: str,
    ) -> Job:
        with self._changed:
            for job in self._jobs.values():
                if (job.connection, job.kind, job.status, self._keys[job.id]) == (connection, kind, "queued", key):
                    return job
            job = Job(f"j-{next(self._numbers)}", connection, kind, "queued")
            self._jobs[job.id], self._keys[job.id], self._options[job.id] = job, key, options
        self._queue.put(job.id)
        return job

    def wait(self, job: str, seconds: float) -> Job:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs[job].status not in ("queued", "running"), seconds)
            return self._jobs[job]

    def cancel(self, job: str, who: str) -> None:
        self._set(job, status="cancelled")

    def unfinished(self, connections: Sequence[str]) -> Mapping[str, Sequence[Job]]:
        with self._changed:
            going = [j for j in self._jobs.values() if j.status in ("queued", "running")]
        return {name: [j for j in going if j.connection == name] for name in connections}

    def options(self, job: str) -> Mapping[str, Any]:
        return self._options[job]

    def has_worker(self) -> bool:
        return self.alive

    def idle(self) -> None:
        """Waits until nothing is queued or running."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: all(j.status not in ("queued", "running") for j in self._jobs.values()), 60
            )

    def stop(self) -> None:
        self.held.set()
        self._queue.put(None)
        self._thread.join(60)

    def _set(self, job: str, **values: Any) -> None:
        with self._changed:
            self._jobs[job] = replace(self._jobs[job], **values)
            self._changed.notify_all()

    def _work(self) -> None:
        while (id := self._queue.get()) is not None:
            self.held.wait()
            if self._jobs[id].status != "queued":
                continue
            self._set(id, status="running")
            try:
                self._set(id, detail=self._run(self._jobs[id]), status="done")
            except InstepError as error:
                self._set(id, status="failed", error=error.message)

    def _run(self, job: Job) -> Mapping[str, Any]:
        with open_project(self.folder) as app:
            if job.kind == "test":
                source = app.source(app.project.source_of(job.connection))
                return {"checks": [asdict(check) for check in source.test()]}
            pipe = app.pipe(job.connection)
            if job.kind == "sync":
                wanted = Wanted(drop_columns=frozenset(self._options[job.id].get("drop_columns", ())))
                self.reports.append(sync(pipe, wanted, engine=Inline()))
            else:
                preview(pipe, count=True, pauses=True)
        return {}


class Keys:
    """One key a role, and what it may see."""

    def __init__(self) -> None:
        self.callers: dict[tuple[str, str], Caller] = {(KEY, SECRET): Caller("ann", "admin")}

    def add(self, role: Role, *groups: str) -> tuple[str, str]:
        self.callers[role, SECRET] = Caller(role, role, frozenset(groups))
        return role, SECRET

    def caller(self, key: str, secret: str) -> Caller | None:
        return self.callers.get((key, secret))


class Compat:
    """The API, and what stands behind it."""

    def __init__(self, folder: Path, text: str = PROJECT, limits: Limits | None = None, wait: float = 50.0) -> None:
        self.folder = folder
        folder.joinpath("instep.yml").write_text(text)
        self.objects, self.worker, self.keys = FileObjects(folder), Worker(folder), Keys()
        self.app: App = open_project(folder)
        self.store: Store = self.app.store
        self.ports = Ports(
            self.store, self.objects.project, self.objects, self.worker, self.keys, limits=limits, wait=wait
        )
        self.api = FastAPI()
        self.api.mount("/v1", create_compatible(self.ports))
        self.client = TestClient(self.api, base_url="http://localhost", raise_server_exceptions=False)
        self.client.auth = (KEY, SECRET)

    def close(self) -> None:
        self.worker.stop()
        self.client.close()
        self.store.close()

    def sql(self, script: str, file: str = "shop.db") -> None:
        with closing(sqlite3.connect(self.folder / file)) as connection:
            connection.executescript(script)

    def ask(self, method: str, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        """The whole body of the answer, whose status is checked."""
        response = self.client.request(method, f"/v1{path}", **({"json": body} if body is not None else {}), **more)
        assert response.status_code == status, (method, path, response.status_code, response.text)
        return response.json()

    def data(self, method: str, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        return self.ask(method, path, body, status, **more)["data"]

    def sync(self, name: str = "shop") -> None:
        self.ask("POST", f"/connections/{name}/sync", {"force": False})
        self.worker.idle()


@contextmanager
def compatible(folder: Path, text: str = PROJECT, **options: Any) -> Iterator[Compat]:
    opened = Compat(folder, text, **options)
    try:
        yield opened
    finally:
        opened.close()
