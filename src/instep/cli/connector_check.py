"""What `instep connector check` does and draws."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.cli.connector_text import operations_lines
from instep.cli.context import say

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.project.workbench import Workbench
    from instep.sources.connector.lint import Finding
    from instep.sources.connector.segment import Counts, LogLine


def check_sent(bench: Workbench, state: Mapping[str, Any]) -> tuple[Counts, tuple[Finding, ...]]:
    """Runs the connector to its end; what it sends goes to a folder that is deleted, segment by segment."""
    from instep.sources.connector.lint import lint
    from instep.sources.connector.segment import Counts
    from instep.sources.connector.sent import Sent

    sent, counts = Sent(), Counts()
    with tempfile.TemporaryDirectory(prefix="instep-check-") as folder:
        with ended(segments(bench, folder, state)) as found:
            while segment := found.next():
                sent.add(segment)
                counts += segment.counts
                found.acknowledge(segment)
    return counts, lint(sent.tables())


def show_findings(out: Screen, counts: Counts, findings: Sequence[Finding]) -> None:
    for line in operations_lines(counts):
        out.write(line)
    for found in findings:
        style = "yellow" if found.severity == "warn" else ""
        out.write(f"{found.severity}  {found.where}: {found.text}", style)
        out.write(f"      {found.hint}", "dim")
    if not findings:
        out.write("nothing looks wrong", "green")
