"""Progress files: replaced whole, summed by the driver, never a reason to fail."""

from __future__ import annotations

from pathlib import Path

from instep.spark.watch import TaskProgress, collect
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
    assert collect(str(tmp_path)) == {}
    task(ChunkProgress("a", 2, 2, done=1))
    assert collect(str(tmp_path)) == {"a": (2, 2)}


def test_a_broken_or_missing_file_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text("{")
    assert collect(str(tmp_path)) == {}
    assert collect(str(tmp_path / "nowhere")) == {}
    TaskProgress(str(tmp_path / "nowhere"), 0, interval=0)(ChunkProgress("a", 1, 1, done=1))


def test_no_half_written_file_is_seen(tmp_path: Path) -> None:
    TaskProgress(str(tmp_path), 0, interval=0)(ChunkProgress("a", 1, 1))
    assert [f.name for f in tmp_path.iterdir()] == ["0.json"]
