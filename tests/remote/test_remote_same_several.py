"""Commands for several connections are the same at the project and over the server."""

from __future__ import annotations

import pytest
from remote_world import Twins

PROJECT = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}, gone: {type: sqlite, path: gone.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections:
  shop: {source: db, destination: lake, tags: [eu]}
  copy: {source: db, destination: lake, namespace: copy, tags: [eu]}
  away: {source: gone, destination: lake, namespace: away}
"""


@pytest.mark.parametrize("twins", [PROJECT], indirect=True)
def test_connections_are_chosen_by_options(twins: Twins) -> None:
    twins.both("plan", "--tag", "eu", "--exit-code", "--output", "json", code=2)
    here, _ = twins.both("sync", "--tag", "eu", "--output", "json")
    assert [(one["connection"], one["status"]) for one in here.json["connections"]] == [
        ("copy", "done"),
        ("shop", "done"),
    ]
    twins.both("verify", "--match", "re:copy|shop")
    for run in (twins.near.here, twins.far.there):
        said = run("sync", "--match", "*", "--output", "json")
        away, *others = said.json["connections"]
        assert (said.code, away["exit_code"], [one["exit_code"] for one in others]) == (4, 4, [0, 0])
        assert "gone.db does not exist" in away["detail"]


@pytest.mark.parametrize("twins", [PROJECT], indirect=True)
def test_a_run_that_ends_by_an_error_says_so_over_the_server(twins: Twins) -> None:
    for run in (twins.near.here, twins.far.there):
        said = run("sync", "away")
        assert (said.code, "gone.db does not exist" in said.err) == (4, True)
