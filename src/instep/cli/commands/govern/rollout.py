"""`instep rollout ...`: one change, policy or selection over many connections, wave by wave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.backend import open_backend
from instep.cli.context import BLOCKED, PARTIAL, confirm, emit, fail, options, say
from instep.errors import Blocked, ChangeNotFound, InstepError

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.control.selection.selections import Verb
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
    from instep.backends.protocol import RolloutRequest
    from instep.cli.render.rollouts import draft_document, show_draft, show_rollout
    from instep.control.rollouts.waves import ConnectionGroup, sizes

    group = ConnectionGroup(tuple(connection or ()), tuple(destination or ()), tuple(tag or ()), tuple(match or ()))
    turns = _turns(on, off, hashed)
    _check_one(turns, approve, reject, preset)
    change = ("approved", approve) if approve else ("rejected", reject) if reject else None
    wanted = RolloutRequest(group, turns, change, preset or "", sizes(waves), tuple(gate or ()), tuple(canary or ()))
    with open_backend() as backend:
        for name, error in (backend.rollouts.detect(wanted) if detect else {}).items():
            say(f"{name}: {error}")
        if dry_run:
            with _advice(detected=detect):
                drafted, text = backend.rollouts.draft(wanted)
            emit(draft_document(drafted), lambda out: show_draft(out, drafted, text))
            return
        with _advice(detected=detect):
            made = backend.rollouts.create(wanted)
        text, document = backend.rollouts.text(made), _document(backend, made, every=True)
    emit(document, lambda out: show_rollout(out, document, text))
    say(f"nothing is touched yet: `instep rollout advance {made.id}` begins wave 1 of {made.of}")


@contextmanager
def _advice(*, detected: bool) -> Iterator[None]:
    """For a change that no connection has, add that their sources were checked just now, or how to check them first."""
    try:
        yield
    except ChangeNotFound as error:
        if detected:
            raise ChangeNotFound(f"{error.message} (their sources were checked just now)", hint=error.hint) from error
        raise ChangeNotFound(error.message, hint=f"{error.hint}; check their sources first: --detect") from error


def _turns(on: Names, off: Names, hashed: Names) -> list[tuple[Verb, str]]:
    said: tuple[tuple[Verb, Names], ...] = (("on", on), ("off", off), ("hash", hashed))
    return [(verb, path) for verb, paths in said for path in paths or ()]


def _check_one(*sorts: object) -> None:
    """InstepError unless one thing is rolled out."""
    if sum(map(bool, sorts)) != 1:
        raise InstepError(
            "a rollout is of one thing",
            hint="name --on, --off and --hash objects, or one change to --approve or --reject, or a --preset",
        )


def _id(backend: Backend, given: str | None) -> str:
    """The one that is meant: named, the only one that is not over, or the only one."""
    if given:
        return backend.rollouts.get(given).id
    every = backend.rollouts.find()
    open_ = [r for r in every if r.status != "done"] or every
    if len(open_) == 1:
        return open_[0].id
    names = ", ".join(r.id for r in open_)
    raise InstepError("which rollout?", hint=f"name one: {names}" if names else "there is none yet")


def _document(backend: Backend, made: Rollout, *, every: bool) -> dict[str, Any]:
    from instep.cli.render.rollouts import rollout_document

    return rollout_document(made, backend.rollouts.members(made.id), every=every)


def status(
    id: Id = None,
    every: Annotated[bool, typer.Option("--all", help="Every connection, not only those to look at.")] = False,
) -> None:
    """How far rollouts are; of one the waves, and the connections that failed, do not fit, or tripped a gate."""
    from instep.cli.render.rollouts import list_document, show_list, show_rollout

    with open_backend() as backend:
        if id is None and len(found := backend.rollouts.find()) != 1:
            listed = list_document(found)
            emit(listed, lambda out: show_list(out, found))
            return
        made = backend.rollouts.get(id or found[0].id)
        text, document = backend.rollouts.text(made), _document(backend, made, every=every)
    emit(document, lambda out: show_rollout(out, document, text))


def advance(id: Id = None, every: Every = False) -> None:
    """Begin the next wave, or go on with one that was left unfinished; ends at a gate that is not passed. Where a
    worker lives it does the work, and this command follows."""
    with open_backend() as backend:
        _finish(backend, backend.rollouts.advance(_id(backend, id), every=every))


def resume(
    id: Id = None,
    every: Every = False,
    accept: Annotated[str, typer.Option("--accept", metavar="REASON", help="Let pass what the gates found.")] = "",
) -> None:
    """Go on after a stop, a halt or a crash. Touches only what is not done: what failed or did not fit is tried again,
    then the wave goes on."""
    with open_backend() as backend:
        _finish(backend, backend.rollouts.resume(_id(backend, id), every=every, accept=accept))


def stop(id: Id = None, reason: Annotated[str, typer.Option("--reason", help="Why.")] = "") -> None:
    """Begin no connection any more; runs that are under way end."""
    with open_backend() as backend:
        _finish(backend, backend.rollouts.stop(_id(backend, id), reason), exits=False)


def skip(
    connections: Annotated[list[str], typer.Argument(metavar="CONNECTION...", help="Those that are left out.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept.")],
    id: Annotated[str | None, typer.Option("--rollout", help="w-...; not needed if only one is under way.")] = None,
) -> None:
    """Leave connections out, for a reason. What reached one before it failed stays: `rollback --connection` takes that
    back first."""
    with open_backend() as backend:
        _finish(backend, backend.rollouts.skip(_id(backend, id), connections, reason), exits=False)


def rollback(
    id: Id = None,
    wave: Annotated[int, typer.Option("--wave", min=0, help="Which; the last that has begun if not said.")] = 0,
    connection: Annotated[Names, typer.Option("--connection", "-c", help="Only this one; repeatable.")] = None,
) -> None:
    """Take back what reached a wave: choices are as before, applied changes are undone. The rollout is stopped."""
    with open_backend() as backend:
        known = _id(backend, id)
        what = ", ".join(connection or ()) or f"wave {wave or backend.rollouts.get(known).wave}"
        if _asks() and not confirm(f"Take {what} of {known} back?"):
            raise Blocked("nothing was rolled back", hint="answer yes, or pass --yes")
        _finish(backend, backend.rollouts.roll_back(known, wave=wave, connections=connection or ()), exits=False)


def _asks() -> bool:
    import sys

    return options.interactive and not options.yes and sys.stdin.isatty()


def _finish(backend: Backend, made: Rollout, *, exits: bool = True) -> None:
    from instep.cli.render.rollouts import show_rollout

    text, document = backend.rollouts.text(made), _document(backend, made, every=False)
    emit(document, lambda out: show_rollout(out, document, text))
    if exits and made.status in ("halted", "stopped"):
        raise fail(BLOCKED)
    if exits and document["counts"].get("failed"):
        raise fail(PARTIAL)
    if exits and made.status == "partial":
        raise fail(PARTIAL)
