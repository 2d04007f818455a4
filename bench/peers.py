"""The other tools, each pinned in a virtual environment of its own.

A lock file names every package that an environment may hold; `--no-deps` keeps anything else out.
The ingestr and sling releases are the last ones whose engine ships inside the package: later ones fetch it when first
run.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from places import LOCKS, LOGS, VENVS

TOOLS = ("dlt", "ingestr", "sling")
NEVER_INSTALLED = ("fivetran-connector-sdk", "fivetran-connector-sdk-core")


def pinned(tool: str) -> dict[str, str]:
    """Package to version, from the tool's lock file."""
    lines = (LOCKS / f"{tool}.txt").read_text().split()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def python(tool: str) -> Path:
    return VENVS / tool / "bin" / "python"


def program(tool: str) -> Path:
    """The tool's own program. Sling is the binary itself: its Python wrapper would fetch one."""
    if tool == "sling":
        return next((VENVS / tool).glob("lib/python*/site-packages/sling_linux_amd64/bin/sling-linux-amd64"))
    return VENVS / tool / "bin" / tool


def installed(tool: str) -> bool:
    stamp = VENVS / tool / "lock.sha256"
    return stamp.exists() and stamp.read_text() == lock_hash(tool)


def lock_hash(tool: str) -> str:
    return hashlib.sha256((LOCKS / f"{tool}.txt").read_bytes()).hexdigest()


def install(tool: str) -> None:
    """Makes the tool's environment unless the one that is there came from this very lock file."""
    if installed(tool):
        return
    if unwanted := set(pinned(tool)) & set(NEVER_INSTALLED):
        raise SystemExit(f"bench/locks/{tool}.txt: {', '.join(sorted(unwanted))} must not be installed")
    print(f"bench: installing {tool} {pinned(tool)[main_package(tool)]}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", VENVS / tool], check=True)
    log = LOGS / f"install-{tool}.log"
    with log.open("wb") as output:
        packages = ["--no-deps", "--only-binary=:all:", f"--requirement={LOCKS / tool}.txt"]
        command = [str(python(tool)), "-m", "pip", "install", *packages]
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise SystemExit(f"bench: pip could not install {tool}: see {log}")
    (VENVS / tool / "lock.sha256").write_text(lock_hash(tool))


def main_package(tool: str) -> str:
    return "sling-linux-amd64" if tool == "sling" else tool


def versions() -> dict[str, str]:
    return {tool: pinned(tool)[main_package(tool)] for tool in TOOLS}
