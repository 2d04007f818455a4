"""Applied plans as `instep history --plans` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.cli.screen import Screen

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
