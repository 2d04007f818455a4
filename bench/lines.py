"""One line per tool and destination: the command that a user would run, and where the rows then are.

Every command is a whole process from cold. No tool may use the network beyond loopback: proxies point to a closed port.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import peers
import project
from data import BEFORE_SCHEMA, BEFORE_TABLE, Workload
from places import BENCH, REPOSITORY
from server import Server

Format = Literal["none", "parquet", "csv", "delta", "duckdb", "postgres", "iceberg"]
CLOSED_PORT = "http://127.0.0.1:9"
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "JAVA_HOME", "TMPDIR")


@dataclass(frozen=True)
class Task:
    """One run of one line. `merge` asks to keep the destination in step by key; `again` says it is the second sync."""

    workload: Workload
    server: Server
    folder: Path
    merge: bool = False
    again: bool = False

    @property
    def home(self) -> Path:
        return self.folder / "home"


@dataclass(frozen=True)
class Line:
    """A tool with a destination. `suites` names the workloads that it can do."""

    tool: str
    format: Format
    suites: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.tool} -> {self.format}"

    @property
    def is_peer(self) -> bool:
        return self.tool in peers.TOOLS

    def prepare(self, task: Task) -> None:
        """Makes what a user would have written once: configuration, folders. Not measured."""
        task.home.mkdir(parents=True, exist_ok=True)

    def command(self, task: Task) -> Sequence[str | Path]:
        raise NotImplementedError

    def adjusted(self, task: Task, record: dict[str, Any]) -> dict[str, Any]:
        """The record, where a line measures something else than its whole process."""
        return record

    def follow_up(self, task: Task) -> Sequence[str | Path]:
        """A command that makes the destination whole after the second sync, where the tool has one."""
        return ()

    def variables(self, task: Task) -> Mapping[str, str]:
        return {}

    def environment(self, task: Task) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        closed = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), CLOSED_PORT)
        local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        return kept | closed | local | {"HOME": str(task.home), "PYTHONUNBUFFERED": "1"} | dict(self.variables(task))

    def location(self, task: Task, table: str) -> Path:
        """The file or folder that holds the table at the destination."""
        return task.folder / table


class CopyLine(Line):
    """The limit: the whole table as binary COPY, thrown away."""

    @property
    def label(self) -> str:
        return "COPY binary to nowhere"

    def command(self, task: Task) -> Sequence[str | Path]:
        return [sys.executable, BENCH / "copy_line.py", task.server.uri, task.workload.schema, *task.workload.tables]


class DltLine(Line):
    """dlt's sql_database source over connectorx, the fastest of its backends here; else defaults."""

    def command(self, task: Task) -> Sequence[str | Path]:
        settings = {
            "uri": task.server.uri,
            "schema": task.workload.schema,
            "tables": task.workload.tables,
            "format": self.format,
            "folder": str(task.folder),
            "merge": task.merge,
        }
        return [peers.python("dlt"), BENCH / "dlt_line.py", json.dumps(settings)]

    def variables(self, task: Task) -> Mapping[str, str]:
        return {"RUNTIME__DLTHUB_TELEMETRY": "false", "DLT_DATA_DIR": str(task.home)}

    def location(self, task: Task, table: str) -> Path:
        return task.folder / "lake.duckdb" if self.format == "duckdb" else task.folder / "lake" / "shop" / table


class IngestrLine(Line):
    """ingestr takes one table a run: many tables are many runs, one after the other.

    Its merges go into PostgreSQL: Parquet cannot be merged into, and its DuckDB wants a driver that it would fetch.
    """

    def command(self, task: Task) -> Sequence[str | Path]:
        commands = [self.one_table(task, table) for table in task.workload.tables]
        return commands[0] if len(commands) == 1 else [sys.executable, BENCH / "in_turn.py", json.dumps(commands)]

    def one_table(self, task: Task, table: str) -> list[str]:
        source = [
            "--source-uri",
            f"{task.server.uri}?sslmode=disable",
            "--source-table",
            f"{task.workload.schema}.{table}",
        ]
        path = self.location(task, table)
        if self.format == "postgres":
            target = [
                "--dest-uri",
                f"{task.server.destination_uri}?sslmode=disable",
                "--dest-table",
                f"ingestr.{table}",
            ]
        else:
            target = ["--dest-uri", f"parquet://{path}", "--dest-table", table]
        keyed = ["--incremental-strategy", "merge", "--primary-key", "id", "--incremental-key", "updated_at"]
        base = [str(peers.program("ingestr")), "ingest", "--yes", "--progress", "log"]
        return [*base, *source, *target, *(keyed if task.merge else [])]

    def variables(self, task: Task) -> Mapping[str, str]:
        return {"TELEMETRY_OPTOUT": "true", "INGESTR_DISABLE_TELEMETRY": "true"}

    def location(self, task: Task, table: str) -> Path:
        return task.folder / f"{table}.parquet"


