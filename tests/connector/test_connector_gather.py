"""Checkpoints that come soon after one another share a segment, and nothing but the number of commits is another."""

from __future__ import annotations

from typing import Any

import pytest
from sdk_world import Sync, World

from connector_world import CHECKPOINT, MakeConnector, upserts
from instep.sources.connector.dialect import SdkDialect
from instep.sources.connector.seen import SeenTables
from instep.sources.connector.spool import Segments

Steps = list[list[Any]]
DECLARED = [{"table": "t", "primary_key": ["id"], "columns": {"id": "LONG"}}]
CODE = """
import json
def schema(configuration):
    return json.loads(configuration["schema"])
def update(configuration, state):
    at = 0
    for what, *rest in json.loads(configuration["steps"]):
        if what == "checkpoint":
            at += 1
            op.checkpoint({"at": at})
        elif what == "fail":
            raise RuntimeError("no more")
        else:
            getattr(op, what)(*rest)
"""


def segments(world: World, steps: Steps, *, gather: bool = True) -> Sync:
    import json

    sync = Sync()
    config = world.config(CODE, configuration={"schema": json.dumps(DECLARED), "steps": json.dumps(steps)})
    place = str(world.folder / f"spool-{gather}")
    found = Segments(SdkDialect(config), place, {}, sync.told.append, sync.logs.append, gather=gather)
    try:
        while (segment := found.next()) is not None:
            sync.segments.append(segment)
            found.acknowledge(segment)
    except Exception as error:
        sync.error = error  # type: ignore[assignment]
    finally:
        found.close()
        sync.counts = found.counts
    return sync


def rows(number: int, **more: Any) -> Steps:
    return [["upsert", "t", {"id": number, **more}], CHECKPOINT]


CASES: dict[str, tuple[Steps, list[int]]] = {
    "small ones": ([s for i in range(50) for s in rows(i, a=i)], [50]),
    "none with rows": ([CHECKPOINT] * 500, [500]),
    "a delete of what was written": ([*rows(1), *rows(2), ["delete", "t", {"id": 1}], CHECKPOINT, *rows(3)], [2, 4]),
    "a truncate": ([*rows(1), ["truncate", "t"], *rows(2)], [1, 2]),
    "deletes alone": ([["delete", "t", {"id": 1}], CHECKPOINT, ["delete", "t", {"id": 2}], CHECKPOINT], [2]),
    "another type": ([*rows(1, a=1), *rows(2, a=1.5), *rows(3, a=2.5)], [1, 3]),
    "a column that is silent": ([*rows(1, a=1), *rows(2, b=1), *rows(3, a=2), *rows(4)], [4]),
    "rows behind the last": ([*rows(1), ["upsert", "t", {"id": 2}]], [1, -1]),
    "many rows": ([*[["upsert", "t", {"id": i}] for i in range(55_000)], CHECKPOINT, *rows(1), *rows(2)], [1, 3]),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("steps", "states"), CASES.values(), ids=CASES)
def test_what_shares_a_segment(world: World, steps: Steps, states: list[int]) -> None:
    together, apart = segments(world, steps), segments(world, steps, gather=False)
    assert together.error is None
    assert [(s.state or {}).get("at", -1) for s in together.segments] == states
    assert [s.number for s in together.segments] == list(range(1, len(states) + 1))
    assert together.counts == apart.counts
    order = sorted
    assert order(map(str, together.records("t"))) == order(map(str, apart.records("t"))) or "a" in str(steps)
    assert seen(together) == seen(apart), "what is known of the columns does not depend on it"


def seen(sync: Sync) -> SeenTables:
    found = SeenTables()
    for segment in sync.segments:
        found = found.after(segment.tables)
    return found


def test_what_came_before_the_last_checkpoint_stays_when_the_connector_fails(world: World) -> None:
    sync = segments(world, [*rows(1), *rows(2), ["upsert", "t", {"id": 3}], ["fail"]])
    assert "no more" in str(sync.error)
    assert [s.state for s in sync.segments] == [{"at": 2}]
    assert [r["id"] for r in sync.records("t")] == [1, 2]
    assert [p.name for p in (world.folder / "spool-True").iterdir()] == ["segment-00001"]


def test_a_thousand_checkpoints_are_few_commits(make_connector: MakeConnector) -> None:
    world = make_connector()
    world.declared = DECLARED
    report = world.play(*(s for i in range(1000) for s in [*upserts("t", {"id": i, "v": i % 3}), CHECKPOINT]))
    assert [t.status for t in report.tables] == ["done"]
    assert len(world.rows("t", "id")) == 1000
    assert world.state == {"at": 2000}
    assert sum(r.inserted for r in report.tables) == 1000


def test_operations_on_one_key_over_checkpoints_count_in_order(make_connector: MakeConnector) -> None:
    world = make_connector()
    world.declared = DECLARED
    world.play(
        *upserts("t", {"id": 1, "v": 1, "w": 1}), CHECKPOINT, ["update", "t", {"id": 1, "v": 2}], CHECKPOINT,
        ["update", "t", {"id": 1, "w": 3}], CHECKPOINT, ["delete", "t", {"id": 1}], CHECKPOINT,
        *upserts("t", {"id": 1, "v": 5}, {"id": 2, "v": 1}), CHECKPOINT, ["update", "t", {"id": 2, "v": 7}], CHECKPOINT,
    )  # fmt: skip
    assert world.rows("t", "id", "v", "w") == [(1, 5, None), (2, 7, None)]
