"""One request to a server over a project, with a new key of a role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from starlette.testclient import TestClient

from instep.bootstrap import App, open_server
from instep.control.resources import api_keys
from instep.server.app import create_app


@contextmanager
def served_project(folder: Path, files: Mapping[str, str]) -> Iterator[App]:
    """Open the server of a project of these files."""
    for name, text in files.items():
        folder.joinpath(name).write_text(text)
    opened = open_server(folder, insecure_dev=True)
    try:
        yield opened
    finally:
        opened.store.close()


def requested(app: App, role: str, method: str, path: str, body: Any = None) -> Any:
    """Return the response."""
    secret = api_keys.create(app.store, f"k{token_hex(8)}", role, "test").secret
    client = TestClient(create_app(app), client=("127.0.0.1", 1))
    return client.request(method, path, json=body, headers={"Authorization": f"Bearer {secret}"})