class SlingLine(Line):
    """sling into CSV files, and by merge into PostgreSQL: for Parquet and DuckDB it would fetch a program."""

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        defaults = {"mode": "full-refresh", "object": f"file://{task.folder}/{{stream_table}}.csv"}
        if task.merge:
            defaults = {"mode": "incremental", "object": "sling.{stream_table}", "update_key": "updated_at"}
        replication: dict[str, object] = {
            "source": "SHOP",
            "target": "LAKE" if task.merge else "LOCAL",
            "defaults": {**defaults, "primary_key": ["id"]} if task.merge else defaults,
            "streams": {f"{task.workload.schema}.*": {}},
        }
        (task.folder / "replication.json").write_text(json.dumps(replication))

    def command(self, task: Task) -> Sequence[str | Path]:
        return [peers.program("sling"), "run", "-r", task.folder / "replication.json"]

    def variables(self, task: Task) -> Mapping[str, str]:
        return {
            "SLING_HOME_DIR": str(task.home / "sling"),
            "SLING_DISABLE_TELEMETRY": "TRUE",
            "SHOP": f"{task.server.uri}?sslmode=disable",
            "LAKE": f"{task.server.destination_uri}?sslmode=disable",
        }

    def location(self, task: Task, table: str) -> Path:
        return task.folder / f"{table}.{self.format}"


class InstepLine(Line):
    """`instep sync`, as a whole process from cold."""

    warm: ClassVar[bool] = False

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        project.write(task.folder, task.server, task.workload, merge=task.merge, warm=self.warm, format=self.format)

    def command(self, task: Task) -> Sequence[str | Path]:
        return [self.program(), "sync", project.CONNECTION, "--project", task.folder]

    def follow_up(self, task: Task) -> Sequence[str | Path]:
        table = f"{task.workload.schema}.{task.workload.tables[0]}"
        return [self.program(), "backfill", table, "--project", task.folder]

    def program(self) -> Path:
        return Path(sys.executable).with_name("instep")

    def variables(self, task: Task) -> Mapping[str, str]:
        cache = os.environ.get("INSTEP_CACHE", str(REPOSITORY / ".cache" / "instep"))
        engine = os.environ.get("INSTEP_ENGINE", "spark")
        return {"INSTEP_CACHE": cache, "INSTEP_RESIDENT": "off", "INSTEP_ENGINE": engine}

    def location(self, task: Task, table: str) -> Path:
        return task.folder / ("lake.duckdb" if self.format == "duckdb" else "lake")


class WarmLine(InstepLine):
    """The second table of the same process: the wall time is its sync alone, CPU and memory are the whole process's."""

    warm: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "instep -> iceberg, warm"

    def command(self, task: Task) -> Sequence[str | Path]:
        tables = [f"{BEFORE_SCHEMA}.{BEFORE_TABLE}", f"{task.workload.schema}.{task.workload.tables[0]}"]
        return [sys.executable, BENCH / "warm.py", task.folder, self.seconds(task), *tables]

    def adjusted(self, task: Task, record: dict[str, Any]) -> dict[str, Any]:
        return record if record["exit_code"] else {**record, "wall": float(self.seconds(task).read_text())}

    def seconds(self, task: Task) -> Path:
        return task.folder / "seconds"


class ResidentLine(WarmLine):
    """A command of its own, in an engine that has synced another table before. Its CPU and memory are the client's."""

    @property
    def label(self) -> str:
        return "instep -> iceberg, resident"

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        subprocess.run(self._sync(task, BEFORE_SCHEMA, BEFORE_TABLE), env=self.environment(task), check=True)

    def command(self, task: Task) -> Sequence[str | Path]:
        return self._sync(task, task.workload.schema, task.workload.tables[0])

    def adjusted(self, task: Task, record: dict[str, Any]) -> dict[str, Any]:
        stop = [self.program(), "--project", task.folder, "engine", "stop"]
        subprocess.run(stop, env=self.environment(task), check=True, stdout=subprocess.DEVNULL)
        return record

    def variables(self, task: Task) -> Mapping[str, str]:
        return {**super().variables(task), "INSTEP_RESIDENT": "on"}

    def _sync(self, task: Task, schema: str, table: str) -> Sequence[str | Path]:
        return [self.program(), "sync", project.CONNECTION, "--project", task.folder, "--table", f"{schema}.{table}"]


FIRST_LOADS = ("1m", "5m", "many")
LINES: tuple[Line, ...] = (
    CopyLine("COPY", "none", (*FIRST_LOADS, "10m", "second")),
    InstepLine("instep", "iceberg", (*FIRST_LOADS, "10m", "second", "fill", "wide")),
    WarmLine("instep", "iceberg", ("1m", "5m")),
    ResidentLine("instep", "iceberg", ("1m", "5m")),
    InstepLine("instep", "duckdb", ("1m", "many", "second")),
    InstepLine("instep", "postgres", ("1m", "second")),
    DltLine("dlt", "parquet", (*FIRST_LOADS, "10m")),
    DltLine("dlt", "delta", (*FIRST_LOADS, "second")),
    DltLine("dlt", "duckdb", ("1m", "many", "second")),
    IngestrLine("ingestr", "parquet", FIRST_LOADS),
    IngestrLine("ingestr", "postgres", ("1m", "second")),
    SlingLine("sling", "csv", FIRST_LOADS),
    SlingLine("sling", "postgres", ("second",)),
)
