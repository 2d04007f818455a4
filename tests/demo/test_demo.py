"""The demo, played as a user would: one command, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def instep(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "instep.cli.main", "--project", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)


def test_the_demo_tells_its_story_and_leaves_a_project(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    try:
        played = instep(folder, "init", "--demo", "--run")
        assert played.returncode == 0, played.stdout + played.stderr
        story = played.stdout
        for part in (
            "column public.customer.phone renamed to mobile",
            "column public.product.legacy_code removed",
            "waits for a review",
            "instep backfill public.order",
            "applied: schema version 2",
            "columns that differ: discount",
            "undone: schema version 3",
            "The project stays in",
        ):
            assert part in story, part
        verdicts = re.findall(r"^(equal|DIFFERS) +public\.(\w+)", story, re.MULTILINE)
        assert [table for verdict, table in verdicts if verdict == "DIFFERS"] == ["order"]
        assert len([v for v in verdicts if v[0] == "equal"]) == 8 + 9 + 1
        assert "Traceback" not in played.stdout + played.stderr
        again = instep(folder, "sync")
        assert again.returncode == 0, again.stderr
        kept = instep(folder, "query", "select count(legacy_code) as kept from shop.product")
        assert "2000" in kept.stdout, kept.stdout + kept.stderr
    finally:
        assert instep(folder, "demo", "down").returncode == 0


def test_a_project_that_is_not_the_demo_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "instep.yml").write_text("version: 1\n", encoding="utf-8")
    refused = instep(tmp_path, "init", "--demo")
    assert refused.returncode == 1
    assert "not the demo" in refused.stderr
    assert (tmp_path / "instep.yml").read_text(encoding="utf-8") == "version: 1\n"
