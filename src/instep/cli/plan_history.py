"""Applied plans as `instep history --plans` shows them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.store.store import Store

_STYLES = {"done": "green", "failed": "red", "interrupted": "yellow", "running": "bold"}


def plan_rows(store: Store, connection: str, limit: int) -> list[dict[str, Any]]:
    """Newest first, each with its steps; without the plan itself, which only machines read."""
    rows = []
    for plan in store.plans.history(connection, limit):
        steps = [{k: v for k, v in asdict(s).items() if k != "plan"} for s in store.steps.of(plan.id)]
        rows.append({**{k: v for k, v in asdict(plan).items() if k != "plan"}, "steps": steps})
    return rows


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
        out.write("no plan was applied yet")


def _took(step: dict[str, Any]) -> str:
    if step["status"] != "done" or not step["started"] or not step["rows"]:
        return ""
    return f"  ({step['rows']:,} rows in {(step['ended'] - step['started']).total_seconds():.1f} s)"
