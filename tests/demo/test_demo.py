"""The demo, played as a user would: one command, in a process of its own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytestmark = [pytest.mark.drawn(5, together=True), pytest.mark.spark, pytest.mark.slow]


CHAPTERS = 14
PARTS = (
    "column public.customer.phone renamed to mobile",
    "breaks 1 model: call_list",
    "column public.product.legacy_code removed",
    "waits for a review",
    "applied: schema version 2",
    "writes 1 file again",
    "discount filled in 59,400 rows loaded before",
    "undone: schema version 3",
    "public.product  warranty  not a number",
    "public.product: 40 replayed, 0 superseded by newer values, 0 still quarantined",
    "50  lifetime  L50",
    "? main.sale: buyer -> client: 0.97",
    "1,000 of 1,000 sampled rows have the same value",
    "The project stays in",
    "column public.product.weight removed",
    "Two changes wait for a review",
)
TABLES = 9 + 1


def instep(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "instep.cli.main", "--project", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Not in pytest's folder: another session takes away the rights that a server under another user needs."""
    with TemporaryDirectory(prefix="instep-demo-") as made:
        yield Path(made)
        assert instep(Path(made), "demo", "down").returncode == 0


@pytest.fixture(scope="module")
def story(folder: Path) -> str:
    """Of a demo that replaces another one."""
    assert instep(folder, "init", "--demo").returncode == 0
    played = instep(folder, "init", "--demo", "--run")
    assert played.returncode == 0, played.stdout + played.stderr
    assert "Traceback" not in played.stdout + played.stderr
    assert "WARN" not in played.stderr
    return played.stdout


@pytest.mark.parametrize("part", PARTS)
def test_it_is_told(story: str, part: str) -> None:
    assert part in story


def test_its_chapters_are_numbered_and_short(story: str) -> None:
    titles = re.findall(r"^(\d+)\. (.+)$", story, re.MULTILINE)
    assert [int(number) for number, _ in titles] == list(range(1, CHAPTERS + 1))
    assert all(len(title) <= 76 for _, title in titles)
    chapters = re.split(r"^\d+\. .+$", story, flags=re.MULTILINE)[1:]
    assert max(len(chapter.splitlines()) for chapter in chapters) <= 45


def test_its_commands_fit_on_a_line(story: str) -> None:
    commands = re.findall(r"^\$ instep .+$", story, re.MULTILINE)
    assert len(commands) >= 15
    assert max(map(len, commands)) <= 110


def test_reading_a_column_takes_a_part_of_reading_the_table(story: str) -> None:
    asked = story[story.index("--dry-run") :]
    (whole, large), (column, small) = re.findall(r"about 60,000 rows, ([\d.]+) ([KM])iB", asked)
    assert (large, small) == ("M", "K")
    assert float(column) < 0.3 * float(whole) * 1024


def test_it_ends_with_everything_equal(story: str) -> None:
    verdicts = re.findall(r"^(equal|DIFFERS) +\w+\.(\w+)", story, re.MULTILINE)
    assert [verdict for verdict, _ in verdicts] == ["equal"] * TABLES


def test_what_it_says_to_try_works(folder: Path, story: str) -> None:
    commands = re.findall(r"^  instep (.+)$", story.partition("The project stays in")[2], re.MULTILINE)
    assert commands.pop() == "ui"
    assert commands.pop() == "demo down"
    assert len(commands) >= 5
    for command in commands:
        tried = instep(folder, *shlex.split(command))
        assert tried.returncode == 0, (command, tried.stderr)
        assert tried.stdout


def test_what_it_leaves_goes_on(folder: Path, story: str) -> None:
    assert story
    for connection in ("shop", "till"):
        again = instep(folder, "sync", connection)
        assert again.returncode == 0, again.stderr
    kept = instep(folder, "query", "select count(legacy_code) as kept from shop.product")
    assert "2000" in kept.stdout, kept.stdout + kept.stderr


def test_a_project_that_is_not_the_demo_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "instep.yml").write_text("version: 1\n", encoding="utf-8")
    refused = instep(tmp_path, "init", "--demo")
    assert refused.returncode == 1
    assert "not the demo" in refused.stderr
    assert (tmp_path / "instep.yml").read_text(encoding="utf-8") == "version: 1\n"
