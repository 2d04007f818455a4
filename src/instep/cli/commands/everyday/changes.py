"""`instep detect`, `plan`, `apply`, `changes ...`, `pause` and `resume`: schema changes, decided and applied."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import AllowDestructive, Connection, ExitCode, OneTable, examples
from instep.cli.backend import open_backend, table_ref
from instep.cli.commands.decide import reviews
from instep.cli.commands.everyday.history import plan_check, show_check
from instep.cli.context import (
    CHANGES,
    PARTIAL,
    confirm,
    console,
    emit,
    fail,
    options,
    say,
)
from instep.cli.render.reviews import meanwhile_of, show_changes, show_detection, show_one
from instep.cli.several import Matching, WithTag, for_each
from instep.errors import Blocked, InstepError, SchemaError
from instep.operations.everyday.plan import PlanRequest
from instep.operations.immediate.work import PauseRequest, ResumeRequest
from instep.operations.queries.changes import ListComments
from instep.operations.queries.history import ListVersions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.backends.protocol import Backend
    from instep.cli.screen import Screen
    from instep.model import Review
    from instep.operations.everyday.detect import Detected
    from instep.plans.planned import ApplyReport, Planned
    from instep.schema.planning.plan import Plan

changes = typer.Typer(
    help="List, inspect, approve and reject schema changes.",
    epilog=examples("instep changes list", "instep changes approve c-7f3a2b"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep detect shop --exit-code"))(detect)
    app.command(epilog=examples("instep plan --ddl", "instep plan -o plan.json", "instep plan --check --tag eu"))(plan)
    app.command(epilog=examples("instep apply", "instep apply plan.json"))(apply)
    reviews.add_answers(changes)
    app.add_typer(changes, name="changes")
    app.command(epilog=examples("instep pause shop --reason 'migration at the source'"))(pause)
    app.command(epilog=examples("instep resume shop --table public.order"))(resume)


def detect(
    connection: Connection = None, tag: WithTag = None, match: Matching = None, exit_code: ExitCode = False
) -> None:
    """Detect schema changes in the source and evaluate them against the policy."""
    from instep.backends import calls

    with open_backend() as backend:
        for_each(
            backend, connection, tag, match, lambda name: _end_detect(*calls.detect(backend, name), exit_code=exit_code)
        )


def _end_detect(detection: Detected, reviews: list[Review], *, exit_code: bool) -> None:
    document = {"changes": [asdict(r) for r in reviews], "counts": detection.counts}
    if detection.missing:
        document["missing"] = list(detection.missing)
    emit(document, lambda out: show_detection(out, reviews, detection.counts))
    _fail_missing(detection.missing, others=detection.others)
    if exit_code and detection.pending:
        raise fail(CHANGES)


def plan(
    connection: Connection = None,
    tag: WithTag = None,
    match: Matching = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the plan to a file for `apply FILE`.")] = None,
    exit_code: ExitCode = False,
    every: Annotated[bool, typer.Option("--all", help="Show how every table is synced, not only new ones.")] = False,
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="Source rows to test type changes on; 0 tests none.")
    ] = 1000,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 2 if the accepted schema or its lock file is behind.")
    ] = False,
    ddl: Annotated[bool, typer.Option("--ddl", help="Also show the steps as equivalent SQL.")] = False,
) -> None:
    """Show what applying the open changes would do.

    A plan lists decisions, steps, downstream impact and how each table is synced. With --server a worker makes the
    plan, and `apply FILE` with the same server applies it.
    """
    if out is not None and (tag or match):
        raise InstepError("a plan file is that of one connection", hint="name the CONNECTION, or leave --out away")
    request = PlanRequest(sample=sample, all=every)
    with open_backend() as backend:

        def plan_one(name: str) -> None:
            planned: Planned = backend.operations.run(name, request)
            behind = plan_check(backend.folder, planned) if check else []
            document = {**planned.document, **({"behind": behind} if check else {})}
            if out is not None:
                out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
            emit(document, lambda screen: show_plan(screen, planned, ddl=ddl))
            if out is not None:
                say(f"wrote {out}; apply it with `instep apply {out}`")
            if check:
                show_check(planned, behind)
            _fail_missing(planned.document.get("missing", ()), others=bool(planned.document.get("others")))
            if exit_code and planned.pending:
                raise fail(CHANGES)

        for_each(backend, connection, tag, match, plan_one)


def apply(
    what: Annotated[
        str | None,
        typer.Argument(help="A plan file, or a connection to plan and apply now.", metavar="FILE|CONNECTION"),
    ] = None,
    allow: AllowDestructive = None,
) -> None:
    """Apply a plan to the destination's schema.

    The schema changes now; rows follow at the next sync.
    """
    with open_backend() as backend:
        planned, made = _to_apply(backend, what)
        name = planned.connection
        if not made.steps and not any(d.applied for d in made.decisions):
            newest = backend.items(ListVersions(name), 1)
            applied = _applied(name, newest[0].version if newest else 0, made)
            emit(applied, lambda out: out.print("nothing to apply"))
            _fail_missing(planned.document.get("missing", ()), others=bool(planned.document.get("others")))
            return
        if not confirm("Apply these changes?"):
            raise Blocked("nothing was applied", hint="confirm, or pass --yes")
        done: ApplyReport = backend.operations.run(name, planned.apply_request(allow or ()))
        version, id = done.version, done.id
    emit({**_applied(name, version, made), "id": id}, lambda out: out.print(f"applied: schema version {version}"))
    if options.output == "table":
        say(f"plan {id}: run `instep undo {id}` to undo it")
    _fail_missing(planned.document.get("missing", ()), others=bool(planned.document.get("others")))


def _applied(connection: str, version: int, made: Plan) -> dict[str, Any]:
    return {"connection": connection, "version": version, "steps": [s.text for s in made.steps]}


def _to_apply(backend: Backend, what: str | None) -> tuple[Planned, Plan]:
    """Return the plan to apply: from a file, or made now and shown."""
    from instep.plans.planned import Planned
    from instep.schema.planning.plan import plan_from_dict

    if what is not None and Path(what).is_file():
        try:
            data = json.loads(Path(what).read_text(encoding="utf-8"))
            named, job = backend.connection(data["connection"]), str(data.get("job", ""))
            document = {"connection": named, "plan": data["plan"], "id": _id(data), "job": job}
            return Planned(document), plan_from_dict(data["plan"])
        except SchemaError as error:
            raise InstepError(f"{what}: {error.message}", hint="write a new one with `instep plan -o FILE`") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InstepError(f"{what} is not a plan file", hint="write one with `instep plan -o FILE`") from error
    if what is not None and (os.sep in what or what.endswith(".json")):
        raise InstepError(f"there is no plan file {what}", hint="write one with `instep plan -o FILE`")
    planned: Planned = backend.operations.run(backend.connection(what), PlanRequest(current=True))
    show_plan(console(stderr=True), planned)
    return planned, plan_from_dict(planned.document["plan"])


def _id(data: dict[str, Any]) -> str:
    """Return the id in a plan file; one of another form is damage."""
    id = str(data.get("id", ""))
    if id and not re.fullmatch(r"p-[0-9a-f]{8}", id):
        raise ValueError(id)
    return id


@changes.command("list", epilog=examples("instep changes list", "instep changes list --all --output json"))
def list_changes(
    connection: Connection = None,
    every: Annotated[bool, typer.Option("--all", help="Also list applied, rejected and deselected changes.")] = False,
    search: Annotated[
        str, typer.Option("--search", help="Part of a connection's, table's or column's name, or re:PATTERN.")
    ] = "",
    tag: Annotated[str, typer.Option("--tag", help="Only changes of connections with this tag.")] = "",
    assignee: Annotated[str, typer.Option("--assignee", help="Only changes assigned to this person.")] = "",
) -> None:
    """List changes that wait for a decision."""
    from instep.backends.calls import list_changes as found_changes

    with open_backend() as backend:
        matching = found_changes(backend, connection, every=every, search=search, tag=tag, assignee=assignee)
    emit({"changes": [asdict(r) for r in matching]}, lambda out: show_changes(out, matching))


@changes.command(epilog=examples("instep changes show c-7f3a2b"))
def show(
    id: Annotated[str, typer.Argument(help="A change's id from `changes list`.")],
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="Source rows to test type changes on; 0 tests none.")
    ] = 1000,
) -> None:
    """Show everything about one change.

    For a changed key: how many rows share the new one, at source and destination. For a type under review: how many
    sampled source values do not fit the accepted type.
    """
    from instep.backends.calls import find_change

    with open_backend() as backend:
        review = find_change(backend, id)
        seen = backend.change_details(review, sample)
        comments = backend.items(ListComments(review.id))
    lines = [*seen.keys, *(one["text"] for one in (*seen.lossy, *seen.invalid_values))]
    document = {
        **asdict(review),
        "keys": list(seen.keys),
        "held": list(seen.invalid_values),
        "lossy": list(seen.lossy),
    }
    document |= {"meanwhile": meanwhile_of(review), "comments": [asdict(comment) for comment in comments]}
    lines += [f"{one.who}, {one.at:%Y-%m-%d %H:%M} UTC: {one.text}" for one in comments]
    emit(document, lambda out: show_one(out, review, lines))


def pause(
    connection: Connection = None,
    table: OneTable = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason that `status` shows.")] = "paused by a person",
) -> None:
    """Stop syncing a connection, or one of its tables, until it is resumed."""
    with open_backend() as backend:
        name = backend.connection(connection)
        request = PauseRequest(connection=name, reason=reason, table=table_ref(backend, name, table) if table else None)
        new = backend.operations.perform(request).changed
    data = {"connection": name, "table": table, "paused": True, "changed": new}
    emit(data, lambda out: out.write(f"paused {table or name}" if new else f"{table or name} is already paused"))


def resume(
    connection: Connection = None,
    table: OneTable = None,
) -> None:
    """Resume a paused connection or table."""
    with open_backend() as backend:
        name = backend.connection(connection)
        request = ResumeRequest(connection=name, table=table_ref(backend, name, table) if table else None)
        ended = backend.operations.perform(request).changed
    data = {"connection": name, "table": table, "paused": False, "changed": ended}
    emit(data, lambda out: out.write(f"resumed {table or name}" if ended else f"{table or name} is not paused"))


def _fail_missing(missing: Sequence[str], *, others: bool) -> None:
    """End the command with an error for each pattern of `include` that no table fits; partial beside other tables."""
    for text in missing:
        say(f"error: {text}", "red")
    if missing:
        raise fail(PARTIAL if others else 1)


def show_plan(out: Screen, planned: Planned, *, ddl: bool = False) -> None:
    """Print the plan."""
    for line, style in planned.text(ddl=ddl):
        out.write(line, style)
