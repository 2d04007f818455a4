"""What a command loads: nobody waits for an engine that is not needed, and rooms keep to their side."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

COMMANDS = """\
import os, sys
from instep.cli.main import main
codes = [main(words.split("|")) for words in sys.argv[1:]]
os.write(3, "\\n".join([str(max(codes)), *sys.modules]).encode())
"""
IMPORT = """\
import os, sys
before = set(sys.modules)
import {}
os.write(3, "\\n".join(set(sys.modules) - before).encode())
"""
COLLECTIONS = """\
import atexit, gc, os, sys
from instep.cli.main import run
phases = []
gc.callbacks.append(lambda phase, told: phases.append(phase))
atexit.register(lambda: os.write(3, str(phases.count("start")).encode()))
run(sys.argv[1:])
"""
ENGINE = {"pyspark", "py4j"}
DATA = {*ENGINE, "pandas", "pyarrow", "pyiceberg", "duckdb", "psycopg", "adbc_driver_postgresql"}
HEAVY = {*DATA, "pydantic", "sqlalchemy", "alembic", "yaml"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table item (id integer primary key, name text)")
    tmp_path.joinpath("instep.yml").write_text(
        "sources: {db: {type: sqlite, path: shop.db}}\ndestinations: {lake: {type: iceberg}}\nconnections: {shop: {}}\n"
    )
    return tmp_path


def python(code: str, *words: str, env: dict[str, str] | None = None) -> list[str]:
    """What the code writes to file descriptor 3, by lines."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    wiring = f"import os; os.dup2({write}, 3)\n"
    done = subprocess.run(
        [sys.executable, "-c", wiring + code, *words],
        capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}, pass_fds=[write],
    )  # fmt: skip
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read().splitlines()
    assert done.returncode == 0, done.stderr
    return said


def loaded(*commands: Sequence[str], env: dict[str, str] | None = None) -> tuple[int, set[str]]:
    """(highest exit code, every module) of commands in one process."""
    code, *modules = python(COMMANDS, *("|".join(words) for words in commands), env=env)
    return int(code), set(modules)


def top(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def rooms(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if name.startswith("instep.")}


WITHOUT_ENGINE: list[list[str]] = [
    ["--help"], ["version"], ["validate"], ["plan"], ["apply", "--yes"], ["changes", "list"], ["status"], ["history"],
    ["history", "item.name"], ["schema", "show"], ["schema", "diff", "--at", "1"], ["schema", "lock"],
    ["detect"], ["source", "discover"], ["destination", "test"], ["sync"],
    ["query", "select * from shop.item"], ["pause"],
]  # fmt: skip


def test_only_commands_that_move_rows_load_an_engine(folder: Path) -> None:
    code, modules = loaded(*(["-p", str(folder), *words] for words in WITHOUT_ENGINE))
    assert code == 0
    assert top(modules) & ENGINE == set()


def test_no_command_without_rows_starts_java(folder: Path) -> None:
    mark, java = folder / "started", folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho \"$@\" >> '{mark}'\nexit 1\n")
    java.chmod(0o755)
    env = {"PATH": f"{java.parent}:{os.environ['PATH']}", "JAVA_HOME": str(folder)}
    commands = (["-p", str(folder), *words] for words in WITHOUT_ENGINE)
    assert loaded(*commands, env=env)[0] == 0
    assert not mark.exists()
    project = folder / "instep.yml"
    project.write_text(project.read_text() + "engine: spark\n")
    assert loaded(["-p", str(folder), "resume"], ["-p", str(folder), "sync", "--full"], env=env)[0] != 0
    assert mark.exists(), "sync on Spark does ask for Java, so the trap works"


def test_help_loads_nothing_heavy() -> None:
    code, modules = loaded(["--help"])
    assert code == 0
    assert top(modules) & HEAVY == set()
    assert rooms(modules) == {"cli", "errors", "loopback", "operations", "redaction"}
    assert "instep.cli.screen" not in modules
    assert len(modules) < 700  # they are what a start takes


STORE_ONLY: list[list[str]] = [["changes", "list"], ["status"], ["history"], ["pause"], ["resume"], ["validate"]]


def test_looking_at_the_store_loads_neither_source_nor_destination(folder: Path) -> None:
    code, modules = loaded(*(["-p", str(folder), *words] for words in STORE_ONLY))
    assert code == 0
    assert rooms(modules) & {"sources", "destinations", "spark", "stage"} == set()
    assert {m for m in modules if m.startswith("instep.sync.")} <= {"instep.sync.status"}
    assert top(modules) & DATA == set()


