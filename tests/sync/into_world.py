"""Worlds over any source into any destination."""

from __future__ import annotations

from typing import Any

import pytest

from contract.destinations import DESTINATIONS
from contract.destinations import postgres as into_postgres
from sync_world import MakeWorld, World


def world_into(make_world: MakeWorld, request: pytest.FixtureRequest, kind: str, destination: str) -> World:
    world = make_world(kind)
    made: Any = None
    if destination == "postgres":
        made = into_postgres(world.folder, request.getfixturevalue("postgres"))
    elif destination != "iceberg":
        made = DESTINATIONS[destination](world.folder)
    world.destination = made or world.destination
    return world
