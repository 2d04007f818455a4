"""A program of its own that lets a new table and a new column in on every connection of a group, over the wire alone.

It speaks to `INSTEP_TEST_URL` as programs for the management API do: list by pages, reload, patch, sync, wait.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import requests

BASE = os.environ["INSTEP_TEST_URL"]
PAGE = int(os.environ.get("INSTEP_TEST_PAGE", "100"))
session = requests.Session()
session.auth = (os.environ["INSTEP_TEST_KEY"], os.environ["INSTEP_TEST_SECRET"])
session.headers.update({"Accept": "application/json;version=2", "Content-Type": "application/json"})


def call(method: str, path: str, body: Any = None, query: Any = None) -> Any:
    answer = session.request(method, BASE + path, json=body, params=query, timeout=60)
    answer.raise_for_status()
    return answer.json()


def members(group: str) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        query = {"group_id": group, "limit": PAGE} | ({"cursor": after} if after else {})
        data = call("GET", "/connections", query=query)["data"]
        found += [item["id"] for item in data["items"]]
        after = data.get("next_cursor")
        if not after:
            return found


def ended(connection: str) -> str:
    for _ in range(6000):
        state = str(call("GET", f"/connections/{connection}")["data"]["status"]["sync_state"])
        if state not in ("syncing", "rescheduled"):
            return state
        time.sleep(0.2)
    return "timeout"


def main(group: str, schema: str, new: str, old: str, column: str) -> None:
    connections = members(group)
    for one in connections:
        call("POST", f"/connections/{one}/schemas/reload")
    wanted = {new: {"enabled": True}, old: {"enabled": True, "columns": {column: {"enabled": True}}}}
    for one in connections:
        call("PATCH", f"/connections/{one}/schemas/{schema}", {"enabled": True, "tables": wanted})
    for one in connections:
        call("POST", f"/connections/{one}/sync", {"force": False})
    for one in connections:
        print(one, ended(one))


if __name__ == "__main__":
    main(*sys.argv[1:])
