"""Syncs tables one after the other in one process and writes how many seconds the last of them took.

python warm.py PROJECT_FOLDER SECONDS_FILE SCHEMA.TABLE...
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
    folder, seconds, *tables = arguments
    with open_project(Path(folder)) as app:
        engine = app.engine(project.CONNECTION)
        context = app.sync_context(project.CONNECTION)
        for table in tables:
            begun = time.monotonic()
            report = sync(context, RunScope(frozenset([table])), engine=engine)
            took = time.monotonic() - begun
            print(table, report.status, f"{took:.3f} s", report.tables)
            if report.status != "done":
                return 1
    Path(seconds).write_text(f"{took:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
