"""A connector's folder on its way to another machine, and the words that go back and forth."""

from __future__ import annotations

from pathlib import Path

import pytest
from sdk_world import written

from instep.errors import ProjectError, StageError
from instep.sources.connector.cluster import exchange as bundle
from instep.sources.connector.cluster.exchange import SegmentExchange, pack, unpack
from instep.sources.connector.config import ConnectorConfig
from instep.stage.files.place import StorageFolder

FILES = {
    "pages/one.py": "x = 1",
    "data/rates.csv": "a,b",
    "files/readme.md": "a folder of its own",
    "__pycache__/connector.pyc": "left out",
    "pages/__pycache__/one.pyc": "left out",
    ".venv/bin/python": "left out",
    ".git/config": "left out",
    ".instep/state.db": "left out",
    "trial/instep.yml": "left out",
    "trial/warehouse.db": "left out",
}
TAKEN = {"connector.py", "pages/one.py", "data/rates.csv", "files/readme.md"}


def made(folder: Path) -> ConnectorConfig:
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return ConnectorConfig.resolved(path=str(written(folder, "def update(configuration, state): pass")))


def names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_what_it_needs_is_taken_along(tmp_path: Path) -> None:
    config = made(tmp_path / "source")
    (tmp_path / "source/run.sh").write_text("#!/bin/sh")
    (tmp_path / "source/run.sh").chmod(0o755)
    folder, host = unpack(pack(config), tmp_path / "there")
    assert names(folder) == TAKEN | {"run.sh"}
    assert (folder / "pages/one.py").read_text() == "x = 1"
    assert [oct(p.stat().st_mode & 0o777) for p in (folder / "run.sh", folder / "connector.py")] == ["0o700", "0o600"]
    assert {"guard.py", "sdk/perform.py", "sdk/fivetran_connector_sdk/__init__.py"} <= names(host.program)


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    assert pack(made(tmp_path / "one")) == pack(made(tmp_path / "other"))


def test_links_are_followed_once(tmp_path: Path) -> None:
    config = made(tmp_path / "source")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/more.py").write_text("y = 2")
    (tmp_path / "source/shared").symlink_to(tmp_path / "shared")
    (tmp_path / "shared/back").symlink_to(tmp_path / "source")
    (tmp_path / "source/gone").symlink_to(tmp_path / "nowhere")
    folder, _ = unpack(pack(config), tmp_path / "there")
    assert names(folder) == TAKEN | {"shared/more.py"}


def test_what_cannot_travel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProjectError, match=r"has no connector\.py"):
        pack(ConnectorConfig.resolved(path=str(tmp_path)))
    config = made(tmp_path / "source")
    monkeypatch.setattr(bundle, "MOST", 100)
    with pytest.raises(ProjectError, match="keep data and environments out"):
        pack(config)


@pytest.fixture
def exchange(tmp_path: Path) -> SegmentExchange:
    return SegmentExchange(StorageFolder((tmp_path / "run").as_uri()), bytes(32))


def test_a_word_is_heard_as_it_was_said(exchange: SegmentExchange) -> None:
    assert exchange.receive("0/0") is None
    assert exchange.attempts() == []
    for number, said in enumerate(({"a": [1, None, "ä\ud800"]}, [], "x" * 3_000_000)):
        exchange.send(f"{number}/0", said)
        assert exchange.receive(f"{number}/0") == said
    exchange.send("driver", {"beat": 1})
    exchange.send("driver", {"beat": 2})
    assert exchange.receive("driver") == {"beat": 2}
    assert exchange.attempts() == [0, 1, 2]
    exchange.forget("1")
    assert exchange.attempts() == [0, 2]
    exchange.forget()
    assert exchange.receive("driver") is None


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_a_file_comes_as_it_went(exchange: SegmentExchange, tmp_path: Path, size: int) -> None:
    (tmp_path / "there").write_bytes(bytes(range(256)) * (size // 256) + bytes(size % 256))
    exchange.bring("0/segment-00001/t.parquet", tmp_path / "there")
    exchange.fetch("0/segment-00001/t.parquet", tmp_path / "here")
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()


def test_what_was_changed_or_moved_is_refused(exchange: SegmentExchange, tmp_path: Path) -> None:
    exchange.send("0/0", {"state": 1})
    word = tmp_path / "run/0/0"
    (tmp_path / "run/0/1").write_bytes(word.read_bytes())
    with pytest.raises(StageError, match=r"cannot read .*0/1"):
        exchange.receive("0/1")
    word.write_bytes(word.read_bytes()[:-1])
    with pytest.raises(StageError, match=r"cannot read .*0/0"):
        exchange.fetch("0/0", tmp_path / "here")
    with pytest.raises(StageError, match=r"cannot read .*0/7"):
        exchange.fetch("0/7", tmp_path / "here")
