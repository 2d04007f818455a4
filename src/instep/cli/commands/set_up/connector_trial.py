"""Run a connector on this machine through an ordinary sync, and reset what such runs left behind.

What `instep connector check` does and draws.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from instep.cli.context import emit
from instep.cli.render.live import TrialBoard, followed, operations_lines, schema_lines
from instep.cli.render.runs import end_as, show_report

if TYPE_CHECKING:
    from pathlib import Path

    from instep.bootstrap import App
    from instep.cli.render.live import Line
    from instep.cli.screen import Screen
    from instep.project.files.workbench import Workbench, WorkbenchTarget
    from instep.sources.connector.lint import LintFinding
    from instep.sources.connector.segment import OperationCounts
    from instep.sync.progress import SyncReport


def try_out(bench: Workbench, target: WorkbenchTarget, *, own_state: bool) -> None:
    """Run one sync into `target`. With `own_state` it begins from the workbench's state file and writes the new
    state there, also when it fails."""
    from instep.bootstrap import App
    from instep.cli.render.live import followed

    with App(bench.project(target)) as app:
        forget_vanished(app, target)
        if own_state:
            app.store.connectors.save(target.name, bench.read_state())
        before = app.store.accepted.catalog(target.name)
        with followed() as live:
            try:
                from instep.sync.run import RunScope, sync

                report = sync(app.sync_context(target.name), RunScope(), live, app.engine(target.name))
            finally:
                if own_state:
                    bench.write_state(app.store.connectors.get(target.name).state)
        changes = schema_lines(before, app.store.accepted.catalog(target.name))
    _tell(bench, target, own_state, report, live.counts, changes)


def _tell(
    bench: Workbench,
    target: WorkbenchTarget,
    own_state: bool,
    report: SyncReport,
    counts: OperationCounts,
    changes: list[Line],
) -> None:
    state = str(bench.state) if own_state else ""
    operations = {**asdict(counts), "schema_changes": sum(line[:1] != " " for line, _ in changes)}
    data = {
        **asdict(report),
        "operations": operations,
        "schema": [line for line, _ in changes],
        "destination": str(target.path),
        "state_file": state,
    }

    def draw(out: Screen) -> None:
        out.write("Operations", "bold")
        for line in operations_lines(counts, operations["schema_changes"]):
            out.write(line)
        out.write("Schema", "bold")
        for line, style in changes or [("no changes", "dim")]:
            out.write(f"  {line}", style)
        show_report(out, report)
        out.write(f"in {target.path}{f', state in {state}' if state else ''}", "dim")
        out.write(f'query it: instep --project {bench.files} query "SQL"', "dim")

    emit(data, draw)
    end_as(report)


def forget_vanished(app: App, target: WorkbenchTarget) -> None:
    """Delete the records of a target that somebody has deleted: it counts as a new one."""
    from instep.control.connectors import forget_operations

    if not target.path.exists() and app.store.accepted.latest(target.name) is not None:
        app.store.connections.forget(target.name)
        forget_operations(app.project, app.store, target.name)


def forget(bench: Workbench) -> list[str]:
    """Delete the warehouse, the state and what is recorded of debug runs; answers the paths that were there."""
    from instep.bootstrap import App
    from instep.control.connectors import forget_operations
    from instep.project.sections.connector import uploads_folder

    target = bench.warehouse
    there: list[Path] = []
    if bench.files.exists():
        with App(bench.project(target)) as app:
            app.store.connections.forget(target.name)
            forget_operations(app.project, app.store, target.name)
        there = sorted(bench.files.glob(f"{target.path.name}*"))
        there += [uploads] if (uploads := uploads_folder(bench.files, target.name)).is_dir() else []
    there += [bench.state] if bench.state.exists() else []
    for path in there:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [str(path) for path in there]


def forget_table(bench: Workbench, name: str) -> list[str]:
    """Drop one table and the state, so that the next run sends all again: other tables get their rows once more, by
    key. InstepError if debug runs have made no such table."""
    from instep.bootstrap import App
    from instep.sync.operations.delete import forget_sent

    target = bench.warehouse
    with App(bench.project(target)) as app:
        forget_vanished(app, target)
        forget_sent(app.sync_context(target.name), name)
    bench.state.unlink(missing_ok=True)
    return [f"table {name}", str(bench.state)]


def check_sent(bench: Workbench, state: Mapping[str, Any]) -> tuple[OperationCounts, tuple[LintFinding, ...]]:
    """Run the connector to its end; what it sends goes to a folder that is deleted, segment by segment."""
    from instep.temporary import temporary

    with temporary("check") as folder, followed() as trial:
        return _counted(bench, folder, state, trial)


def _counted(
    bench: Workbench, folder: str, state: Mapping[str, Any], trial: TrialBoard
) -> tuple[OperationCounts, tuple[LintFinding, ...]]:
    from instep.sources.connector.config import ConnectorConfig
    from instep.sources.connector.dialect import SdkDialect
    from instep.sources.connector.lint import SegmentTotals, lint
    from instep.sources.connector.segment import OperationCounts
    from instep.sources.connector.spool import Segments

    config = ConnectorConfig.resolved(
        type="connector",
        path=str(bench.folder),
        configuration=bench.configuration,
        name=bench.folder.name,
        environment=bench.environment,
    )
    sent, counts = SegmentTotals(), OperationCounts()
    dialect = SdkDialect(config)
    for line in dialect.notices():
        trial.on_log_line(line)
    with closing(Segments(dialect, folder, state, trial.operations, trial.on_log_line)) as segments:
        while segment := segments.next():
            sent.add(segment)
            counts += segment.counts
            segments.acknowledge(segment)
    return counts, lint(sent.tables())


def _line(lint_finding: LintFinding) -> tuple[str, str, str, str]:
    """Return (columns of one table as a group, or a table by itself) to report together."""
    table, dot, _ = (
        lint_finding.where.rpartition(".") if lint_finding.kind.startswith("column.") else (lint_finding.where, "", "")
    )
    return lint_finding.severity, lint_finding.text, lint_finding.hint, table + dot


def show_findings(out: Screen, counts: OperationCounts, findings: Sequence[LintFinding]) -> None:
    out.write("Operations", "bold")
    for line in operations_lines(counts):
        out.write(line)
    for (severity, text, hint, table), group in groupby(findings, _line):
        columns = [f.where.removeprefix(table) for f in group]
        names = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
        out.write(f"{severity}  {table}{names} {text}", "yellow" if severity == "warn" else "")
        out.write(f"      {hint}", "dim")
    if not findings:
        out.write("no problems found", "green")
