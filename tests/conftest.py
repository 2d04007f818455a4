"""Fixtures that every room's tests may use: a real PostgreSQL, one per test session, a database per test."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from xdist.scheduler import LoadGroupScheduling, Scheduling

import samples
from azure_server import azure_server  # noqa: F401 - fixture
from environment import isolate
from instep import logs, redaction
from instep.sources.sqlite import connect
from mariadb import mariadb, mariadb_server  # noqa: F401 - fixtures
from postgres_server import Database, Server, launch, make_database
from rest_catalog import rest_catalog, rest_catalog_in_s3, rest_jvm  # noqa: F401 - fixtures
from s3_server import bucket, container, s3_server  # noqa: F401 - fixtures
from statements import share_compiled

isolate()  # before anything reads a variable of the shell
share_compiled()
os.environ["INSTEP_RESIDENT"] = "off"  # commands of tests run in their own process; tests/engine has engines
os.environ.setdefault("INSTEP_ENGINE", "local")  # project files that name no engine start no JVM

connect.SETTLED = 3600.0  # what a test has just written is not found to be unchanged because the machine is slow

RANDOM = "INSTEP_RANDOM" in os.environ
"""Other examples in each run, to look for what nobody knows yet; else a test that passes passes everywhere."""
settings.register_profile(
    "instep",
    deadline=None,
    print_blob=True,
    derandomize=not RANDOM,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100 if samples.FULL else 30,
)
settings.register_profile("fast", settings.get_profile("instep"), max_examples=15)
settings.load_profile("instep")

if not RANDOM:
    # Hypothesis mixes in literals of the modules that are loaded, which other tests of the process decide: without
    # them an example is the same alone, in the whole suite and on every machine
    assert callable(HypothesisProvider._maybe_draw_constant)
    HypothesisProvider._maybe_draw_constant = lambda *_, **__: None  # type: ignore[method-assign]

_numbers = itertools.count(1)
SERVERS = {"azure_server", "bucket", "make_world", "mariadb_server", "postgres_server", "rest_jvm", "s3_server"}
"""Fixtures whose tests talk to a real server: too slow for the tests that run all the time."""
SESSIONS = {"spark", "spark_session"}
"""Fixtures with the Spark session of a process: one process of a run starts it, and its code gets warm once."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All modules and tests live to the end: the garbage collector does not look through them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else extension modules find at the end of the process that they leak


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")
        if SESSIONS & set(getattr(item, "fixturenames", ())) and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.xdist_group("spark"))
    if not samples.FULL and not any("::" in str(place) for place in config.args):
        out = samples.left_out(items)
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]
    if "PYTEST_XDIST_WORKER" in os.environ:
        for item in items:
            if group := item.get_closest_marker("xdist_group"):
                # what pytest-xdist does itself, in a way that pytest 9.2 does not see (pytest-xdist #1386)
                item._id = NodeId.parse(f"{item.nodeid}@{group.args[0]}")


class _Scheduling(LoadGroupScheduling):
    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Look no further back than to the last group that is done: a process runs its groups in order. pytest-xdist
        looks at all that it ever gave to the process, after each of more than ten thousand tests."""
        pending = 0
        for group in reversed(workload.values()):
            if not (left := list(group.values()).count(False)):
                break
            pending += left
        return pending


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return _Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not samples.FULL:
        again = f"INSTEP_SAMPLE={samples.seed()} chooses it again, make test-all runs all"
        terminalreporter.line(f"of sampled tests a part ran: {again}")


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """What a command of this process has set up for its own logs ends with its test, and secrets are forgotten."""
    yield
    root = logging.getLogger()
    root.handlers[:] = [h for h in root.handlers if not isinstance(h.formatter, logs.AsJson | logs.AsText)]
    root.setLevel(logging.WARNING)
    for name in ("instep", "uvicorn"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.captureWarnings(capture=False)
    redaction._process = redaction.Redactor()
    redaction._referenced.clear()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The session's server, PostgreSQL 18 or POSTGRES_MAJOR=16. A short path: socket names have a limit."""
    folder = Path(tempfile.mkdtemp(prefix="instep-pg-"))
    folder.chmod(0o755)
    server = launch(folder / "server", int(os.environ.get("POSTGRES_MAJOR", "18")))
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[Database]:
    """A database for this test alone."""
    name = f"test_{next(_numbers)}"
    database = make_database(postgres_server, name)
    yield database
    replace(database, config=database.config.model_copy(update={"database": "postgres"})).execute(
        f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'
    )
