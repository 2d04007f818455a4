"""Files of running tasks: progress that is replaced whole, results that are added to; never a reason to fail."""

from __future__ import annotations

from pathlib import Path

from instep.spark.task_progress import FreshResults, TaskProgress, collect, written
from instep.stage.spec import ChunkResult
from instep.stage.task import ChunkProgress


def test_tables_and_tasks_add_up(tmp_path: Path) -> None:
    first, second = TaskProgress(str(tmp_path), 0, interval=0), TaskProgress(str(tmp_path), 1, interval=0)
    first(ChunkProgress("a", 10, 100))
    first(ChunkProgress("a", 20, 200, done=1))
    first(ChunkProgress("a", 5, 50))
    second(ChunkProgress("b", 1, 2))
    assert collect(str(tmp_path)) == {"a": (25, 250), "b": (1, 2)}
    second(ChunkProgress("a", 1, 1, done=1))
    assert collect(str(tmp_path))["a"] == (26, 251)


def test_a_task_tells_at_most_so_often(tmp_path: Path) -> None:
    task = TaskProgress(str(tmp_path), 0, interval=3600)
    task(ChunkProgress("a", 1, 1))
    task(ChunkProgress("a", 2, 2, done=1))
    task(ChunkProgress("b", 3, 3))
    assert collect(str(tmp_path)) == {}
    task.report()
    assert collect(str(tmp_path)) == {"a": (2, 2), "b": (3, 3)}


def test_a_broken_or_missing_file_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text("{")
    assert collect(str(tmp_path)) == {}
    assert collect(str(tmp_path / "nowhere")) == {}
    TaskProgress(str(tmp_path / "nowhere"), 0, interval=0)(ChunkProgress("a", 1, 1, done=1))


def test_no_half_written_file_is_seen(tmp_path: Path) -> None:
    TaskProgress(str(tmp_path), 0, interval=0)(ChunkProgress("a", 1, 1))
    assert [f.name for f in tmp_path.iterdir()] == ["0.json"]


def result(number: int) -> ChunkResult:
    return ChunkResult("t", number, 10 * number, ())


def test_each_result_is_given_once(tmp_path: Path) -> None:
    fresh = FreshResults(str(tmp_path))
    first, second = (written(str(tmp_path), task, 0, map(result, range(3))) for task in (0, 1))
    assert fresh.new_results() == []
    assert [next(first), next(first)] == fresh.new_results() == [result(0), result(1)]
    next(second)
    assert fresh.new_results() == [result(0)]
    assert [*first, *second] == [result(2), result(1), result(2)]
    assert sorted(r.chunk for r in fresh.new_results()) == [1, 2, 2]
    assert fresh.new_results() == []


def test_a_part_of_a_result_waits_for_the_rest(tmp_path: Path) -> None:
    list(written(str(tmp_path), 0, 0, [result(1), result(2)]))
    file = tmp_path / "0-0.results"
    whole = file.read_bytes()
    fresh = FreshResults(str(tmp_path))
    for end, there in ((3, []), (len(whole) // 2 + 9, [result(1)]), (len(whole) - 1, []), (len(whole), [result(2)])):
        file.write_bytes(whole[:end])
        assert fresh.new_results() == there, end


def test_results_of_two_attempts_are_never_mixed(tmp_path: Path) -> None:
    fresh = FreshResults(str(tmp_path))
    list(written(str(tmp_path), 0, 0, [result(1)]))
    list(written(str(tmp_path), 1, 1, [result(2)]))
    assert fresh.new_results() == []


def test_results_without_a_place_are_still_returned(tmp_path: Path) -> None:
    assert list(written(str(tmp_path / "nowhere"), 0, 0, [result(1)])) == [result(1)]
