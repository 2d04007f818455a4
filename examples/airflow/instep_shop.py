"""Detect schema changes, wait until each is decided, sync, verify.

instep runs in an environment of its own, whose Python is INSTEP_PYTHON: its packages and Airflow's never meet.
"""

from __future__ import annotations

import os
import subprocess
from datetime import datetime

from airflow.sdk import dag, task

PYTHON = os.environ["INSTEP_PYTHON"]
FOLDER = os.environ["INSTEP_PROJECT"]
CONNECTION = "shop"
POKE_SECONDS = float(os.environ.get("INSTEP_POKE_SECONDS", "60"))
WAITS = 3
UNDECIDED = f"""
import sys, instep
with instep.open(sys.argv[1]) as project:
    sys.exit({WAITS} if project.connection(sys.argv[2]).changes() else 0)
"""


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1, tags=["instep"])
def instep_shop():
    @task.external_python(python=PYTHON, expect_airflow=False, expect_pendulum=False)
    def detect(folder: str, connection: str) -> list[str]:
        """Record what has changed at the source, and evaluate it against the policy."""
        import instep

        with instep.open(folder) as project:
            return [change.summary for change in project.connection(connection).detect().changes]

    @task.sensor(poke_interval=POKE_SECONDS, timeout=7 * 86400, mode="reschedule")
    def decided(folder: str, connection: str) -> bool:
        """Wait until no change needs a person any more: `instep changes approve`, or the web page."""
        code = subprocess.run([PYTHON, "-c", UNDECIDED, folder, connection], check=False).returncode
        if code not in (0, WAITS):
            raise RuntimeError(f"instep could not be asked: its process ended with {code}")
        return code == 0

    @task.external_python(python=PYTHON, expect_airflow=False, expect_pendulum=False)
    def sync(folder: str, connection: str) -> dict[str, int]:
        """Apply what was decided, and load the rows. The task fails if a table does."""
        import instep

        with instep.open(folder) as project:
            done = project.connection(connection).sync().raise_for_failure()
        return {".".join(table.table): table.read for table in done.tables}

    @task.external_python(python=PYTHON, expect_airflow=False, expect_pendulum=False)
    def verify(folder: str, connection: str) -> None:
        """Compare both sides, row by row."""
        import instep

        with instep.open(folder) as project:
            wrong = [one for one in project.connection(connection).verify() if not one.equal]
        if wrong:
            raise ValueError("; ".join(f"{one.table}: {', '.join(one.differences)}" for one in wrong))

    detect(FOLDER, CONNECTION) >> decided(FOLDER, CONNECTION) >> sync(FOLDER, CONNECTION) >> verify(FOLDER, CONNECTION)


made = instep_shop()
