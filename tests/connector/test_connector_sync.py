"""A connector from its code to a table: what it sends, segment by segment, is what the destination has."""

from __future__ import annotations

import pytest

from connector_world import CHECKPOINT, MakeConnector, upserts
from sync_world import counts

ORDERS = [{"table": "orders", "primary_key": ["id"], "columns": {"id": "LONG", "note": "STRING"}}]


@pytest.mark.sampled
@pytest.mark.parametrize("into", ["duckdb", "iceberg", pytest.param("delta", marks=pytest.mark.slow)])
def test_two_checkpoints_a_rest_and_another_run(make_connector: MakeConnector, into: str) -> None:
    world = make_connector(into, declared=ORDERS)
    report = world.play(
        *upserts("orders", {"id": 1, "note": "a", "total": 1.5}, {"id": 2, "note": "b"}),
        CHECKPOINT,
        *upserts("orders", {"id": 2, "note": "c", "total": 2}),
        *upserts("items", {"order": 1, "sku": "x"}, {"order": 1, "sku": "x"}, {"order": 1, "sku": "y"}),
        CHECKPOINT,
    )
    assert report.status == "done"
    assert world.state == {"at": 8}
    assert world.schema("orders") == "id int64!, note string, total float64"
    assert world.rows("orders") == [(1, "a", 1.5), (2, "c", 2.0)]
    assert world.rows("items", "order", "sku") == [(1, "x"), (1, "y")]
    assert counts(report, "orders")[1:4] in ((2, 0, 0), (2, 1, 0))
    report = world.play(
        ["update", "orders", {"id": 1, "note": "aa"}],
        ["update", "orders", {"id": 9, "note": "nobody"}],
        ["delete", "orders", {"id": 2}],
        ["delete", "orders", {"id": 8}],
        CHECKPOINT,
        *upserts("orders", {"id": 3}),
    )
    assert report.status == "done"
    assert world.rows("orders") == [(1, "aa", 1.5), (3, None, None)]
    assert world.state == {"at": 13}


def test_drivers_that_nobody_installs_are_told_of_in_each_sync(
    make_connector: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_connector(declared=ORDERS)
    drivers = world.folder / "connector" / "drivers"
    drivers.mkdir(parents=True)
    (drivers / "installation.sh").touch()
    world.play(*upserts("orders", {"id": 1}), CHECKPOINT, *upserts("orders", {"id": 2}), CHECKPOINT)
    (said,) = (r for r in caplog.records if "installation.sh" in r.getMessage())
    assert said.levelname == "WARNING"
    assert "has to be on each machine" in said.getMessage()
