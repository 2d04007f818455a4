"""Queries over a destination's tables end when they are asked to."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

FOR_EVER = "select count(*) from range(1000000000000) t(x) where x % 7 = 3"
CODE = """
import sys
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.sync.query import ask
ask(DuckDbDestination(DuckDbConfig("there", sys.argv[1])), sys.argv[2])
"""


def test_ctrl_c_ends_a_long_query(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path / "lake.db"), FOR_EVER]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    ) as process:
        time.sleep(5)  # it is computing, or still importing: it ends in both cases
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=300)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in err
