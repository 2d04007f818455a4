"""What a worker has imported, the daemon that forks the next one has imported, too; but no code of users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

DAEMON = """
import json, os, signal, sys, time
from instep.stage import preload

def worker(*names):
    pid = os.fork()
    if not pid:
        before = set(sys.modules)
        for name in names:
            __import__(name)
        preload.tell_imports()
        os._exit(0)
    os.waitpid(pid, 0)

def has(*names):
    return [name for name in names if name in sys.modules]

names = ("wave", "pyarrow.substrait", "of_a_user")
worker(*names)
silent = has(*names)
preload.listen()
worker(*names)
end = time.monotonic() + 60
while "pyarrow.substrait" not in sys.modules and time.monotonic() < end:
    time.sleep(0.01)
print(json.dumps([silent, has(*names)]))
"""


def test_what_a_worker_imports_the_next_one_has(tmp_path: Path) -> None:
    (tmp_path / "of_a_user.py").write_text("")
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", DAEMON],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert json.loads(done.stdout) == [[], ["wave", "pyarrow.substrait"]]
