"""The state of a connection whose source is a connector, over the compatible API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_world import Compat, compatible

FILE = """\
sources: {api: {type: connector, path: connector}}
destinations: {lake: {type: duckdb, path: w.db}}
connections: {shop: {source: api, destination: lake}}
"""
CODE = """\
from fivetran_connector_sdk import Connector, Operations as op

def update(configuration, state):
    op.upsert("t", {"at": state.get("at", 0)})
    op.checkpoint({"at": state.get("at", 0) + 1})

connector = Connector(update=update)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Compat]:
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector" / "connector.py").write_text(CODE)
    with compatible(tmp_path, text="{}", file=FILE) as opened:
        yield opened


def test_a_state_is_shown_and_set_while_nothing_runs(shop: Compat) -> None:
    path = "/connections/shop/state"
    assert "no state yet" in shop.ask("GET", path, status=400)["message"]
    shop.sync()
    assert shop.data("GET", path) == {"state": {"at": 1}}
    assert "has to be paused" in shop.ask("PATCH", path, {"state": {"at": 9}}, status=409)["message"]
    shop.store.pauses.pause("shop", "for a test")
    for wrong in ({}, {"state": 1}, {"state": [1]}, [1]):
        assert shop.ask("PATCH", path, wrong, status=400)["code"] == "InvalidInput"
    assert shop.data("PATCH", path, {"state": {"at": 9}}) == {"state": {"at": 9}}
    shop.store.pauses.resume("shop", who="test")
    shop.sync()
    assert shop.data("GET", path) == {"state": {"at": 10}}


def test_a_state_is_not_shown_to_strangers(shop: Compat) -> None:
    shop.sync()
    shop.client.auth = shop.key("viewer", "elsewhere")
    assert shop.ask("GET", "/connections/shop/state", status=404)["code"] == "NotFound_Connection"
    shop.client.auth = shop.key("viewer")
    assert shop.ask("PATCH", "/connections/shop/state", {"state": {}}, status=403)["code"]
