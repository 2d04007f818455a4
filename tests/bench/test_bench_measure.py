"""The measuring wrapper on processes whose use of time and memory is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "measure.py"
BURN = "import time\nend = time.process_time() + {0}\nwhile time.process_time() < end: pass\n"


def measured(folder: Path, *command: str, seconds: float = 60, postmaster: int = 0) -> dict[str, Any]:
    result, log = folder / "result.json", folder / "log"
    options = [str(result), str(log), str(postmaster), str(seconds), "--", *command]
    subprocess.run([sys.executable, str(SCRIPT), *options], check=True)
    return dict(json.loads(result.read_text()))


def test_exit_code_and_output_are_kept(tmp_path: Path) -> None:
    found = measured(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert found["exit_code"] == 3
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_sleep_costs_wall_but_no_cpu(tmp_path: Path) -> None:
    found = measured(tmp_path, "sleep", "0.4")
    assert 0.4 <= found["wall"] < 3
    assert found["cpu"] < 0.2


def test_cpu_of_reaped_children_counts(tmp_path: Path) -> None:
    child = f"{sys.executable} -c '{BURN.format(0.3)}'"
    found = measured(tmp_path, "sh", "-c", f"{child}; {child}")
    assert 0.6 <= found["cpu"] < 2


def test_cpu_of_an_orphan_counts_but_its_time_is_not_the_command_s(tmp_path: Path) -> None:
    orphan = f"{sys.executable} -c 'import time; time.sleep(0.5)\n{BURN.format(0.4)}'"
    found = measured(tmp_path, "sh", "-c", f"{orphan} & exit 0")
    assert found["wall"] < 0.5
    assert found["cpu"] >= 0.4


def test_the_peak_is_the_sum_over_the_tree(tmp_path: Path) -> None:
    hold = f"{sys.executable} -c 'import time; x = bytearray(100 << 20); time.sleep(0.8)'"
    found = measured(tmp_path, "sh", "-c", f"{hold} & {hold} & wait")
    assert 200 <= found["peak_mb"] < 320


def test_a_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    found = measured(tmp_path, "sleep", "30", seconds=0.3)
    assert found["exit_code"] == -9
    assert found["wall"] < 5


def test_server_cpu_is_that_of_the_postmaster_s_family(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(0.3)\n" + BURN.format(0.3) + "time.sleep(9)"]
    )
    try:
        found = measured(tmp_path, "sleep", "1.5", postmaster=server.pid)
    finally:
        server.kill()
        server.wait()
    assert 0.2 <= found["server_cpu"] < 1
    assert found["cpu"] < 0.2


@pytest.mark.skipif(os.cpu_count() == 1, reason="one core")
def test_work_of_others_is_told(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", BURN.format(9)])
    try:
        found = measured(tmp_path, "sleep", "1")
    finally:
        other.kill()
        other.wait()
    assert found["busy_elsewhere"] > 0.05
