"""`instep rollout ...`: one change, policy or selection over many connections, wave by wave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.context import BLOCKED, PARTIAL, confirm, emit, fail, open_app, options, say
from instep.cli.rollout_carried import carry
from instep.errors import Blocked, InstepError

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.control.rollouts.patch import Patch
    from instep.model import Rollout

rollout = typer.Typer(help="One change, policy or selection over many connections, in waves.", no_args_is_help=True)
Id = Annotated[str | None, typer.Argument(metavar="[ID]", help="w-...; not needed if only one is under way.")]
Names = list[str] | None
Every = Annotated[bool, typer.Option("--all", help="Wave after wave, as long as the gates let it.")]
_OBJECT = "schema, schema.table or schema.table.column; repeatable."
_CHANGE = "A change (c-...) or KIND:OBJECT, such as column.added:public.order.note."


def register(app: typer.Typer) -> None:
    for command, examples in (
        (create, "rollout create --on public.refunds --tag shard · instep rollout create --preset approve --match '*'"),
        (status, "rollout status · instep rollout status w-20260301-120000-a1b2c3 --all"),
        (advance, "rollout advance · instep rollout advance --all"),
        (resume, "rollout resume · instep rollout resume --accept 'rows were deleted on purpose'"),
        (stop, "rollout stop · instep rollout stop --reason 'after the holidays'"),
        (skip, "rollout skip shard_007 --reason 'it is being moved'"),
        (rollback, "rollout rollback · instep rollout rollback --connection shard_007"),
    ):
        rollout.command(epilog=f"Examples: instep {examples}")(command)
    app.add_typer(rollout, name="rollout")


def create(
    on: Annotated[Names, typer.Option("--on", help=f"Switch on: {_OBJECT}")] = None,
    off: Annotated[Names, typer.Option("--off", help=f"Switch off: {_OBJECT}")] = None,
    hashed: Annotated[Names, typer.Option("--hash", help="Hash a column: schema.table.column; repeatable.")] = None,
    approve: Annotated[str | None, typer.Option("--approve", metavar="CHANGE", help=f"Let it in. {_CHANGE}")] = None,
    reject: Annotated[str | None, typer.Option("--reject", metavar="CHANGE", help=f"Keep it out. {_CHANGE}")] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="Another preset for their policies.")] = None,
    destination: Annotated[Names, typer.Option("--destination", help="Connections into it; repeatable.")] = None,
    tag: Annotated[Names, typer.Option("--tag", help="Connections with it; repeatable.")] = None,
    match: Annotated[Names, typer.Option("--match", help="Connections that fit: a glob or re:REGEX.")] = None,
    connection: Annotated[Names, typer.Option("--connection", "-c", help="This connection; repeatable.")] = None,
    waves: Annotated[str, typer.Option("--waves", help="Sizes: numbers or shares of all; the rest is last.")] = (
        "1,10%,rest"
    ),
    canary: Annotated[Names, typer.Option("--canary", help="A connection that comes first; repeatable.")] = None,
    gate: Annotated[
        Names, typer.Option("--gate", help="failed=10%, quarantined=0.5%, nulls=3, rows=30%, NAME=off; repeatable.")
    ] = None,
    detect: Annotated[bool, typer.Option("--detect", help="Look at all their sources first.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the table.")] = False,
) -> None:
    """Say what is rolled out over which connections: shows how it fits each and in which wave. Touches nothing yet."""
    from instep.bootstrap import user
    from instep.cli.rollout_text import draft_document, show_draft, show_rollout
    from instep.control.rollouts.create import Order, draft
    from instep.control.rollouts.create import create as make
    from instep.control.rollouts.gates import gates
    from instep.control.rollouts.waves import Group, chosen, sizes

    group = Group(tuple(connection or ()), tuple(destination or ()), tuple(tag or ()), tuple(match or ()))
    turns = [(verb, path) for verb, paths in (("on", on), ("off", off), ("hash", hashed)) for path in paths or ()]
    with open_app() as app:
        names = chosen(app.project, group)
        if detect:
            _detect(app, names)
        patch = _patch(app, names, turns, approve, reject, preset)
        order = Order(patch, group, sizes(waves), gates(gate or ()), tuple(canary or ()))
        drafted = draft(order, names, user())
        if dry_run:
            emit(draft_document(drafted), lambda out: show_draft(out, drafted, patch.text))
            return
        made = make(app.store, drafted)
        document = _document(app, made, every=True)
    emit(document, lambda out: show_rollout(out, document, patch.text))
    say(f"nothing is touched yet: `instep rollout advance {made.id}` begins wave 1 of {made.of}")


def _patch(
    app: App, names: list[str], turns: list[Any], approve: str | None, reject: str | None, preset: str | None
) -> Patch:
    """What is rolled out; InstepError unless it is one thing."""
    from instep.control.rollouts.changes import change_patch
    from instep.control.rollouts.policies import ServedPolicies, policy_patch
    from instep.control.rollouts.selections import SelectionPatch

    if sum((bool(turns), bool(approve), bool(reject), bool(preset))) != 1:
        raise InstepError(
            "a rollout is of one thing",
            hint="name --on, --off and --hash objects, or one change to --approve or --reject, or a --preset",
        )
    if approve or reject:
        return change_patch(app.store, "approved" if approve else "rejected", approve or reject or "", names)
    if preset:
        return policy_patch(app.project, preset, ServedPolicies(app.objects))
    return SelectionPatch(app.project, app.store, tuple(turns))


def _detect(app: App, names: list[str]) -> None:
    from instep.control.rollouts.create import detect_all
    from instep.sync.in_process import InProcess

    for name, error in detect_all(InProcess(app.pipe, app.engine), names, "create").items():
        say(f"{name}: {error}")


def _id(app: App, given: str | None) -> str:
    """The one that is meant: named, the only one that is not over, or the only one."""
    if given:
        return app.store.rollouts.get(given).id
    every = app.store.rollouts.find()
    open_ = [r for r in every if r.status != "done"] or every
    if len(open_) == 1:
        return open_[0].id
    names = ", ".join(r.id for r in open_)
    raise InstepError("which rollout?", hint=f"name one: {names}" if names else "there is none yet")


def _document(app: App, made: Rollout, *, every: bool) -> dict[str, Any]:
    from instep.cli.rollout_text import rollout_document

    return rollout_document(made, app.store.rollouts.members(made.id), every=every)


def status(
    id: Id = None,
    every: Annotated[bool, typer.Option("--all", help="Every connection, not only those to look at.")] = False,
) -> None:
    """How far rollouts are; of one the waves, and the connections that failed, do not fit, or tripped a gate."""
    from instep.cli.rollout_text import list_document, show_list, show_rollout

    with open_app() as app:
        if id is None and len(found := app.store.rollouts.find()) != 1:
            listed = list_document(found)
            emit(listed, lambda out: show_list(out, found))
            return
        made = app.store.rollouts.get(id or found[0].id)
        text, document = _text(app, made), _document(app, made, every=every)
    emit(document, lambda out: show_rollout(out, document, text))


def advance(id: Id = None, every: Every = False) -> None:
    """Begin the next wave, or go on with one that was left unfinished; ends at a gate that is not passed. Where a
    worker lives it does the work, and this command follows."""
    with open_app() as app:
        known = _id(app, id)
        _finish(app, carry(app, known, lambda asks: asks.advance(every)))


def resume(
    id: Id = None,
    every: Every = False,
    accept: Annotated[str, typer.Option("--accept", metavar="REASON", help="Let pass what the gates found.")] = "",
) -> None:
    """Go on after a stop, a halt or a crash. Touches only what is not done: what failed or did not fit is tried again,
    then the wave goes on."""
    with open_app() as app:
        known = _id(app, id)
        _finish(app, carry(app, known, lambda asks: asks.resume(every, accept)))


def stop(id: Id = None, reason: Annotated[str, typer.Option("--reason", help="Why.")] = "") -> None:
    """Begin no connection any more; runs that are under way end."""
    from instep.bootstrap import user
    from instep.control.rollouts.flow import stop as halt

    with open_app() as app:
        _finish(app, halt(app.store, _id(app, id), user(), reason), exits=False)


def skip(
    connections: Annotated[list[str], typer.Argument(metavar="CONNECTION...", help="Those that are left out.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept.")],
    id: Annotated[str | None, typer.Option("--rollout", help="w-...; not needed if only one is under way.")] = None,
) -> None:
    """Leave connections out, for a reason. What reached one before it failed stays: `rollback --connection` takes that
    back first."""
    from instep.bootstrap import user
    from instep.control.rollouts.flow import skip as leave_out

    with open_app() as app:
        known = _id(app, id)
        leave_out(app.store, known, connections, reason, user())
        _finish(app, app.store.rollouts.get(known), exits=False)


def rollback(
    id: Id = None,
    wave: Annotated[int, typer.Option("--wave", min=0, help="Which; the last that has begun if not said.")] = 0,
    connection: Annotated[Names, typer.Option("--connection", "-c", help="Only this one; repeatable.")] = None,
) -> None:
    """Take back what reached a wave: choices are as before, applied changes are undone. The rollout is stopped."""
    with open_app() as app:
        known = _id(app, id)
        what = ", ".join(connection or ()) or f"wave {wave or app.store.rollouts.get(known).wave}"
        if _asks() and not confirm(f"Take {what} of {known} back?"):
            raise Blocked("nothing was rolled back", hint="answer yes, or pass --yes")
        _finish(app, carry(app, known, lambda asks: asks.roll_back(wave, connection or ())), exits=False)


def _asks() -> bool:
    import sys

    return options.interactive and not options.yes and sys.stdin.isatty()


def _text(app: App, made: Rollout) -> str:
    from instep.control.rollouts.create import patch_of

    return patch_of(made.what, app.project, app.store).text


def _finish(app: App, made: Rollout, *, exits: bool = True) -> None:
    from instep.cli.rollout_text import show_rollout

    text, document = _text(app, made), _document(app, made, every=False)
    emit(document, lambda out: show_rollout(out, document, text))
    if exits and made.status in ("halted", "stopped"):
        raise fail(BLOCKED)
    if exits and document["counts"].get("failed"):
        raise fail(PARTIAL)
    if exits and made.status == "partial":
        raise fail(PARTIAL)
