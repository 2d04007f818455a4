"""Which connections a key with groups is for: asked in one query, and the same as asking one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import serve
from sqlalchemy import event

from instep.bootstrap import open_server
from instep.control.resources import api_keys
from instep.server.context import Caller, ServerContext

FILE = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: a.duckdb}, pond: {type: duckdb, path: b.duckdb}}
connections:
  own_a: {tags: [eu], destination: lake}
  own_b: {tags: [us, lake], destination: pond}
  own_c: {destination: lake}
"""
TAGS = ("eu", "us", "asia", "lake")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerContext]:
    tmp_path.joinpath("instep.yml").write_text(FILE)
    chance = random.Random(7)
    with open_server(tmp_path, insecure_dev=True) as app:
        for number in range(40):
            tags = chance.sample(TAGS, chance.randint(0, 2))
            spec = {"source": "db", "destination": chance.choice(["lake", "pond"]), "tags": tags}
            app.objects.put("connection", f"c{number:02}", spec, who="test")
        found = serve(app).client.app.state.server  # type: ignore[attr-defined]
        assert isinstance(found, ServerContext)
        yield found


def caller(server: ServerContext, *groups: str) -> Caller:
    return Caller(api_keys.create(server.store, "k", "viewer", "test", groups=groups).key)


GROUPS = [("eu",), ("lake",), ("pond",), ("eu", "asia"), ("none",), ("us", "lake"), ()]


@pytest.mark.sampled
@pytest.mark.parametrize("groups", GROUPS, ids="-".join)
def test_all_at_once_is_one_by_one(server: ServerContext, groups: tuple[str, ...]) -> None:
    who = caller(server, *groups)
    every = list(server.project.connections)
    assert len(every) == 43
    found = server.names(who)
    assert (frozenset(every) if found is None else found) == {name for name in every if server.sees(who, name)}


def test_it_is_one_query(server: ServerContext) -> None:
    asked: list[str] = []

    def note(_a: Any, _b: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    who = caller(server, "eu", "pond")
    engine = server.store._db.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        assert len(server.names(who) or ()) > 10
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert len([one for one in asked if one.lstrip().upper().startswith("SELECT")]) == 1
