# ruff: noqa: F811 - the imported `spark` is a fixture
"""A commit that lands and raises all the same (its answer is lost, Ctrl-C): the table stays readable, with its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from delta_world import Warehouse
from pyiceberg.exceptions import CommitStateUnknownException

from instep.destinations.base import Commit, Fill, MaintenanceSpec, Merge
from instep.destinations.delta.protocol.log import DeltaLog
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.errors import Conflict
from instep.schema.maintenance import Maintenance
from instep.schema.planning.step import RewriteColumn, step
from lake import ID, PREFIX, REF, column, create, rows_of, spark, stage, table, with_spark  # noqa: F401

NAME, SIZE, WIDE = column("name", "string"), column("size", "string"), column("size", "int64")
Row = tuple[int, Any, Any]


def merge(lake: IcebergDestination, commit: Commit, spark: Any) -> list[Row]:
    files = [stage(lake, REF, [{"id": 1, "name": "new", "size": "1"}, {"id": 9, "name": "n", "size": "9"}])]
    lake.write.merge(lambda: spark, REF, files, Merge(("id",)), commit)
    return [(1, "new", "1"), (2, "b", None), (9, "n", "9")]


def fill(lake: IcebergDestination, commit: Commit, spark: Any) -> list[Row]:
    values = stage(lake, REF, [{"id": 2, "size": "22"}], only=["id", "size", f"{PREFIX}meta"])
    how = Fill(("id",), {"size": 1}, (values,), f"{PREFIX}meta", "x")
    lake.write.fill(None, REF, how, commit, lambda rows, size: None, lambda: True)
    return [(1, "a", "1"), (2, "b", "22")]


def compact(lake: IcebergDestination, commit: Commit, spark: Any) -> list[Row]:
    how = Maintenance(min_files=2, keep_snapshots=1, max_snapshot_age=0, target_file_size=1 << 20)
    lake.maintenance.maintain(REF, MaintenanceSpec(how, commit.run, commit.fence))
    return [(1, "a", "1"), (2, "b", None)]


def rewrite(lake: IcebergDestination, commit: Commit, spark: Any) -> list[Row]:
    lake.schema.execute(REF, [step(REF, RewriteColumn(REF, SIZE, WIDE))], table(ID, NAME, WIDE), commit)
    return [(1, "a", 1), (2, "b", None)]


WRITES: Mapping[str, Callable[..., list[Row]]] = {
    "merge": merge, "fill": fill, "compact": compact, "rewrite a column": rewrite
}  # fmt: skip
RAISED = [CommitStateUnknownException("504"), OSError("connection reset by peer"), KeyboardInterrupt()]


@contextmanager
def landing_then(raised: BaseException, lake: IcebergDestination, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kind = type(lake.lake.catalog)
    commit_table = kind.commit_table

    def landed(self: Any, to: Any, *args: Any) -> Any:
        answer = commit_table(self, to, *args)
        if to.name()[-1] == REF[1]:
            raise raised
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(kind, "commit_table", landed)
        yield


@with_spark
@pytest.mark.parametrize("raised", RAISED, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", WRITES)
def test_the_files_of_a_commit_that_may_have_landed_stay(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, kind: str, raised: BaseException
) -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake"), upsert_rows=0))
    create(lake, table(ID, NAME, SIZE))
    for row in ({"id": 1, "name": "a", "size": "1"}, {"id": 2, "name": "b"}):
        lake.write.append(REF, [stage(lake, REF, [row])], Commit("run-1", 1))
    lake.write.claim(REF, 2)
    expected = list[Row]()
    with landing_then(raised, lake, monkeypatch), pytest.raises(BaseException) as error:
        expected = WRITES[kind](lake, Commit("run-2", 2), spark)
    assert not isinstance(error.value, Conflict)
    lake.write.claim(REF, 3)
    for _ in range(2):  # and the later run that tidies leaves what the table lists
        rows = rows_of(lake, columns=["id", "name", "size"])
        assert [row[0] for row in rows] == ([1, 2, 9] if kind == "merge" else [1, 2])
        lake.lifecycle.remove_uncommitted_files(REF, {"run-2": 2})
    expected = WRITES[kind](lake, Commit("run-3", 3), spark) if kind != "rewrite a column" else [(1, "a", 1), rows[1]]
    assert rows_of(lake, columns=["id", "name", "size"]) == expected


@pytest.mark.parametrize("answer", [OSError("connection reset by peer"), KeyboardInterrupt(), False])
def test_the_files_of_a_version_of_a_delta_log_that_may_have_landed_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    """False: a store has made the object, the answer was lost, and the client's second try found it there."""
    world = Warehouse(tmp_path)
    put = DeltaLog.put

    def landed(self: DeltaLog, version: int, actions: Any) -> bool:
        assert put(self, version, actions)
        if isinstance(answer, BaseException):
            raise answer
        return False

    to = world.to
    commit = world.commit("run")
    to.write.overwrite(REF, [stage(to, REF, [{"id": 1, "name": "old"}])], commit)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaLog, "put", landed)
        with pytest.raises(BaseException):  # noqa: B017 - any
            to.write.merge(None, REF, [stage(to, REF, [{"id": 1, "name": "new"}])], Merge(("id",)), commit)
    world.forget()
    assert [row[1] for row in rows_of(world.to)] == ["new"]
