"""Run the DAG in Airflow twice: as it is, and with a change of the source that a person decides while the DAG waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import shop

ANSWER = """
import sys, time, instep
with instep.open(sys.argv[1]) as project:
    connection = project.connection()
    while not connection.changes():
        time.sleep(0.5)
    time.sleep(3)
    runs = sum(run["kind"] == "sync" for run in connection.runs())
    assert runs == 1, f"the DAG waits before its sync: {runs}"
    project.approve(*connection.changes())
"""


def run_dag() -> dict[str, str]:
    """Run the DAG as `airflow dags test` does; return the state of each task."""
    from instep_shop import made

    done = made.test()
    assert done.state == "success", done.state
    return {one.task_id: str(one.state) for one in done.get_task_instances()}


def main(folder: Path) -> None:
    shop.create(folder)
    wanted = dict.fromkeys(("decided", "detect", "sync", "verify"), "success")
    assert run_dag() == wanted
    shop.run(folder, shop.CHANGE)
    answered: list[int] = []
    command = [os.environ["INSTEP_PYTHON"], "-c", ANSWER, str(folder)]
    person = threading.Thread(target=lambda: answered.append(subprocess.run(command, check=False).returncode))
    person.start()
    begun = time.monotonic()
    assert run_dag() == wanted
    person.join()
    assert answered == [0]
    print(f"airflow: the DAG ran, waited for a decision and went on ({time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
