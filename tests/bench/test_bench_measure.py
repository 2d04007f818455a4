"""The measuring wrapper on processes whose use of time and memory is known.

How long a process takes to start is not: what is told is compared with what else is told of the same run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "measure.py"
BURN = "import time\nend = time.process_time() + {0}\nwhile time.process_time() < end: pass\n"
HOLD = """
import os, sys, time
x = bytearray(100 << 20)
open(f"{sys.argv[1]}/{os.getpid()}", "w").close()
while len(os.listdir(sys.argv[1])) < 2: time.sleep(0.02)
time.sleep(1)
"""
SHARED = """
import mmap, os, time
x = mmap.mmap(-1, 100 << 20)
for at in range(0, 100 << 20, 4096): x[at] = 49
os.fork()
for at in range(0, 100 << 20, 4096): assert x[at] == 49
time.sleep(1)
"""
SERVES = """
import time
print(flush=True)
open("asked").read()
{0}
open("done", "w").close()
time.sleep(600)
"""
ORPHAN = """
import os, sys, time
while os.getppid() == int(sys.argv[1]): time.sleep(0.02)
time.sleep(1)
{0}
"""
ROUNDING = 0.1
"""CPU time is told in ticks of a hundredth of a second for each process."""


def measured(
    folder: Path,
    *command: str,
    seconds: float = 300,
    postmaster: int = 0,
    engine: int = 0,
    pss: bool = False,
    apart: Path | None = None,
) -> dict[str, Any]:
    result, log = folder / "result.json", folder / "log"
    flags = [*["--pss"] * pss, *(["--apart", str(apart)] if apart else [])]
    options = [str(result), str(log), str(postmaster), str(seconds), str(engine), *flags, "--", *command]
    subprocess.run([sys.executable, str(SCRIPT), *options], check=True)
    return dict(json.loads(result.read_text()))


def test_exit_code_and_output_are_kept(tmp_path: Path) -> None:
    found = measured(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert found["exit_code"] == 3
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_sleep_costs_wall_but_no_cpu(tmp_path: Path) -> None:
    found = measured(tmp_path, "sleep", "1")
    assert found["wall"] >= 1
    assert found["cpu"] <= found["wall"] - 1 + ROUNDING


def test_cpu_of_reaped_children_counts(tmp_path: Path) -> None:
    child = f"{sys.executable} -c '{BURN.format(0.3)}'"
    found = measured(tmp_path, "sh", "-c", f"{child}; {child}")
    assert 0.6 <= found["cpu"] <= found["wall"] + ROUNDING, "each counts once"


def test_cpu_of_an_orphan_counts_but_its_time_is_not_the_command_s(tmp_path: Path) -> None:
    """It lives for more than a second after the command, and is waited for."""
    orphan = f"{sys.executable} -c '{ORPHAN.format(BURN.format(0.4))}' $$"
    begun = time.monotonic()
    found = measured(tmp_path, "sh", "-c", f"{orphan} & exit 0")
    assert found["wall"] <= time.monotonic() - begun - 1.4
    assert found["cpu"] >= 0.4


def test_the_peak_is_the_sum_over_the_tree(tmp_path: Path) -> None:
    """Each holds it until the other one does, and for a while."""
    (tmp_path / "here").mkdir()
    hold = f"{sys.executable} -c '{HOLD}' {tmp_path / 'here'}"
    found = measured(tmp_path, "sh", "-c", f"{hold} & {hold} & wait")
    assert 200 <= found["peak_mb"] < 320


@pytest.mark.parametrize("pss", [False, True])
def test_a_shared_page_counts_once_if_it_is_to(tmp_path: Path, *, pss: bool) -> None:
    """Both processes have all of it in their page tables."""
    found = measured(tmp_path, sys.executable, "-c", SHARED, pss=pss)
    assert 90 <= found["peak_mb"] < 290
    assert (found["peak_mb"] >= 200) is not pss


@pytest.mark.parametrize("waits", ["by its parent", "by nobody"])
def test_processes_of_a_folder_and_what_they_start_are_told_apart(tmp_path: Path, waits: str) -> None:
    """One of them starts a program from elsewhere, and another one of the folder that outlives it."""
    apart = tmp_path / "apart"
    apart.mkdir()
    texts = {"burn": f"#!{sys.executable}\n{BURN.format(0.4)}"}
    texts["program"] = f"#!/bin/sh\n{apart / 'burn'} &\n{sys.executable} -c '{BURN.format(0.4)}'\n"
    for name, text in texts.items():
        (apart / name).write_text(text)
        (apart / name).chmod(0o700)
    program = apart / "program"
    word = "" if waits == "by its parent" else "&"
    found = measured(tmp_path, "sh", "-c", f"{program} {word}\n{sys.executable} -c '{BURN.format(0.3)}'", apart=apart)
    assert 0.8 - ROUNDING <= found["apart_cpu"] <= found["cpu"] - 0.3 + ROUNDING, "each counts once"


def test_processes_too_short_for_a_sample_are_told_apart(tmp_path: Path) -> None:
    """No sample shows most of them: what they take is in the time of the process that waits for them."""
    program = tmp_path / "apart" / "program"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nfor n in $(seq 300); do /bin/true; done\n")
    program.chmod(0o700)
    found = measured(tmp_path, "sh", "-c", f"{program}; {program}; {program}", apart=program.parent)
    assert found["cpu"] - found["apart_cpu"] <= found["cpu"] / 4


def test_memory_of_the_others_is_told_by_itself(tmp_path: Path) -> None:
    (tmp_path / "apart").mkdir()
    (tmp_path / "here").mkdir()
    python = tmp_path / "apart" / "python"
    python.symlink_to(sys.executable)
    held = f"-c '{HOLD}' {tmp_path / 'here'}"
    found = measured(tmp_path, "sh", "-c", f"{python} {held} & {sys.executable} {held} & wait", apart=python.parent)
    assert 100 <= found["own_peak_mb"] < 180
    assert found["peak_mb"] >= 200


def test_a_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    found = measured(tmp_path, "sleep", "600", seconds=0.3)
    assert found["exit_code"] == -9
    assert found["wall"] < 300


@pytest.mark.parametrize("serves_as", ["postmaster", "engine"])
def test_cpu_of_a_process_that_works_for_the_command_counts(tmp_path: Path, serves_as: str) -> None:
    """The command sleeps meanwhile: of one time, only one of them takes CPU. An engine's is the command's own."""
    for name in ("asked", "done"):
        os.mkfifo(tmp_path / name)
    command = [sys.executable, "-c", SERVES.format(BURN.format(0.3))]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        server.stdout.readline()
        asks = f"cd {tmp_path}; : > asked; cat done"
        found = measured(tmp_path, "sh", "-c", asks, **{serves_as: server.pid})  # type: ignore[arg-type]
    finally:
        server.kill()
        server.communicate()
    assert found["server_cpu" if serves_as == "postmaster" else "cpu"] >= 0.2
    assert found["cpu"] + found["server_cpu"] <= found["wall"] + ROUNDING


@pytest.mark.skipif(os.cpu_count() == 1, reason="one core")
def test_work_of_others_is_told(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "print(flush=True)\n" + BURN.format(600)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        found = measured(tmp_path, "sleep", "1")
    finally:
        other.kill()
        other.communicate()
    assert found["busy_elsewhere"] > 0.05
