"""Syncs one connection after the other in one process and writes how many seconds the last of them took.

python warm.py PROJECT_FOLDER SECONDS_FILE
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import project
from instep.bootstrap import open_project
from instep.sync.run import RunScope, sync


def main(arguments: Sequence[str]) -> int:
    folder, seconds = arguments
    with open_project(Path(folder)) as app:
        for connection in (project.BEFORE, project.CONNECTION):
            context, engine = app.sync_context(connection), app.engine(connection)
            begun = time.monotonic()
            report = sync(context, RunScope(), engine=engine)
            took = time.monotonic() - begun
            print(connection, report.status, f"{took:.3f} s", report.tables)
            if report.status != "done":
                return 1
    Path(seconds).write_text(f"{took:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
