"""`instep policy ...`: show a policy, explain its decisions, test it, and replay it over past changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import Connection, OfConnection, OnlyConnection, examples
from instep.cli.backend import open_backend
from instep.cli.context import emit, fail, one_connection, open_app, say
from instep.operations.queries.decisions import ExplainDecision, GetPolicy, SimulatePolicy

if TYPE_CHECKING:
    from instep.cli.screen import Screen

policy = typer.Typer(
    help="Show, explain, test and simulate policies.",
    epilog=examples("instep policy show", "instep policy explain public.order.note column.removed"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(policy, name="policy")


@policy.command(epilog=examples("instep policy show", "instep policy show shop --output json"))
def show(connection: Connection = None) -> None:
    """Show a connection's preset, rules, modifiers and per-table policies."""
    with open_backend() as backend:
        details = backend.query(GetPolicy(backend.connection(connection)))
    emit(details, lambda out: _show_policy(out, details))


@policy.command(
    epilog=examples(
        "instep policy explain public.order.note column.removed",
        "instep policy explain public.order.id column.retyped --from int32 --to uuid",
    )
)
def explain(
    path: Annotated[str, typer.Argument(metavar="SCHEMA.TABLE[.COLUMN]", help="The object that would change.")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of change, such as column.removed.")],
    connection: OfConnection = None,
    before: Annotated[str, typer.Option("--from", help="The type that the column has.")] = "",
    after: Annotated[str, typer.Option("--to", help="The type that it gets; for a rename, the new name.")] = "",
) -> None:
    """Explain which rule decides about a change, and why no earlier one does."""
    with open_backend() as backend:
        explanation = backend.query(ExplainDecision(backend.connection(connection), path, kind, before, after))
    emit(explanation, lambda out: _show_explanation(out, explanation))


@policy.command("test", epilog=examples("instep policy test cases.yml --connection shop"))
def run(
    file: Annotated[Path, typer.Argument(help="A list of sample changes with the expected decisions.")],
    connection: OfConnection = None,
) -> None:
    """Test a policy on sample changes with expected decisions.

    Exits with 1 if a decision differs. docs/reference/commands.md describes the format.
    """
    from instep.backends.calls import run_cases
    from instep.project.files.policy_files import read_cases, refuse_wrong

    with open_backend() as backend:
        name, cases = backend.connection(connection), read_cases(file)
        tested = run_cases(backend, name, [located.case.document() for located in cases])
    refuse_wrong(cases, [one.get("problem", "") for one in tested])
    results = [{"where": located.location, **one} for located, one in zip(cases, tested, strict=True)]
    failed = [r for r in results if r["wrong"]]
    data = {"connection": name, "cases": len(results), "failed": len(failed), "results": results}
    emit(data, lambda out: _show_cases(out, failed, len(results)))
    if failed:
        raise fail(1)


@policy.command(epilog=examples("instep policy simulate stricter.yml --since 2026-11-01"))
def simulate(
    file: Annotated[Path, typer.Argument(help="One policy, in the form of an entry of policies: in instep.yml.")],
    connection: OnlyConnection = None,
    since: Annotated[
        str, typer.Option("--since", metavar="DATE", help="Only changes first seen on this day (UTC) or later.")
    ] = "",
) -> None:
    """Compare what another policy would have decided with what was decided.

    Evaluates the policy in FILE against every recorded change.
    """
    from instep.control.policy.simulation import moment
    from instep.project.files.policy_files import read_policy

    section, start = read_policy(file), moment(since) if since else None
    with open_backend() as backend:
        names = [backend.connection(connection)] if connection else backend.connections()
        requests = [SimulatePolicy(name, file.stem, section.document(), start) for name in names]
        simulations = [asdict(backend.query(request)) for request in requests]
    emit({"connections": simulations}, lambda out: _show_simulations(out, simulations))


@policy.command("import", epilog=examples("instep policy import schema.json --connection shop --out keys.yml"))
def take_over(
    file: Annotated[Path, typer.Argument(help="A connector's schema config, as JSON or YAML.")],
    connection: OfConnection = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the keys to this new file.")] = None,
) -> None:
    """Convert a managed connector's schema config to keys of instep.yml.

    Prints the keys; instep.yml is not changed. What has no equivalent is listed. See docs/guides/other-products.md.
    """
    from instep.control.policy.policies import take_over as keys_of

    with open_app() as app:
        name = one_connection(app, connection)
        keys = keys_of(app.project, app.store, name, file)
    if out is not None:
        with out.open("x", encoding="utf-8") as written:
            written.write(keys.text)
        say(f"wrote {out}: copy its keys into instep.yml, then run `instep validate`")
    for note in keys.notes:
        say(f"note: {note}")
    data = {"connection": name, "keys": keys.keys, "notes": keys.notes, "file": str(out) if out else None}
    emit(data, lambda _: None if out else typer.echo(keys.text, nl=False))


def _show_policy(out: Screen, p: Mapping[str, Any]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    name = f"policy {p['policy']}" if p["policy"] else "no policy of its own"
    out.write(f"{p['connection']}: {name}, preset {p['preset']}", "bold")
    for title, value in (("tags", ", ".join(p["tags"])), ("modifiers", _pairs(p["modifiers"]))):
        if value:
            out.write(f"  {title}: {value}")
    for rule in p["rules"]:
        _show_rule(out, rule, "  ")
    for override in p["overrides"]:
        preset = f"preset {override['preset']}" if override["preset"] else ""
        differs = ", ".join(filter(None, (preset, _pairs(override["modifiers"]))))
        out.write(f"  override {override['match']}{': ' if differs else ''}{differs}")
        for rule in override["rules"]:
            _show_rule(out, rule, "    ")
    grid = Grid("change", f"preset {p['preset']}", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for kind in p["kinds"]:
        decision = ", ".join(filter(None, (kind["action"], kind["effect"], _pairs(kind["modifiers"]))))
        grid.add_row(cell(kind["kind"]), cell(decision))
    out.print(grid)


def _show_rule(out: Screen, rule: Mapping[str, Any], indent: str) -> None:
    origin = f"option {rule['option']}" if rule["option"] else f"rule {rule['number']}"
    out.write(f"{indent}{origin} {rule['text']}  {rule['where']}")


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _show_explanation(out: Screen, explanation: Mapping[str, Any]) -> None:
    decision, last = explanation["decision"], explanation["evaluations"][-1]
    recorded = f"  (recorded as {explanation['recorded']})" if explanation["recorded"] else ""
    out.write(f"{explanation['summary']}{recorded}", "bold")
    place = f"  {last['where']}" if last["where"] else ""
    out.write(f"  {decision['action']}: {decision['why']}")
    out.write(f"  by {decision['rule']}{f' {_rule(last)}' if last['rule'] else ''}{place}")
    for evaluation in explanation["evaluations"][:-1]:
        out.write(f"  not by {evaluation['name']} {_rule(evaluation)}  {evaluation['where']}".rstrip(), "dim")
        for miss in evaluation["misses"]:
            out.write(f"    {miss['part']}: {miss['why']}", "dim")
    for name, modifier in explanation["modifiers"].items():
        out.write(f"  {name}: {modifier['value']}  ({modifier['by']})")
    for note in explanation["notes"]:
        out.write(f"  note: {note}", "yellow")


def _rule(evaluation: Mapping[str, Any]) -> str:
    return str(evaluation["rule"]["text"]) if evaluation["rule"] else ""


def _show_cases(out: Screen, failed: Sequence[Mapping[str, Any]], cases: int) -> None:
    for result in failed:
        path = ".".join(filter(None, (result["table"], result["column"])))
        out.write(f"{result['where']}: {result['kind']} of {path}", "bold red")
        for wrong in result["wrong"]:
            out.write(f"  {wrong}")
        out.write(f"  decided by {result['rule']}: {result['why']}")
        for evaluation in result["evaluations"][:-1]:
            out.write(f"  not by {evaluation['name']}: {'; '.join(m['why'] for m in evaluation['misses'])}", "dim")
    passed = cases - len(failed)
    out.write(f"{passed} of {cases} case(s) as expected" if failed else f"{cases} case(s), all as expected")


def _show_simulations(out: Screen, simulations: Sequence[Mapping[str, Any]]) -> None:
    for simulation in simulations:
        _show_simulation(out, simulation)


def _show_simulation(out: Screen, s: Mapping[str, Any]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    compared = s["recorded"] - len(s["unread"])
    out.write(f"{s['connection']}: {compared} recorded change(s), {len(s['different'])} decided differently", "bold")
    if compared:
        grid = Grid("outcome", "then", f"under {s['policy']}", box=None, header_style="bold", padding=(0, 2, 0, 0))
        for one in s["counts"]:
            grid.add_row(cell(one["outcome"]), cell(one["then"]), cell(one["now"]))
        out.print(grid)
    for c in s["different"]:
        then, now = (f"{c[when]['outcome']} ({c[when]['rule']})" for when in ("then", "now"))
        out.write(f"  {c['id']}  {c['summary']}: {then} -> {now}")
    if s["unread"]:
        count, ids = len(s["unread"]), ", ".join(s["unread"])
        out.write(f"  {count} change(s) of another version could not be read: {ids}", "yellow")
