"""Traces of real work, as a collector on loopback receives them."""

from __future__ import annotations

import gzip
import io
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from instep.bootstrap import App, open_project
from instep.egress.guard import EgressGuard
from instep.errors import SetupError
from instep.logs import LogSettings, configure
from instep.monitoring.traces import TraceExporter, end
from instep.project.sections.channels import TracesSection
from instep.spans import in_current_span, span, tell
from instep.worker.perform import JobEnd, perform
from receivers import Web, web

LOOPBACK = EgressGuard(("127.0.0.0/8",))
FILE = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections: {shop: {}}
"""
ON = 'egress: {{allow: [127.0.0.0/8]}}\ntraces: {{url: "http://127.0.0.1:{port}/v1/traces", headers: {{authorization: "${{env:OTLP}}"}}}}\n'  # noqa: E501
SECRET = "Bearer 0123456789abcdef"


@pytest.fixture
def collector() -> Iterator[Web]:
    with web() as running:
        yield running


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    end()


def spans(collector: Web) -> list[Span]:
    """All that came, those that began first come first."""
    found = []
    for _, headers, body in collector.got:
        assert (headers["Content-Type"], headers["Content-Encoding"]) == ("application/x-protobuf", "gzip")
        for resource in ExportTraceServiceRequest.FromString(gzip.decompress(body)).resource_spans:
            assert "instep" in str(resource.resource)
            found += [one for scope in resource.scope_spans for one in scope.spans]
    return sorted(found, key=lambda one: one.start_time_unix_nano)


def facts(one: Span) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        return [plain(v) for v in value.array_value.values] if kind == "array_value" else getattr(value, kind)

    return {a.key.removeprefix("instep."): plain(a.value) for a in one.attributes}


def tree(found: list[Span]) -> dict[str, str]:
    """The name of each span's parent."""
    names = {one.span_id: one.name for one in found}
    return {one.name: names.get(one.parent_span_id, "") for one in found}


@pytest.fixture
def app(tmp_path: Path, collector: Web, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setenv("OTLP", SECRET)
    tmp_path.joinpath("instep.yml").write_text(FILE + ON.format(port=collector.port))
    sql(tmp_path, "create table item (id integer primary key, name text); insert into item values (1, 'canary-value')")
    return open_project(tmp_path)


def sql(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.executescript(script)


def work(app: App, kind: Any = "sync") -> JobEnd:
    app.store.jobs.enqueue("shop", kind)
    job = app.store.jobs.claim("test")
    assert job is not None
    ended = perform(app, job)
    app.store.jobs.finish(job, error=ended.error)
    return ended


def test_a_run_is_one_trace_with_its_steps_and_ids(app: App, collector: Web) -> None:
    out = io.StringIO()
    configure(LogSettings("json"), out)
    with app:
        assert work(app).error == ""
        sql(app.project.root, "alter table item add column size integer")
        run = work(app).run
        [change] = [r.id for r in app.store.reviews.find("shop") if r.kind == "column.added"]
    found = spans(collector)
    second = [one for one in found if one.trace_id == found[-1].trace_id]
    assert len({one.trace_id for one in found}) == 2
    assert tree(second) == {
        "job": "", "sync": "job", "discover": "sync", "detect": "sync", "diff": "detect", "apply.ddl": "sync",
        "apply.table": "apply.ddl", "extract": "sync", "commit": "sync",
    }  # fmt: skip
    by_name = {one.name: facts(one) for one in second}
    assert all(by_name[name]["run"] == run for name in by_name if name != "job")
    assert all(of["connection"] == "shop" for of in by_name.values())
    assert by_name["apply.ddl"]["changes"] == by_name["detect"]["changes"] == [change]
    assert (by_name["commit"]["table"], by_name["commit"]["read"]) == ("main.item", 1)
    assert by_name["sync"]["status"] == "done"
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {line["trace_id"] for line in lines if line.get("run") == run} == {second[0].trace_id.hex()}


def test_no_secret_and_no_value_is_in_a_trace(app: App, collector: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    with app:
        work(app)
    assert [headers["authorization"] for _, headers, _ in collector.got] == [SECRET]
    raw = b"".join(gzip.decompress(body) for _, _, body in collector.got)
    assert b"canary-value" not in raw
    assert b"0123456789abcdef" not in raw


def test_what_fails_says_why_without_its_secrets(collector: Web) -> None:
    traces = TraceExporter(LOOPBACK, TracesSection.resolved(url=f"http://127.0.0.1:{collector.port}/v1/traces"))

    def log_in() -> None:
        with span("load", note="token=hunter2hunter2"):
            tell(more=("a", "postgresql://u:hunter2hunter2@h/d"))
            raise ValueError("cannot log in with password=hunter2hunter2")

    with pytest.raises(ValueError, match="cannot log in"):
        log_in()
    traces.close()
    [one] = spans(collector)
    assert (one.status.code, one.status.message) == (2, "cannot log in with password=[redacted]")
    assert (facts(one)["error.type"], list(one.events)) == ("ValueError", [])
    assert b"hunter2" not in one.SerializeToString()


def test_parts_in_other_threads_are_within_theirs(collector: Web) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def inner(name: str) -> None:
        with span(name):
            pass

    traces = TraceExporter(LOOPBACK, TracesSection.resolved(url=f"http://127.0.0.1:{collector.port}/v1/traces"))
    with span("outer"), ThreadPoolExecutor(2) as pool:
        for name in ("a", "b"):
            pool.submit(in_current_span(inner, name)).result()
        pool.submit(inner, "lost").result()
    traces.close()
    assert tree(spans(collector)) == {"outer": "", "a": "outer", "b": "outer", "lost": ""}


REFUSED = [
    ("the collector fails", 500, LOOPBACK, "the collector answers 500"),
    ("an inner address that is not listed", 200, EgressGuard(), "this machine itself"),
]


@pytest.mark.parametrize(("status", "guard", "why"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_a_collector_that_does_not_take_it_holds_up_nothing(
    collector: Web, caplog: pytest.LogCaptureFixture, status: int, guard: EgressGuard, why: str
) -> None:
    collector.answers.append((status, {}))
    traces = TraceExporter(guard, TracesSection.resolved(url=f"http://127.0.0.1:{collector.port}/"))
    with caplog.at_level(logging.WARNING, "instep.traces"):
        with span("work"):
            done = True
        traces.close()
    assert done
    assert [why in record.getMessage() for record in caplog.records] == [True]


def test_nothing_is_imported_or_measured_where_it_is_off(tmp_path: Path) -> None:
    tmp_path.joinpath("instep.yml").write_text(FILE)
    sql(tmp_path, "create table item (id integer primary key)")
    code = (
        "import sys; from pathlib import Path; from instep.bootstrap import open_project; from instep.sync.run import "
        "sync\nwith open_project(Path(sys.argv[1])) as app:\n    pipe = app.sync_context('shop')\n    "
        "sync(pipe, engine=app.engine('shop'))\nfound = [m for m in sys.modules if m.startswith(('opentelemetry', "
        "'instep.monitoring.traces', 'instep.monitoring.lineage'))]\nassert found == [], found"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert span("a") is span("b", more=1)


def test_without_the_extra_the_next_step_is_told(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "instep.monitoring.traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with app, pytest.raises(SetupError, match="otel") as found:
        app.sync_context("shop")
    assert found.value.hint == "pip install 'instep[otel]'"
