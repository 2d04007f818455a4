"""Run the examples of schedulers against the real ones, each in a pinned environment of its own: `make examples`.

Environments and what runs leave are below .cache/examples.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = ROOT / ".cache" / "examples"
EXAMPLES = ("airflow", "dagster")
FROM_SOURCE = "pyspark"
"""The one package of the lock files that is published as source only."""


def environment(name: str) -> Path:
    """Return the Python of the example's environment, made anew when its lock file is another one."""
    lock, place = HERE / name / "requirements.lock", CACHE / name
    stamp, digest = place / "lock.sha256", hashlib.sha256(lock.read_bytes()).hexdigest()
    python = place / "bin" / "python"
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"examples: installing {name}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    pinned = ["--require-hashes", "--only-binary=:all:", f"--no-binary={FROM_SOURCE}", "-r", lock]
    subprocess.run([*pip, *pinned], check=True)
    if name == "dagster":
        subprocess.run([*pip, "-e", ROOT], check=True)
    stamp.write_text(digest)
    return python


def run(name: str) -> None:
    """Run one example; its process fails if something is not as it has to be."""
    python, work = environment(name), CACHE / f"{name}-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(work / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(HERE / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "INSTEP_PYTHON": sys.executable,
        "INSTEP_PROJECT": str(work / "project"),
        "INSTEP_POKE_SECONDS": "1",
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    commands = [[str(python), str(HERE / name / "check.py"), env["INSTEP_PROJECT"]]]
    if name == "airflow":
        commands.insert(0, [str(python), "-m", "airflow", "db", "migrate"])
    log = work / "log"
    for command in commands:
        with log.open("wb") as output:
            done = subprocess.run(command, env=env, stdout=output, stderr=output, timeout=900, check=False)
        if done.returncode:
            raise SystemExit(f"examples: {name} failed: see {log}\n{log.read_text(errors='replace')[-2000:]}")
    print(log.read_text(errors="replace").splitlines()[-1])


if __name__ == "__main__":
    for chosen in sys.argv[1:] or EXAMPLES:
        run(chosen)
