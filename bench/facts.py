"""What the figures depend on: the machine's size and the versions of everything measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import peers
from server import Server


def machine_facts(server: Server) -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory_gb():.0f} GB",
        "Linux": platform.release().split("-")[0],
        "Python": platform.python_version(),
        "Java": java_version(),
        "PostgreSQL": server.version,
        **{name: version(name) for name in ("instep", "pyspark", "pyiceberg", "pyarrow")},
        **peers.versions(),
    }


def memory_gb() -> float:
    found = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found.group(1)) / 2**20 if found else 0.0


def java_version() -> str:
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return "none"
    found = re.search(r'version "([^"]+)"', shown)
    return found.group(1) if found else "unknown"
