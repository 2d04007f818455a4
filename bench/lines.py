"""One line per tool and destination: the command that a user would run, and where the rows then are.

Every command is a whole process from cold, but for those of a resident engine. No tool may use the network beyond
loopback: proxies point to a closed port.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import peers
import project
from data import Workload
from places import BENCH, REPOSITORY
from server import Server

Format = Literal["none", "parquet", "csv", "delta", "duckdb", "postgres", "iceberg"]
CLOSED_PORT = "http://127.0.0.1:9"
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "JAVA_HOME", "TMPDIR")


@dataclass(frozen=True)
class Task:
    """One run of one line. `by_cursor` asks to keep the destination in step by key, along a cursor; `again` says it is
    the second sync."""

    workload: Workload
    server: Server
    folder: Path
    by_cursor: bool = False
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
    def schema(self) -> str:
        """Where its tables are in PostgreSQL."""
        return self.tool

    @property
    def is_peer(self) -> bool:
        return self.tool in peers.TOOLS

    def prepare(self, task: Task) -> None:
        """Makes what a user would have written once: configuration, folders. Not measured."""
        task.home.mkdir(parents=True, exist_ok=True)

    def command(self, task: Task) -> Sequence[str | Path]:
        raise NotImplementedError

    def finish(self, task: Task) -> None:
        """Ends what `prepare` has started."""

    def engine(self, task: Task) -> int:
        """The process that the command hands its work to, 0 for none."""
        return 0

    def follow_up(self, task: Task) -> Sequence[str | Path]:
        """A command that makes the destination whole after the second sync, where the tool has one."""
        return ()

    def everyday(self, task: Task) -> Mapping[str, Sequence[str | Path]]:
        """Commands by their phase, for a project in which nothing has changed."""
        return {}

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
            "merge": task.by_cursor,
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
                f"{self.schema}.{table}",
            ]
        else:
            target = ["--dest-uri", f"parquet://{path}", "--dest-table", table]
        keyed = ["--incremental-strategy", "merge", "--primary-key", "id", "--incremental-key", "updated_at"]
        base = [str(peers.program("ingestr")), "ingest", "--yes", "--progress", "log"]
        return [*base, *source, *target, *(keyed if task.by_cursor else [])]

    def variables(self, task: Task) -> Mapping[str, str]:
        return {"TELEMETRY_OPTOUT": "true", "INGESTR_DISABLE_TELEMETRY": "true"}

    def location(self, task: Task, table: str) -> Path:
        return task.folder / f"{table}.parquet"


class SlingLine(Line):
    """sling into CSV files, and by merge into PostgreSQL: for Parquet and DuckDB it would fetch a program."""

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        defaults = {"mode": "full-refresh", "object": f"file://{task.folder}/{{stream_table}}.csv"}
        if task.by_cursor:
            defaults = {"mode": "incremental", "object": f"{self.schema}.{{stream_table}}", "update_key": "updated_at"}
        replication: dict[str, object] = {
            "source": "SHOP",
            "target": "LAKE" if task.by_cursor else "LOCAL",
            "defaults": {**defaults, "primary_key": ["id"]} if task.by_cursor else defaults,
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


@dataclass(frozen=True)
class InstepLine(Line):
    """`instep sync`, as a whole process from cold."""

    reads: Literal["spark", "local"] = "spark"
    """The engine of the project file that reads the rows."""
    resident: ClassVar[str] = "off"

    @property
    def label(self) -> str:
        return super().label + (", engine: local" if self.reads == "local" else "")

    @property
    def schema(self) -> str:
        return f"instep_{self.reads}_{self.resident}"

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        into = {"format": self.format, "schema": self.schema}
        project.write(task.folder, task.server, task.workload, by_cursor=task.by_cursor, **into)

    def command(self, task: Task) -> Sequence[str | Path]:
        return self.instep(task, "sync", project.CONNECTION)

    def follow_up(self, task: Task) -> Sequence[str | Path]:
        table = f"{task.workload.schema}.{task.workload.tables[0]}"
        return self.instep(task, "backfill", "--connection", project.CONNECTION, table)

    def everyday(self, task: Task) -> Mapping[str, Sequence[str | Path]]:
        return {
            "unchanged": self.command(task),
            "status": self.instep(task, "status"),
            "plan": self.instep(task, "plan", project.CONNECTION),
            "changes": self.instep(task, "changes", "list"),
        }

    def instep(self, task: Task, *arguments: str) -> Sequence[str | Path]:
        return [Path(sys.executable).with_name("instep"), "--project", task.folder, *arguments]

    def variables(self, task: Task) -> Mapping[str, str]:
        cache = os.environ.get("INSTEP_CACHE", str(REPOSITORY / ".cache" / "instep"))
        return {
            "INSTEP_CACHE": cache,
            "INSTEP_RESIDENT": self.resident,
            "INSTEP_ENGINE": self.reads,
            "PYTHONPATH": str(REPOSITORY / "src"),
        }

    def location(self, task: Task, table: str) -> Path:
        places = {"duckdb": Path("lake.duckdb"), "delta": Path("lake", "shop", table)}
        return task.folder / places.get(self.format, Path("lake"))


class ResidentLine(InstepLine):
    """A command of an engine that has synced another table before; all of the engine's processes are measured."""

    resident: ClassVar[str] = "on"

    @property
    def label(self) -> str:
        return super().label + ", resident"

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        self.run(task, "sync", project.BEFORE)

    def finish(self, task: Task) -> None:
        self.run(task, "engine", "stop")

    def engine(self, task: Task) -> int:
        return int(json.loads(self.run(task, "engine", "status", "--output", "json"))["pid"])

    def run(self, task: Task, *arguments: str) -> bytes:
        command = self.instep(task, *arguments)
        return subprocess.run(
            command, env=self.environment(task), check=True, cwd=task.folder, stdout=subprocess.PIPE
        ).stdout


FIRST_LOADS = ("1m", "5m", "many")
LINES: tuple[Line, ...] = (
    CopyLine("COPY", "none", (*FIRST_LOADS, "10m", "second", "large")),
    InstepLine("instep", "iceberg", (*FIRST_LOADS, "10m", "second", "fill", "wide", "unchanged")),
    InstepLine("instep", "delta", ("1m", "second")),
    InstepLine("instep", "duckdb", ("1m", "many", "second")),
    InstepLine("instep", "postgres", ("1m", "second")),
    ResidentLine("instep", "iceberg", (*FIRST_LOADS, "second", "unchanged", "large", "whole")),
    ResidentLine("instep", "delta", ("1m", "second", "large", "whole")),
    ResidentLine("instep", "duckdb", ("1m", "many", "second")),
    ResidentLine("instep", "postgres", ("1m", "second")),
    InstepLine("instep", "iceberg", (*FIRST_LOADS, "second"), "local"),
    InstepLine("instep", "duckdb", ("1m", "many", "second"), "local"),
    InstepLine("instep", "postgres", ("1m", "second"), "local"),
    DltLine("dlt", "parquet", (*FIRST_LOADS, "10m")),
    DltLine("dlt", "delta", (*FIRST_LOADS, "second", "large")),
    DltLine("dlt", "duckdb", ("1m", "many", "second")),
    IngestrLine("ingestr", "parquet", FIRST_LOADS),
    IngestrLine("ingestr", "postgres", ("1m", "second")),
    SlingLine("sling", "csv", FIRST_LOADS),
    SlingLine("sling", "postgres", ("second",)),
)