def test_a_command_looks_for_no_garbage_among_its_imports(folder: Path) -> None:
    assert python(COLLECTIONS, "-p", str(folder), "sync") == ["0"]


BETWEEN_DATABASES = [
    "instep.bootstrap", "instep.project.load", "instep.sync.run", "instep.notify.hooks", "instep.notify.routes",
    "instep.sources.postgres.source", "instep.destinations.postgres.destination",
]  # fmt: skip


def test_a_sync_between_databases_loads_no_more_than_it_needs() -> None:
    modules = set(python(IMPORT.format(", ".join(BETWEEN_DATABASES))))
    assert top(modules) & {*ENGINE, "pandas", "pyiceberg", "duckdb", "alembic", "pymysql", "cryptography"} == set()
    assert modules & {"http.client", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.mysql"} == set()
    assert {m for m in modules if m.startswith("instep.spark.")} <= {"instep.spark.settings", "instep.spark.failure"}


BESIDE = """\
import os, sys
from instep.cli.context import options
from instep.cli.render.live import Board, drawn
options.output = sys.argv[1]
with drawn(Board()):
    pass
os.write(3, str("rich.table" in sys.modules).encode())
"""


@pytest.mark.parametrize(("output", "loaded"), [("table", "True"), ("json", "False")])
def test_what_a_report_is_printed_with_is_loaded_beside_the_run(output: str, loaded: str) -> None:
    assert python(BESIDE, output) == [loaded]


STORED = {
    "errors",
    "suggest",
    "redaction",
    "crash",
    "sqlite_wal",
    "private",
    "schema",
    "operations",
    "model",
    "events",
    "store",
}
IMPORTS = [
    ("instep.errors", {"errors", "redaction"}),
    ("instep.schema.planning.plan", {"errors", "redaction", "schema", "suggest"}),
    ("instep.store.store", STORED),
    ("instep.control.reviews", STORED | {"control"}),
    ("instep.control.pauses", STORED | {"control"}),
    (
        "instep.project.load",
        {"errors", "suggest", "redaction", "egress", "logs", "schema", "operations", "model", "project"},
    ),
    ("instep.bootstrap", {"errors", "redaction", "operations", "model", "private", "bootstrap"}),
    (
        "instep.server.app",
        {
            "errors",
            "redaction",
            "egress",
            "crash",
            "sqlite_wal",
            "private",
            "logs",
            "schema",
            "operations",
            "model",
            "events",
            "store",
            "project",
            "control",
            "notify",
            "monitoring",
            "server",
            "suggest",
        },
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "allowed"), IMPORTS, ids=[case[0] for case in IMPORTS])
def test_rooms_load_only_what_lies_below_them(module: str, allowed: set[str]) -> None:
    modules = set(python(IMPORT.format(module)))
    assert rooms(modules) <= allowed
    assert top(modules) & DATA == set()


def test_import_instep_loads_nothing_else() -> None:
    assert set(python(IMPORT.format("instep"))) <= {"instep", "__future__"}


def test_only_the_spark_room_imports_pyspark() -> None:
    source = Path(__file__).parents[1] / "src" / "instep"
    found = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.lstrip().startswith(("import pyspark", "from pyspark")) and not _for_types_only(path, line)
    }
    assert found <= {"spark"}


def _for_types_only(path: Path, line: str) -> bool:
    """Imports under TYPE_CHECKING are indented and come before the first definition."""
    text = path.read_text()
    head = text.partition("\ndef ")[0].partition("\nclass ")[0].partition("\n@")[0]
    return "if TYPE_CHECKING:" in head and line.startswith("    ") and line in head.partition("if TYPE_CHECKING:")[2]


FEW_ROWS = {"first_rows", "_parsed", "reading"}
"""Functions whose DuckDB in memory has so few rows that nothing goes to the disk."""


def test_rows_in_memory_that_go_to_the_disk_go_to_a_folder_of_this_user() -> None:
    """DuckDB would take `.tmp` of the current folder, which others may read."""
    found, exposed = 0, []
    for file in (Path(__file__).parents[1] / "src").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "duckdb.connect(" not in text:
            continue
        for function in (f for f in ast.walk(ast.parse(text)) if isinstance(f, ast.FunctionDef)):
            segment = ast.get_source_segment(text, function) or ""
            if re.search(r'duckdb\.connect\((":memory:"|\))', segment):
                found += 1
                if "temp_directory" not in segment and function.name not in FEW_ROWS:
                    exposed.append(f"{file.name}: {function.name}")
    assert (found > 5, exposed) == (True, [])
