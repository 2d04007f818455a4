"""What `instep connector check` does and draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING, Any

from instep.cli.render.connectors import TrialBoard, followed, operations_lines

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.project.files.workbench import Workbench
    from instep.sources.connector.lint import LintFinding
    from instep.sources.connector.segment import OperationCounts


def check_sent(bench: Workbench, state: Mapping[str, Any]) -> tuple[OperationCounts, tuple[LintFinding, ...]]:
    """Run the connector to its end; what it sends goes to a folder that is deleted, segment by segment."""
    from instep.temporary import temporary

    with temporary("check") as folder, followed() as trial:
        return _counted(bench, folder, state, trial)


def _counted(
    bench: Workbench, folder: str, state: Mapping[str, Any], trial: TrialBoard
) -> tuple[OperationCounts, tuple[LintFinding, ...]]:
    from instep.sources.connector.child import not_done
    from instep.sources.connector.config import ConnectorConfig
    from instep.sources.connector.lint import Sent, lint
    from instep.sources.connector.segment import OperationCounts
    from instep.sources.connector.spool import Segments

    config = ConnectorConfig.resolved(
        type="connector",
        path=str(bench.folder),
        configuration=bench.configuration,
        name=bench.folder.name,
        environment=bench.environment,
    )
    sent, counts = Sent(), OperationCounts()
    for line in not_done(config):
        trial.on_log_line(line)
    with closing(Segments(config, folder, state, trial.operations, trial.on_log_line)) as segments:
        while segment := segments.next():
            sent.add(segment)
            counts += segment.counts
            segments.acknowledge(segment)
    return counts, lint(sent.tables())


def _line(found: LintFinding) -> tuple[str, str, str, str]:
    """Return what columns of one table have in common that are told together; a table is told by itself."""
    table, dot, _ = found.where.rpartition(".") if found.kind.startswith("column.") else (found.where, "", "")
    return found.severity, found.text, found.hint, table + dot


def show_findings(out: Screen, counts: OperationCounts, findings: Sequence[LintFinding]) -> None:
    out.write("Operations", "bold")
    for line in operations_lines(counts):
        out.write(line)
    for (severity, text, hint, table), found in groupby(findings, _line):
        columns = [f.where.removeprefix(table) for f in found]
        names = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
        out.write(f"{severity}  {table}{names} {text}", "yellow" if severity == "warn" else "")
        out.write(f"      {hint}", "dim")
    if not findings:
        out.write("no problems found", "green")
