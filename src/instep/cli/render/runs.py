"""The report of a sync: a table of results, the notes of the run, and the exit code.

Applied plans as `instep history --plans` shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.cli.context import PARTIAL, fail, say
from instep.errors import SourceLost

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.sync.progress import SyncReport


_NUMBERS = ("read", "inserted", "updated", "deleted", "invalid")


def end_as(report: SyncReport) -> None:
    """End the command with the exit code of a run."""
    if report.status == "partial":
        raise fail(PARTIAL)
    if report.has_no_source:
        say("the source could not be read: try `instep source test`, then run `instep sync` again", style="yellow")
    if report.status != "done":
        raise fail(SourceLost.exit_code if report.has_no_source else 1)


def show_report(out: Screen, report: SyncReport) -> None:
    """Show the result of each table, the notes and the status of the run."""
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(box=None, header_style="bold", padding=(0, 1 if out.narrow else 2, 0, 0))
    grid.add_column("table", overflow="fold")  # the only one that gives way
    for name in ("mode", *_NUMBERS, "status"):
        grid.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for t in report.tables:
        style = {"done": "green", "failed": "bold red"}.get(t.status, "yellow")
        numbers = (f"{n:,}" if n else "·" for n in (t.read, t.inserted, t.updated, t.deleted, t.invalid_values))
        grid.add_row(cell(_path(t.table)), t.mode, *numbers, cell(t.status, style))
    out.print(grid)
    for t in report.tables:
        if t.error:
            out.print(f"{_path(t.table)}: {t.error}", style="red" if t.status == "failed" else "yellow")
    for note in report.notes:
        out.write(f"note: {note}", "yellow")
    if report.waiting:
        ids = ", ".join(report.waiting)
        say(f"{len(report.waiting)} change(s) wait for a review: {ids}. Run `instep changes list`.")
    by = f" by {report.engine}" if report.engine else ""
    say(f"{report.status} in {report.seconds:.1f} s{by}, run {report.run}")
    if report.engine and report.engine.page:
        say(f"Spark's page: {report.engine.page}")


def _path(table: tuple[str, str]) -> str:
    return ".".join(filter(None, table))


_STYLES = {"done": "green", "failed": "red", "interrupted": "yellow", "running": "bold"}


def show_plans(out: Screen, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        version = f"  version {row['version']}" if row["version"] else ""
        line = (
            f"{row['at']:%Y-%m-%d %H:%M:%S}  {row['id']}  {row['status']}{version}  by {row['who']}, run {row['run']}"
        )
        out.write(line, _STYLES[row["status"]])
        if row["error"]:
            out.write(f"    {row['error']}", "yellow")
        for step in row["steps"]:
            out.write(f"    {step['status']:<8} {step['at_table']}: {step['text']}{_took(step)}")
            if step["error"]:
                out.write(f"        {step['error']}", "red")
    if not rows:
        out.write("no plan has been applied yet")


def _took(step: dict[str, Any]) -> str:
    if step["status"] != "done" or not step["started"] or not step["rows"]:
        return ""
    return f"  ({step['rows']:,} rows in {(step['ended'] - step['started']).total_seconds():.1f} s)"
