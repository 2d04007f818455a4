"""A project whose connector tells where it runs, and waits in the middle until it is let go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.store.store import Store

SECRET = "api-key-canary"
CODE = """
import os, time
from pages import page
from fivetran_connector_sdk import Connector, Logging as log, Operations as op

def schema(configuration):
    return [{"table": "orders", "primary_key": ["id"], "columns": {"id": "LONG", "word": "STRING"}}]

def wait(configuration, name):
    gates = configuration["gates"]
    with open(f"{gates}/{name}-{os.getpid()}.new", "w") as file:
        file.write(os.getcwd())
    os.rename(file.name, file.name[:-4])
    while not os.path.exists(f"{gates}/{name}"):
        time.sleep(0.1)

def update(configuration, state):
    assert configuration["api_key"][::-1] == "yranac-yek-ipa"  # this file lies on the worker's disk
    at = state.get("at", 0)
    if at == 0:
        page(0, 8, "new")
        op.checkpoint({"at": 1})
    if at <= 1:
        wait(configuration, "first")
        page(0, 1, "newer")
        op.delete("orders", {"id": 4})
        op.checkpoint({"at": 2})
    if not os.path.exists(configuration["gates"] + "/well"):
        raise ValueError("no more pages")
    wait(configuration, "last")
    page(9, 10, "last")
    op.checkpoint({"at": 3})

connector = Connector(update=update, schema=schema)
"""
PAGES = """
from fivetran_connector_sdk import Operations as op

def page(first, end, word):
    for n in range(first, end):
        op.upsert("orders", {"id": n, "word": word})
"""


@dataclass(frozen=True)
class Child:
    """A connector's process: its number, and the folder that it runs in."""

    number: int
    folder: str


class Shop:
    """The project, synced by processes of their own."""

    def __init__(self, folder: Path, spark: Mapping[str, Any]) -> None:
        self.folder, self.gates = folder, folder / "gates"
        self.gates.mkdir()
        (folder / "connector").mkdir()
        (folder / "connector" / "connector.py").write_text(CODE)
        (folder / "connector" / "pages.py").write_text(PAGES)
        configuration = {"gates": str(self.gates), "api_key": "${env:API_KEY}"}
        source = {"type": "connector", "path": "connector", "configuration": configuration}
        project = {
            "version": 1, "project": "shop", "engine": "spark", "spark": spark, "sources": {"api": source},
            "destinations": {"lake": {"type": "iceberg", "warehouse": "lake", "upsert_rows": 0}},
            "connections": {"shop": {"source": "api", "destination": "lake"}},
        }  # fmt: skip
        (folder / "instep.yml").write_text(json.dumps(project))

    def begin(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "instep.cli.main", "--project", str(self.folder), "sync", "shop"]
        environment = {**os.environ, "API_KEY": SECRET, "SPARK_LOCAL_IP": "127.0.0.1"}
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
        )  # fmt: skip

    def sync(self) -> subprocess.CompletedProcess[str]:
        with self.begin() as running:
            said = running.communicate(timeout=600)
        return subprocess.CompletedProcess(running.args, running.returncode, *said)

    def child(self, gate: str, running: subprocess.Popen[str], but: int = 0) -> Child:
        """One that waits at a gate, another one than `but`."""
        ends = time.monotonic() + 300
        while time.monotonic() < ends:
            for file in self.gates.glob(f"{gate}-*[0-9]"):
                if (number := int(file.name.rpartition("-")[2])) != but:
                    return Child(number, file.read_text())
            assert running.poll() is None, running.communicate()
            time.sleep(0.1)
        raise AssertionError(f"no connector came to {gate}")

    def open(self, gate: str) -> None:
        (self.gates / gate).touch()

    def ends(self, child: Child, seconds: float = 300) -> bool:
        """Whether its process is gone, and its folder with all rows beside it, at last."""
        ends = time.monotonic() + seconds
        process, scratch = Path(f"/proc/{child.number}"), Path(child.folder).parent
        while (process.exists() or scratch.exists()) and time.monotonic() < ends:
            time.sleep(0.1)
        return not (process.exists() or scratch.exists())

    @property
    def state(self) -> dict[str, Any]:
        with Store(f"sqlite:///{self.folder / '.instep/state.db'}") as store:
            return dict(store.connectors.get("shop").state)

    def rows(self) -> dict[int, str]:
        """Those that are not deleted."""
        lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(self.folder / "lake")))
        rows = lake.write.read(("shop", "orders")).read_all().to_pylist()
        return {row["id"]: row["word"] for row in sorted(rows, key=lambda r: r["id"]) if not row["_instep_deleted"]}
