"""Random operations over several segments and runs: the table is what a dictionary of rows is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connector_world import CHECKPOINT, MakeConnector, Step

TABLE = [{"table": "t", "primary_key": ["id"], "columns": {"id": "LONG"}}]
keys = st.integers(1, 4)
values = {
    "a": st.none() | st.sampled_from(["", "x", "ü"]),
    "b": st.none() | st.integers(-2, 2),
    "c": st.none() | st.booleans(),
    "d": st.none() | st.sampled_from([{"deep": [1]}, [1, "2"]]),
}
records = st.builds(lambda id, row: {"id": id, **row}, keys, st.fixed_dictionaries({}, optional=values))
steps = st.one_of(
    st.builds(lambda row: ["upsert", "t", row], records),
    st.builds(lambda row: ["upsert", "t", row], records),
    st.builds(lambda row: ["update", "t", row], records),
    st.builds(lambda id: ["delete", "t", {"id": id}], keys),
    st.just(["truncate", "t"]),
    st.just(CHECKPOINT),
)


def model(operations: list[Step]) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for what, *rest in operations:
        if what == "truncate":
            rows = {}
        elif what == "checkpoint":
            continue
        elif what == "delete":
            rows.pop(rest[1]["id"], None)
        elif what == "upsert":
            rows[rest[1]["id"]] = rest[1]
        elif rest[1]["id"] in rows:
            rows[rest[1]["id"]] = rows[rest[1]["id"]] | rest[1]
    return sorted(({k: v for k, v in r.items() if v is not None} for r in rows.values()), key=repr)


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(runs=st.lists(st.lists(steps, max_size=10), min_size=1, max_size=2))
def test_the_table_is_what_a_dictionary_is(make_connector: MakeConnector, runs: list[list[Step]]) -> None:
    world = make_connector(declared=TABLE)
    for run in runs:
        assert world.play(*run, CHECKPOINT).status == "done"
        found = world.records("t", "id", *sorted(_columns(world) & values.keys()))
        assert sorted(map(_read, found), key=repr) == model(world.steps)


@pytest.mark.slow
@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(runs=st.lists(st.tuples(st.booleans(), st.lists(steps, max_size=8)), min_size=2, max_size=3))
def test_what_has_waited_is_carried_out_in_order(
    make_connector: MakeConnector, runs: list[tuple[bool, list[Step]]]
) -> None:
    """While the table is paused its operations are held, segment by segment; then they come before later ones."""
    world = make_connector(declared=TABLE)
    world.play(["upsert", "t", {"id": 1, "a": "x", "b": 1}], ["upsert", "t", {"id": 2, "c": True}], CHECKPOINT)
    for paused, run in (*runs, (False, [])):
        if paused:
            world.store.pauses.pause("shop", "for a test", table=("", "t"))
        else:
            world.store.pauses.resume("shop", who="test", table=("", "t"))
        world.play(*run, CHECKPOINT)
    found = world.records("t", "id", *sorted(_columns(world) & values.keys()))
    assert sorted(map(_read, found), key=repr) == model(world.steps)
    assert world.store.connectors.pending("shop") == []


def _read(row: dict[str, Any]) -> dict[str, Any]:
    return row | ({"d": json.loads(row["d"])} if "d" in row else {})


def _columns(world: Any) -> set[str]:
    return {c.alias for c in world.accepted("t").columns}
