"""The compatible API over a real server: what its store keeps, SQLite sources, a lake, and a worker in a thread."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI
from fastapi.testclient import TestClient

from instep.bootstrap import App, open_server
from instep.control.resources import api_keys
from instep.model import Job
from instep.server.app import create_app
from instep.server.fivetran_api.app import create_compatible, ports_of
from instep.server.rates import Rates
from instep.store.store import Store
from instep.worker.perform import JobEnd, perform

PROJECT = """\
engine: local
sources: {shop: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
connections: {shop: {source: shop, destination: lake}}
"""
PLURALS = {"sources": "source", "destinations": "destination", "policies": "policy", "connections": "connection"}


class Worker:
    """Claims and performs jobs of the real queue in a thread, as far as `held` lets it begin; `alive`: it is known as a
    worker. `ended` are the jobs that it has done."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self.held = threading.Event()
        self.held.set()
        self.ended: list[tuple[Job, JobEnd]] = []
        self._begun, self._stopped = threading.Event(), threading.Event()
        store.workers.lease = timedelta(days=1)  # it gives no further sign of life
        self._me = store.workers.register(1)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        assert self._begun.wait(600), "it has opened the project, so that a test may spoil the file"

    def leave(self) -> None:
        """No worker is known any more, and nothing is begun."""
        self.held.clear()
        self._store.workers.leave(self._me)

    def idle(self) -> None:
        """Waits until nothing is queued or running."""
        end = time.monotonic() + 600
        while self._store.jobs.find(status=("queued", "running"), limit=1):
            assert time.monotonic() < end
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(600)

    def _work(self) -> None:
        with open_server(self._folder, insecure_dev=True) as app:
            self._begun.set()
            while not self._stopped.wait(0.01):
                job = app.store.jobs.claim(self._me.id) if self.held.is_set() else None
                if job is not None:
                    self._end(app, job, perform(app, job))

    def _end(self, app: App, job: Job, ended: JobEnd) -> None:
        self.ended.append((job, ended))
        if ended.error:
            app.store.jobs.fail(job, ended.error, retryable=False, result=ended.result)
        else:
            app.store.jobs.finish(job, result=ended.result)


class Compat:
    """The API, and what stands behind it. Sections of `text` are kept by the server, those of `file` by the file."""

    def __init__(self, folder: Path, text: str = PROJECT, file: str = "", rate: int = 100_000) -> None:
        self.folder = folder
        (folder / "instep.yml").write_text(f"engine: local\n{file}\nshelves: [.]\n")
        self.app: App = open_server(folder, insecure_dev=True)
        self.store: Store = self.app.store
        self.keep(text)
        self.worker = Worker(folder, self.store)
        self.rates = Rates(rate)
        issued = api_keys.create(self.store, "ann", "admin", "test")
        self.who = f"ann ({issued.key.id})"
        self.client = self.of(create_app(self.app, rates=self.rates))
        self.client.auth = self.pair = issued.key.id, issued.secret

    def keep(self, text: str) -> None:
        said: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text)
        for plural, kind in PLURALS.items():
            for name, spec in (said.get(plural) or {}).items():
                self.app.objects.put(kind, name, spec or {}, who="ann")  # type: ignore[arg-type]

    def of(self, api: FastAPI) -> TestClient:
        return TestClient(api, base_url="http://localhost", raise_server_exceptions=False, client=("127.0.0.1", 1))

    def hasty(self, wait: float) -> TestClient:
        """A client of an API that waits so many seconds for jobs."""
        api = FastAPI()
        api.mount("/v1", create_compatible(ports_of(self.app, self.rates, wait)))
        client = self.of(api)
        client.auth = self.pair
        return client

    def key(self, role: str, *groups: str) -> tuple[str, str]:
        """What a key of its own sends."""
        issued = api_keys.create(self.store, "-".join((role, *groups)), role, "test", groups=groups)
        return issued.key.id, issued.secret

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
