from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from instep import crash
from instep.crash import Crashed, crashpoint, points


def test_unarmed_points_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(crash.VARIABLE, raising=False)
    crashpoint("claimed")
    monkeypatch.setenv(crash.VARIABLE, "other=kill")
    crashpoint("claimed")


def test_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crash.VARIABLE, "other=kill, claimed=raise")
    with pytest.raises(Crashed, match="crash point claimed"):
        crashpoint("claimed")


def test_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crash.VARIABLE, "claimed=sleep:0.05")
    began = time.monotonic()
    crashpoint("claimed")
    assert time.monotonic() - began >= 0.05


def test_kill() -> None:
    code = f"import os; os.environ[{crash.VARIABLE!r}] = 'claimed=kill'; from instep.crash import crashpoint;"
    code += "\ntry: crashpoint('claimed')\nfinally: print('not reached')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_a_misspelt_action_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crash.VARIABLE, "claimed=explode")
    with pytest.raises(ValueError, match="'explode' is no action for claimed"):
        crashpoint("claimed")


def test_points_are_read_from_the_source(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    source = 'crashpoint("two")\n    crashpoint(\n        "one"\n    )\nnot_a_crashpoint("no")\n'
    (tmp_path / "a" / "x.py").write_text(source)
    (tmp_path / "y.py").write_text('crashpoint("two")')
    assert points(tmp_path) == ("one", "two")


def test_points_of_this_package_have_plain_names() -> None:
    assert all(name.replace("_", "").replace(".", "").isalnum() for name in points())
