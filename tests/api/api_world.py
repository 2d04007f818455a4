"""A server over a project of files, with changes, and clients with keys of each role."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from instep.bootstrap import App, open_server
from instep.control.resources import api_keys
from instep.model import Review
from instep.server.access import PREFIX
from instep.server.app import create_app
from instep.server.rates import Rates
from instep.store.catalogs.reviews import DetectedChange
from instep.store.store import Store

PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
policies: {strict: {preset: approve}}
connections:
  eu: {tags: [europe], policy: strict}
  us: {tags: [america]}
shelves: [.]
"""


@dataclass
class Api:
    """`clients` by role; `scoped` is a viewer and `scoped_admin` an admin for the group europe."""

    app: App
    client: TestClient
    secrets: dict[str, str] = field(default_factory=dict)
    _paths: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def store(self) -> Store:
        return self.app.store

    def key(self, role: str, *groups: str) -> dict[str, str]:
        """The headers of a key."""
        name = "-".join((role, *groups))
        if name not in self.secrets:
            self.secrets[name] = api_keys.create(self.store, name, role, "test", groups=groups).secret
        return {"Authorization": f"Bearer {self.secrets[name]}"}

    def taken(self, route: str, parameters: dict[str, str]) -> dict[str, str]:
        """Return those of these parameters that a route takes."""
        if self._paths is None:
            self._paths = self.client.get(f"{PREFIX}/openapi.json").json()["paths"]
        method, path = route.split(" ")
        described = self._paths[f"{PREFIX}{path}"][method.lower()].get("parameters", [])
        names = {one["name"] for one in described if one["in"] == "query"}
        return {name: value for name, value in parameters.items() if name in names}

    def call(self, method: str, path: str, role: str = "admin", body: Any = None, **more: Any) -> Any:
        """The response to a request below /api/v1; `headers` are added to those of the key."""
        headers = {**self.key(role), **more.pop("headers", {})}
        return self.client.request(method, f"/api/v1{path}", json=body, headers=headers, **more)

    def get(self, path: str, role: str = "admin", **more: Any) -> Any:
        """The document at a path."""
        found = self.call("GET", path, role, **more)
        assert found.status_code == 200, found.text
        return found.json()


def project(folder: Path, text: str = PROJECT) -> App:
    folder.joinpath("instep.yml").write_text(text)
    return open_server(folder, insecure_dev=True)


def serve(app: App, **options: Any) -> Api:
    made = create_app(app, **{"rates": Rates(requests=100_000), "poll": 0.02, "stream": 0.5, **options})
    return Api(app, TestClient(made, raise_server_exceptions=False, client=("127.0.0.1", 1)))


def recorded(store: Store, connection: str, *columns: str, action: str = "review") -> list[Review]:
    """Changes of a connection that wait."""
    place, why = ("main", "item"), "waits for a review"
    found = [
        DetectedChange(f"column.added {c}", "column.added", place, c, f"main.item.{c} is new", _added(c), action,
                "preset approve", why)
        for c in columns
    ]  # fmt: skip
    return store.reviews.record(connection, found, "f")


def _added(column: str) -> dict[str, Any]:
    after = {"name": column, "type": "string"}
    return {"kind": "column.added", "table": ["main", "item"], "after": after, "position": 1}
