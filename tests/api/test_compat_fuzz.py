"""Whatever is sent: an answer in the envelope, no fault of the server, and a project that still loads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from compat_world import PROJECT, Compat, compatible
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.api.compat import connections, groups, lists, metadata, schemas, syncs, users, webhooks

ROOMS = (syncs, schemas, connections, groups, users, webhooks, metadata, lists)
ROUTES = sorted(
    (method, route.path) for room in ROOMS for route in room.router.routes if isinstance(route, APIRoute)
    for method in route.methods
)  # fmt: skip
WORDS = """
enabled tables columns schemas main item name id hashed is_primary_key sync_mode schema_change_handling ALLOW_COLUMNS
BLOCK_ALL HISTORY group_id lake service sqlite config path schema paused sync_frequency daily_sync_time schedule_type
manual scope force exclude_mode EXCLUDE url https://a.example events sync_end is_historical_sync true shop region duckdb
""".split()  # noqa: SIM905
KNOWN = {"id": "shop", "schema": "main", "table": "item", "column": "name", "group": "lake", "service": "sqlite"}
TEXTS = st.sampled_from(WORDS) | st.text(max_size=6)
LEAVES = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.sampled_from([60, 1440]) | st.floats() | TEXTS
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compat]:
    """A project that was synced once, without a worker from then on: what touches a source says 503."""
    with compatible(tmp_path_factory.mktemp("fuzz")) as opened:
        opened.sql("create table item (id integer primary key, name text)")
        opened.sync()
        opened.worker.leave()
        yield opened


PATCH = {"enabled": st.booleans() | JSON, "sync_mode": st.sampled_from(["LIVE", "HISTORY"]) | JSON}
COLUMN = st.fixed_dictionaries({}, optional={"enabled": st.booleans(), "hashed": st.booleans(), "is_primary_key": JSON})
TABLE = st.fixed_dictionaries({}, optional=PATCH | {"columns": st.dictionaries(TEXTS, COLUMN, max_size=2)})
SCHEMA = st.fixed_dictionaries({}, optional=PATCH | {"tables": st.fixed_dictionaries({"item": TABLE})})
NEW = st.fixed_dictionaries(
    {"group_id": st.just("lake"), "service": st.sampled_from(["sqlite", "postgres", "zendesk", "duckdb"])},
    optional={"config": st.dictionaries(TEXTS, JSON, max_size=3), "paused": JSON, "sync_frequency": st.just(60)},
)
BODIES = (
    JSON | COLUMN | TABLE | SCHEMA | NEW | st.fixed_dictionaries({"schemas": st.fixed_dictionaries({"main": SCHEMA})})
)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(route=st.sampled_from(ROUTES), odd=st.booleans(), name=TEXTS, body=BODIES)
def test_every_route_answers_in_the_envelope(fuzzed: Compat, route: Any, odd: bool, name: str, body: Any) -> None:
    method, path = route
    for part, usual in KNOWN.items():
        path = path.replace(f"{{{part}}}", quote(name, safe="") or "%20" if odd else usual)
    sent = {} if method == "GET" else {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}
    answer = fuzzed.client.request(method, f"/v1{path}", **sent)
    assert answer.status_code in (200, 201, 400, 404, 405, 409, 503), (method, path, body, answer.text)
    assert (answer.json()["code"] == "Success") == (answer.status_code < 300)
    fuzzed.keep(PROJECT)  # what it has deleted or changed stands again, and can be read
    assert fuzzed.app.project.connection("shop")


LOADED = """
import sys
import instep.api.compat.app
parts = [name.split(".") for name in sys.modules]
print(*{p[1] for p in parts if p[0] == "instep" and p[1:]}, *{p[0] for p in parts})
"""


def test_the_api_loads_no_source_no_destination_and_no_engine() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "control" in found
    assert (
        found & {"sources", "destinations", "sync", "spark", "stage", "pyspark", "pyarrow", "duckdb", "psycopg"}
        == set()
    )


def test_nothing_but_loopback_is_named() -> None:
    """The vendor's own address stands nowhere in the code."""
    folder = Path(syncs.__file__).parent
    assert not [file for file in folder.glob("*.py") if "api." + "fivetran" in file.read_text()]
