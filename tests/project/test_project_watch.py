"""When a file counts as written: by its times at first, by its text in the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from instep.project.text import references
from instep.project.text.references import FileWatch, digest_of


def replaced(file: Path) -> None:
    """As editors write: another file takes its name."""
    other = file.with_name("other")
    other.write_text("b: 2\n")
    other.replace(file)


def behind_the_clock(file: Path) -> None:
    """Another text of the same length, with the times of before."""
    before = file.stat()
    file.write_text("a: 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


WRITINGS: list[tuple[str, Callable[[Path], object], bool]] = [
    ("nothing", lambda file: None, False),
    ("the same text", lambda file: file.write_text("a: 1\n"), False),
    ("only its times", lambda file: os.utime(file, (1, 1)), False),
    ("another text", lambda file: file.write_text("a: 1\nb: 2\n"), True),
    ("another file of that name", replaced, True),
    ("another text under the same time", behind_the_clock, True),
    ("nothing is there any more", lambda file: file.unlink(), True),
]


@pytest.mark.parametrize(("what", "write", "moved"), WRITINGS, ids=[w[0] for w in WRITINGS])
@pytest.mark.parametrize("settled", [0.0, 3600.0])
def test_writings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: float, what: str, write: Callable[[Path], object],
    moved: bool,
) -> None:  # fmt: skip
    """Whether a file system's clock is trusted at once, or not for an hour."""
    monkeypatch.setattr(references, "SETTLED", settled)
    file = tmp_path / "instep.yml"
    file.write_text("a: 1\n")
    seen = FileWatch(file, digest_of(file))
    assert not seen.has_changed()
    write(file)
    assert (seen.has_changed(), seen.has_changed()) == (moved, False), what


def test_a_file_that_comes_and_goes(tmp_path: Path) -> None:
    file = tmp_path / "instep.yml"
    seen = FileWatch(file, "")
    assert not seen.has_changed()
    file.write_text("a: 1\n")
    assert (seen.has_changed(), seen.has_changed()) == (True, False)
    file.unlink()
    assert (seen.has_changed(), seen.has_changed()) == (True, False)


def test_what_is_settled_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, reads = tmp_path / "instep.yml", list[Path]()
    file.write_text("a: 1\n")
    os.utime(file, (1, 1))
    seen = FileWatch(file, digest_of(file))
    monkeypatch.setattr(references, "digest_of", lambda path: (reads.append(path), digest_of(path))[1])
    assert [seen.has_changed() for _ in range(5)] == [False] * 5
    assert len(reads) == 1
