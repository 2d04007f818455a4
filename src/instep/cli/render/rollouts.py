"""Rollouts as people and programs read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from instep.control.rollouts.gates import gates_of
from instep.control.rollouts.machine import status_word
from instep.control.rollouts.waves import group_of
from instep.model import Rollout

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.control.immediate.rollouts import CreatedRollout
    from instep.control.queries.decisions import RolloutDetails, RolloutMember

ORDER = ("done", "already", "running", "waiting", "failed", "blocked", "skipped", "rolled_back")
_QUIET = ("done", "already", "waiting")
_STYLES = {"failed": "bold red", "blocked": "yellow", "running": "cyan", "done": "green", "halted": "bold red"}


def counts_of(members: Sequence[RolloutMember]) -> dict[str, int]:
    counts = Counter[str](m.status for m in members)
    return {status: counts[status] for status in ORDER if counts[status]}


def rollout_document(made: RolloutDetails, members: Sequence[RolloutMember], *, every: bool) -> dict[str, Any]:
    """Return the rollout as JSON has it; without `every`, only with the connections that need attention."""
    shown = [m for m in members if every or _speaks(m)]
    numbers = sorted({m.wave for m in members if m.wave})
    waves = [{"wave": n, "counts": counts_of([m for m in members if m.wave == n])} for n in numbers]
    return {
        "rollout": {field.name: getattr(made, field.name) for field in fields(Rollout)},
        "counts": counts_of(members),
        "waves": waves,
        "connections": [asdict(m) for m in shown],
    }


def _speaks(member: RolloutMember) -> bool:
    return member.status not in _QUIET or bool(member.error or (member.findings and not member.accepted))


def draft_document(drafted: CreatedRollout) -> dict[str, Any]:
    made = drafted.rollout
    values = {"what": made.what, "group": made.group, "waves": list(made.sizes), "gates": made.gates}
    return {**values, "dry_run": True, "fits": drafted.fits, "connections": [asdict(m) for m in drafted.connections]}


def list_document(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    return {"rollouts": [asdict(r) for r in rollouts]}


def show_list(out: Screen, rollouts: Sequence[Rollout]) -> None:
    if not rollouts:
        out.write("no rollouts: `instep rollout create --help` shows how to start one")
    for one in rollouts:
        why = f": {one.why}" if one.why else ""
        line = (
            f"{one.id}  {one.status}, wave {one.wave} of {one.of}{why}  ({one.who}, {one.created:%Y-%m-%d %H:%M} UTC)"
        )
        out.write(line, _STYLES.get(one.status, ""))


def show_draft(out: Screen, drafted: CreatedRollout) -> None:
    out.write(drafted.rollout.text, "bold")
    _show_rules(out, drafted.rollout.group, drafted.rollout.gates)
    _show_members(out, [asdict(m) for m in drafted.connections])


def show_rollout(out: Screen, document: Mapping[str, Any], text: str) -> None:
    made = document["rollout"]
    out.write(f"{made['id']}: {text}", "bold")
    _show_rules(out, made["group"], made["gates"])
    for wave in document["waves"]:
        out.write(f"  wave {wave['wave']}: {_counted(wave['counts'])}")
    _show_members(out, document["connections"])
    why = f"; {made['why']}" if made["why"] and made["status"] != "partial" else ""  # that one repeats the counts
    out.write(f"{made['status']}: {_counted(document['counts'])}{why}", _STYLES.get(made["status"], ""))


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {status_word(status)}" for status, number in counts.items())


def _show_rules(out: Screen, group: Mapping[str, Any], gates: Mapping[str, Any]) -> None:
    out.write(f"  connections: {group_of(group).text}")
    out.write(f"  halts if {'; '.join(gates_of(gates).lines) or 'nothing: all gates are off'}")


def _show_members(out: Screen, rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    if not rows:
        return
    grid = Grid("connection", "wave", "status", "fit", "why", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for row in rows:
        planned = "" if row["status"] == "rolled_back" else row["why"]
        why = row["error"] or "; ".join(row["findings"]) or planned
        fit = "" if row["fit"] == row["status"] else row["fit"]
        state = cell(status_word(row["status"]), _STYLES.get(row["status"], ""))
        grid.add_row(cell(row["connection"]), cell(row["wave"] or ""), state, cell(fit), cell(why))
    out.print(grid)
