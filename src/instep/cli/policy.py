"""`instep policy ...`: what a policy says, why, whether it says what is wanted, and what it would have said."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.context import emit, fail, one_connection, open_app, say

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.control.policies import CaseResult, Explanation, PolicyShown, RuleShown
    from instep.control.simulation import Compared, Outcome, Simulation
    from instep.schema.policy import Rule, Trace, Voice

Connection = Annotated[str | None, typer.Argument(help="Its name in instep.yml; not needed when there is only one.")]
Of = Annotated[str | None, typer.Option("--connection", "-c", help="Not needed when there is only one.")]
policy = typer.Typer(help="Policies: show, explain, test, simulate, import.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(policy, name="policy")


@policy.command(epilog="Examples: instep policy show · instep policy show shop --output json")
def show(connection: Connection = None) -> None:
    """A connection's preset, rules in their order, modifiers and tables that differ; what the preset says."""
    from instep.control.policies import shown

    with open_app() as app:
        found = shown(app.project, one_connection(app, connection))
    emit(found.document(), lambda out: _show_policy(out, found))


@policy.command(
    epilog="Examples: instep policy explain public.order.note column.removed · "
    "instep policy explain public.order.id column.retyped --from int32 --to uuid"
)
def explain(
    path: Annotated[str, typer.Argument(metavar="TABLE[.COLUMN]", help="schema.table or schema.table.column.")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of change, such as column.removed.")],
    connection: Of = None,
    before: Annotated[str, typer.Option("--from", help="The type that the column has.")] = "",
    after: Annotated[str, typer.Option("--to", help="The type that it gets; for a rename, the new name.")] = "",
) -> None:
    """What is decided about such a change, by which rule, and why no earlier rule decided."""
    from instep.control.policies import explain as explain_it

    with open_app() as app:
        name = one_connection(app, connection)
        found = explain_it(app.project, app.store, name, path, kind, before, after)
    emit(_explanation_data(found), lambda out: _show_explanation(out, found))


@policy.command("test", epilog="Example: instep policy test cases.yml --connection shop")
def run(
    file: Annotated[Path, typer.Argument(help="A list of sample changes with what is expected.")],
    connection: Of = None,
) -> None:
    """Decide sample changes and compare with what is expected; exit with 1 if any differs. For the format see
    docs/cli.md."""
    from instep.control.policies import run_cases

    with open_app() as app:
        name = one_connection(app, connection)
        results = run_cases(app.project, name, file)
    failed = [r for r in results if r.wrong]
    data = {"connection": name, "cases": len(results), "failed": len(failed), "results": [*map(_case_data, results)]}
    emit(data, lambda out: _show_cases(out, failed, len(results)))
    if failed:
        raise fail(1)


@policy.command(epilog="Example: instep policy simulate stricter.yml --since 2026-11-01")
def simulate(
    file: Annotated[Path, typer.Argument(help="One policy, as under one name of policies: in instep.yml.")],
    connection: Annotated[str | None, typer.Option("--connection", "-c", help="Only this one, not all.")] = None,
    since: Annotated[str, typer.Option("--since", metavar="DATE", help="First seen on this day (UTC) or later.")] = "",
) -> None:
    """What the policy in FILE would have decided on every recorded change, beside what was decided then."""
    from instep.control.simulation import moment
    from instep.control.simulation import simulate as simulate_it
    from instep.project.policy_files import read_policy

    section, start = read_policy(file), moment(since) if since else None
    with open_app() as app:
        names = app.project.selected([connection] if connection else [])
        found = [simulate_it(app.project, app.store, name, file.stem, section, start) for name in names]
    emit({"connections": [*map(_simulation_data, found)]}, lambda out: _show_simulations(out, found))


@policy.command("import", epilog="Example: instep policy import schema.json --connection shop --out keys.yml")
def take_over(
    file: Annotated[Path, typer.Argument(help="A connector's schema config, as JSON or YAML.")],
    connection: Of = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A new file for the keys.")] = None,
) -> None:
    """The keys of instep.yml that mean the same as a tree of schemas, tables and columns; instep.yml is not touched.
    What cannot be taken over is said. See docs/settings.md."""
    from instep.control.policies import take_over as keys_of

    with open_app() as app:
        name = one_connection(app, connection)
        found = keys_of(app.project, app.store, name, file)
    if out is not None:
        with out.open("x", encoding="utf-8") as written:
            written.write(found.text)
        say(f"wrote {out}: put its keys into instep.yml, then `instep validate`")
    for note in found.notes:
        say(f"note: {note}")
    data = {"connection": name, "keys": found.keys, "notes": found.notes, "file": str(out) if out else None}
    emit(data, lambda _: None if out else typer.echo(found.text, nl=False))


def _rule_data(rule: Rule) -> dict[str, Any]:
    return {**asdict(rule), "text": str(rule)}


def _show_policy(out: Screen, p: PolicyShown) -> None:
    name = f"policy {p.policy.name}" if p.policy.name else "no policy of its own"
    out.write(f"{p.connection}: {name}, preset {p.policy.preset}", "bold")
    for title, said in (("tags", ", ".join(p.tags)), ("modifiers", _pairs(p.policy.modifiers))):
        if said:
            out.write(f"  {title}: {said}")
    for rule in p.rules:
        _show_rule(out, rule, "  ")
    for override in p.policy.overrides:
        differs = ", ".join(filter(None, (override.preset and f"preset {override.preset}", _pairs(override.modifiers))))
        out.write(f"  override {override.match}{': ' if differs else ''}{differs}")
        for rule in p.overrides[override.match]:
            _show_rule(out, rule, "    ")
    _show_kinds(out, p)


def _show_rule(out: Screen, shown: RuleShown, indent: str) -> None:
    said = f"option {shown.rule.option}" if shown.rule.option else f"rule {shown.number}"
    out.write(f"{indent}{said} {shown.rule}  {shown.where}")


def _show_kinds(out: Screen, p: PolicyShown) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid("change", f"preset {p.policy.preset}", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for kind in p.kinds:
        grid.add_row(cell(kind.kind), cell(", ".join(filter(None, (kind.action, kind.effect, _pairs(kind.modifiers))))))
    out.print(grid)


def _pairs(values: Any) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _trace_data(trace: Trace, places: tuple[str, ...]) -> dict[str, Any]:
    decision = trace.decision
    return {
        "decision": {"action": decision.action, "effect": decision.effect, "rule": decision.rule, "why": decision.why},
        "modifiers": {n: {"value": v, "by": trace.origins[n]} for n, v in asdict(decision.modifiers).items()},
        "asked": [_voice_data(v, place) for v, place in zip(trace.asked, places, strict=True)],
    }


def _voice_data(voice: Voice, place: str) -> dict[str, Any]:
    return {
        "name": voice.name, "level": voice.level, "where": place, "decided": not voice.misses,
        "rule": _rule_data(voice.rule) if voice.rule else None, "misses": [asdict(m) for m in voice.misses],
    }  # fmt: skip


def _explanation_data(found: Explanation) -> dict[str, Any]:
    from instep.schema.change import change_to_dict, describe

    return {
        "connection": found.connection, "summary": describe(found.change), "change": change_to_dict(found.change),
        "recorded": found.review.id if found.review else None, **_trace_data(found.trace, found.places),
        "notes": found.notes,
    }  # fmt: skip


def _show_explanation(out: Screen, found: Explanation) -> None:
    from instep.schema.change import describe

    decision, last = found.decision, found.trace.asked[-1]
    recorded = f"  (recorded as {found.review.id})" if found.review else ""
    out.write(f"{describe(found.change)}{recorded}", "bold")
    place = f"  {found.places[-1]}" if found.places[-1] else ""
    out.write(f"  {decision.action}: {decision.why}")
    out.write(f"  by {decision.rule}{f' {last.rule}' if last.rule else ''}{place}")
    for voice, where in zip(found.trace.asked[:-1], found.places, strict=False):
        out.write(f"  not by {voice.name} {voice.rule or ''}  {where}".rstrip(), "dim")
        for miss in voice.misses:
            out.write(f"    {miss.part}: {miss.why}", "dim")
    for name, value in asdict(decision.modifiers).items():
        out.write(f"  {name}: {value}  ({found.trace.origins[name]})")
    for note in found.notes:
        out.write(f"  note: {note}", "yellow")


def _case_data(result: CaseResult) -> dict[str, Any]:
    return {
        "where": result.where, **asdict(result.sample), "passed": not result.wrong, "wrong": result.wrong,
        "action": result.trace.decision.action, "effect": result.trace.decision.effect,
        "rule": result.trace.decision.rule, "why": result.trace.decision.why,
        "modifiers": asdict(result.trace.decision.modifiers),
    }  # fmt: skip


def _show_cases(out: Screen, failed: list[CaseResult], cases: int) -> None:
    for result in failed:
        decision = result.trace.decision
        path = ".".join(filter(None, (result.sample.table, result.sample.column)))
        out.write(f"{result.where}: {result.sample.kind} of {path}", "bold red")
        for wrong in result.wrong:
            out.write(f"  {wrong}")
        out.write(f"  decided by {decision.rule}: {decision.why}")
        for voice in result.trace.asked[:-1]:
            out.write(f"  not by {voice.name}: {'; '.join(m.why for m in voice.misses)}", "dim")
    passed = cases - len(failed)
    out.write(f"{passed} of {cases} case(s) as expected" if failed else f"{cases} case(s), all as expected")


def _simulation_data(s: Simulation) -> dict[str, Any]:
    return {
        "connection": s.connection, "policy": s.policy.name, "recorded": len(s.compared) + len(s.unread),
        "counts": [{"outcome": text, "then": then, "now": now} for text, (then, now) in s.counts.items()],
        "different": [_compared_data(c) for c in s.different], "unread": s.unread,
    }  # fmt: skip


def _compared_data(c: Compared) -> dict[str, Any]:
    r = c.review
    return {
        "id": r.id, "summary": r.summary, "kind": r.kind, "status": r.status, "first_seen": r.first_seen,
        "then": _outcome_data(c.then), "now": _outcome_data(c.now),
    }  # fmt: skip


def _outcome_data(outcome: Outcome) -> dict[str, Any]:
    return {"outcome": outcome.text, "action": outcome.action, "rule": outcome.rule, "why": outcome.why}


def _show_simulations(out: Screen, found: list[Simulation]) -> None:
    for simulation in found:
        _show_simulation(out, simulation)


def _show_simulation(out: Screen, s: Simulation) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    out.write(f"{s.connection}: {len(s.compared)} recorded change(s), {len(s.different)} decided otherwise", "bold")
    if s.compared:
        grid = Grid("outcome", "then", f"under {s.policy.name}", box=None, header_style="bold", padding=(0, 2, 0, 0))
        for text, (then, now) in s.counts.items():
            grid.add_row(cell(text), cell(then), cell(now))
        out.print(grid)
    for c in s.different:
        out.write(f"  {c.review.id}  {c.review.summary}: {c.then.text} ({c.then.rule}) -> {c.now.text} ({c.now.rule})")
    if s.unread:
        out.write(f"  {len(s.unread)} change(s) of another version could not be read: {', '.join(s.unread)}", "yellow")
