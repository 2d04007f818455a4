"""Late attempts are refused, however late: each row of the table of faults is a test."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from instep.destinations.base import Commit
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.metadata.files import data_files
from instep.destinations.iceberg.metadata.records import FENCE
from instep.errors import Conflict, Fenced
from lake import ORDERS, REF, create, rows_of, stage

pytestmark = pytest.mark.drawn(1)


@pytest.fixture
def lake(tmp_path: Path) -> IcebergDestination:
    destination = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(destination)
    destination.write.claim(REF, 1)
    destination.write.append(REF, [stage(destination, REF, [{"id": 1}])], Commit("run-1", 1, "c1"))
    return destination


def late_append(lake: IcebergDestination, *, after: str) -> TableCommit:
    """An append of fence 1 that was made ready before somebody else did `after`."""
    table = lake.lake.load(REF)
    assert table is not None
    change = TableCommit(table)
    change.append(data_files([stage(lake, REF, [{"id": 99}])], table.metadata), {})
    if after == "claim":
        lake.write.claim(REF, 2)
    elif after == "claim and append":
        lake.write.claim(REF, 2)
        lake.write.append(REF, [stage(lake, REF, [{"id": 2}])], Commit("run-2", 2))
    elif after == "append":
        lake.write.append(REF, [stage(lake, REF, [{"id": 2}])], Commit("run-2", 1))
    return change


@pytest.mark.parametrize(
    ("after", "error", "ids"),
    [("claim", Fenced, [1]), ("claim and append", Fenced, [1, 2]), ("append", Conflict, [1, 2])],
)
def test_a_late_append_on_a_stale_base_is_refused(
    lake: IcebergDestination, after: str, error: type[Exception], ids: list[int]
) -> None:
    change = late_append(lake, after=after)
    with pytest.raises(error):
        change.land(1)
    assert [r[0] for r in rows_of(lake)] == ids
    metadata = Path(lake.write.target(REF).location.removeprefix("file://")).parent / "metadata"
    assert not [f for f in metadata.glob("*-m0.avro") if str(f) not in _manifests(lake)]


def _manifests(lake: IcebergDestination) -> set[str]:
    table = lake.lake.load(REF)
    assert table is not None
    return {m.manifest_path.removeprefix("file://") for s in table.metadata.snapshots for m in s.manifests(table.io)}


def test_a_late_append_that_looks_again_is_refused(lake: IcebergDestination) -> None:
    file = stage(lake, REF, [{"id": 99}])
    lake.write.claim(REF, 2)
    with pytest.raises(Fenced, match="fence 2, ours is 1"):
        lake.write.append(REF, [file], Commit("run-1", 1))


def test_a_property_set_by_somebody_else_does_not_undo_a_claim(lake: IcebergDestination) -> None:
    lake.write.claim(REF, 2)
    table = lake.lake.load(REF)
    assert table is not None
    with table.transaction() as tx:
        tx.set_properties({"owner": "me"})
    with pytest.raises(Fenced):
        lake.write.append(REF, [stage(lake, REF, [{"id": 99}])], Commit("run-1", 1))


def test_of_claims_at_once_the_highest_stays(lake: IcebergDestination, tmp_path: Path) -> None:
    refused: list[int] = []
    start = threading.Barrier(6)

    def claim(fence: int) -> None:
        own = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
        start.wait()
        for _ in range(20):
            try:
                own.write.claim(REF, fence)
            except Fenced:
                refused.append(fence)
            except Conflict:
                continue
            return

    threads = [threading.Thread(target=claim, args=(fence,)) for fence in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = lake.lake.load(REF)
    assert table is not None
    assert table.metadata.properties[FENCE] == "7"
    assert 7 not in refused


def test_a_table_that_was_made_by_another_run_meanwhile_is_not_made_twice(lake: IcebergDestination) -> None:
    create(lake, ORDERS, Commit("run-0", 0))
    with pytest.raises(Conflict):
        create(lake, ORDERS.__class__("shop", "orders", ORDERS.columns[:2]))
    assert len(rows_of(lake)) == 1


def test_a_commit_after_the_table_is_gone_is_a_conflict(lake: IcebergDestination) -> None:
    change = late_append(lake, after="nothing")
    lake.lake.catalog.drop_table(REF)
    with pytest.raises(Conflict):
        change.land(1)
