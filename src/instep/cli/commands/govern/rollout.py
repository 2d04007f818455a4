"""`instep rollout ...`: one change, policy or selection over many connections, wave by wave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import DryRun, examples
from instep.cli.backend import open_backend
from instep.cli.context import BLOCKED, PARTIAL, confirm, emit, fail, options, say
from instep.errors import Blocked, ChangeNotFound, InstepError, NotFound

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.control.queries.decisions import RolloutDetails
    from instep.operations.immediate.rollouts import RolloutAnswer, RolloutSwitch
    from instep.operations.values import Verb

rollout = typer.Typer(
    help="Roll out a change, policy or selection to connections in waves.",
    epilog=examples("instep rollout create --preset approve --match '*'", "instep rollout advance"),
    no_args_is_help=True,
)
Id = Annotated[str | None, typer.Argument(metavar="ID", help="The rollout (w-...); optional if only one is active.")]
Names = list[str] | None
Every = Annotated[bool, typer.Option("--all", help="Wave after wave, as long as the gates pass.")]


def register(app: typer.Typer) -> None:
    for command, lines in (
        (create, ("--on public.refunds --tag shard", "--preset approve --match '*'")),
        (status, ("", "w-20260301-120000-a1b2c3 --all")),
        (advance, ("", "--all")),
        (resume, ("", "--accept 'rows were deleted on purpose'")),
        (stop, ("", "--reason 'after the holidays'")),
        (skip, ("shard_007 --reason 'it is being moved'",)),
        (rollback, ("", "--connection shard_007")),
    ):
        shown = (f"instep rollout {command.__name__} {line}".rstrip() for line in lines)
        rollout.command(epilog=examples(*shown))(command)
    app.add_typer(rollout, name="rollout")


def create(
    on: Annotated[
        Names, typer.Option("--on", help="Select a schema, table or column (SCHEMA[.TABLE[.COLUMN]]); repeatable.")
    ] = None,
    off: Annotated[
        Names, typer.Option("--off", help="Deselect a schema, table or column (SCHEMA[.TABLE[.COLUMN]]); repeatable.")
    ] = None,
    hashed: Annotated[Names, typer.Option("--hash", help="Hash a column (SCHEMA.TABLE.COLUMN); repeatable.")] = None,
    approve: Annotated[
        str | None,
        typer.Option(
            "--approve",
            metavar="CHANGE",
            help="Approve a change (c-...) or KIND:OBJECT, such as column.added:public.order.note; repeatable.",
        ),
    ] = None,
    reject: Annotated[
        str | None,
        typer.Option(
            "--reject",
            metavar="CHANGE",
            help="Reject a change (c-...) or KIND:OBJECT, such as column.added:public.order.note; repeatable.",
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Set this preset in the connections' policies.")
    ] = None,
    destination: Annotated[
        Names, typer.Option("--destination", help="Connections into this destination; repeatable.")
    ] = None,
    tag: Annotated[Names, typer.Option("--tag", help="Connections with this tag; repeatable.")] = None,
    match: Annotated[Names, typer.Option("--match", help="Connections that match a glob or re:REGEX.")] = None,
    connection: Annotated[Names, typer.Option("--connection", "-c", help="This connection; repeatable.")] = None,
    waves: Annotated[
        str, typer.Option("--waves", help="Wave sizes: numbers or percentages; the last wave takes the rest.")
    ] = ("1,10%,rest"),
    canary: Annotated[Names, typer.Option("--canary", help="A connection of the first wave; repeatable.")] = None,
    gate: Annotated[
        Names, typer.Option("--gate", help="failed=10%, quarantined=0.5%, nulls=3, rows=30% or NAME=off; repeatable.")
    ] = None,
    detect: Annotated[bool, typer.Option("--detect", help="Detect changes of all the connections first.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Create a rollout: what changes, on which connections, in which waves.

    Shows how it fits each connection. Nothing changes until `rollout advance`.
    """
    from instep.cli.render.rollouts import draft_document, show_draft, show_rollout
    from instep.control.rollouts.waves import ConnectionGroup, sizes
    from instep.operations.immediate.rollouts import CreateRolloutRequest, RolloutGroup

    selectors = tuple(connection or ()), tuple(destination or ()), tuple(tag or ()), tuple(match or ())
    turns = _turns(on, off, hashed)
    _check_one(turns, approve, reject, preset)
    gates, first = tuple(gate or ()), tuple(canary or ())
    with open_backend() as backend:
        for name in connection or ():
            backend.connection(name)
        for name, error in (backend.detect_group(ConnectionGroup(*selectors)) if detect else {}).items():
            say(f"{name}: {error}")
        change = _answer(backend, approve, reject)
        request = CreateRolloutRequest(RolloutGroup(*selectors), turns, change, preset, sizes(waves), gates, first)
        with _advice(detected=detect):
            done = (backend.operations.rehearse if dry_run else backend.operations.perform)(request)
        if dry_run:
            emit(draft_document(done), lambda out: show_draft(out, done))
            return
        made, document = done.rollout, _document(backend, done.rollout, every=True)
    emit(document, lambda out: show_rollout(out, document, made.text))
    if document["counts"].get("waiting"):
        say(f"nothing has changed yet: run `instep rollout advance {made.id}` to start wave 1 of {made.of}")
    else:
        say(f"it fits no connection as it is: follow the column `why`, then run `instep rollout resume {made.id}`")


@contextmanager
def _advice(*, detected: bool) -> Iterator[None]:
    """Add to the error about an unknown change that the sources were checked just now, or how to check them first."""
    try:
        yield
    except ChangeNotFound as error:
        if detected:
            raise ChangeNotFound(f"{error.message} (their sources were checked just now)", hint=error.hint) from error
        raise ChangeNotFound(error.message, hint=f"{error.hint}; check their sources first: --detect") from error


def _turns(on: Names, off: Names, hashed: Names) -> tuple[RolloutSwitch, ...]:
    from instep.operations.immediate.rollouts import RolloutSwitch

    choices: tuple[tuple[Verb, Names], ...] = (("on", on), ("off", off), ("hash", hashed))
    return tuple(RolloutSwitch(verb, path) for verb, paths in choices for path in paths or ())


def _answer(backend: Backend, approve: str | None, reject: str | None) -> RolloutAnswer | None:
    """Return the answer to a change; the beginning of an id stands for the change that has it."""
    from instep.backends.calls import find_change
    from instep.operations.immediate.rollouts import RolloutAnswer

    change = approve or reject
    if not change:
        return None
    whole = change if ":" in change else find_change(backend, change).id
    return RolloutAnswer(whole, "approved" if approve else "rejected")


def _check_one(*sorts: object) -> None:
    """Raise InstepError unless one thing is rolled out."""
    if sum(map(bool, sorts)) != 1:
        raise InstepError(
            "a rollout rolls out one thing",
            hint="name --on, --off and --hash objects, or one change to --approve or --reject, or a --preset",
        )


def _known(backend: Backend, id: str) -> RolloutDetails:
    """Find a rollout by its id or a unique prefix of it."""
    from instep.operations.queries.decisions import GetRollout, ListRollouts

    try:
        details: RolloutDetails = backend.query(GetRollout(id))
    except NotFound:
        like = [one.id for one in backend.items(ListRollouts()) if one.id.startswith(id)]
        if len(like) != 1:
            raise
        return _known(backend, like[0])
    return details


def _id(backend: Backend, given: str | None) -> str:
    """Return the id of the rollout: the named one, the only one that is not over, or the only one."""
    from instep.operations.queries.decisions import ListRollouts

    if given:
        return _known(backend, given).id
    every = backend.items(ListRollouts())
    open_ = [r for r in every if r.status != "done"] or every
    if len(open_) == 1:
        return str(open_[0].id)
    names = ", ".join(r.id for r in open_)
    raise InstepError(
        "several rollouts are active: choose one", hint=f"name one: {names}" if names else "there is none yet"
    )


def _document(backend: Backend, made: RolloutDetails, *, every: bool) -> dict[str, Any]:
    from instep.cli.render.rollouts import rollout_document
    from instep.operations.queries.decisions import ListRolloutConnections

    return rollout_document(made, backend.items(ListRolloutConnections(made.id)), every=every)


def status(
    id: Id = None,
    every: Annotated[bool, typer.Option("--all", help="Every connection, not only those with problems.")] = False,
) -> None:
    """Show the progress of rollouts, or the waves and problems of one."""
    from instep.cli.render.rollouts import list_document, show_list, show_rollout
    from instep.operations.queries.decisions import ListRollouts

    with open_backend() as backend:
        if id is None and len(rollouts := backend.items(ListRollouts())) != 1:
            listed = list_document(rollouts)
            emit(listed, lambda out: show_list(out, rollouts))
            return
        made = _known(backend, id or rollouts[0].id)
        document = _document(backend, made, every=every)
    emit(document, lambda out: show_rollout(out, document, made.text))


def advance(id: Id = None, every: Every = False) -> None:
    """Start the next wave, or continue an unfinished one.

    Stops at a gate that does not pass. If a worker runs, it does the work and this command follows it.
    """
    from instep.operations.immediate.rollouts import AdvanceRolloutRequest

    with open_backend() as backend:
        _carry(backend, AdvanceRolloutRequest(_id(backend, id), every))


def resume(
    id: Id = None,
    every: Every = False,
    accept: Annotated[
        str, typer.Option("--accept", metavar="REASON", help="Accept what the gates found, for this reason.")
    ] = "",
) -> None:
    """Resume a rollout after a stop, a halt or a crash.

    Finishes only what was left undone: connections that failed or did not fit are tried again, then the wave continues.
    """
    from instep.operations.immediate.rollouts import ResumeRolloutRequest

    with open_backend() as backend:
        _carry(backend, ResumeRolloutRequest(_id(backend, id), every, accept))


def stop(
    id: Id = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason that `rollout status` shows.")] = "",
) -> None:
    """Start no further connection; running ones finish."""
    from instep.operations.immediate.rollouts import StopRolloutRequest

    with open_backend() as backend:
        request = StopRolloutRequest(_id(backend, id), reason)
        _finish(backend, backend.operations.perform(request).rollout, exits=False)


def skip(
    connections: Annotated[list[str], typer.Argument(metavar="CONNECTION", help="The connections to leave out.")],
    reason: Annotated[str, typer.Option("--reason", help="The reason that is recorded.")],
    id: Annotated[
        str | None, typer.Option("--rollout", help="The rollout (w-...); optional if only one is active.")
    ] = None,
) -> None:
    """Leave connections out of a rollout, for a reason.

    What a connection already received stays; `rollback --connection` undoes it.
    """
    from instep.operations.immediate.rollouts import SkipConnectionsRequest

    with open_backend() as backend:
        request = SkipConnectionsRequest(_id(backend, id), tuple(connections), reason)
        _finish(backend, backend.operations.perform(request).rollout, exits=False)


def rollback(
    id: Id = None,
    wave: Annotated[int, typer.Option("--wave", min=0, help="The wave; 0: the last that has started.")] = 0,
    connection: Annotated[Names, typer.Option("--connection", "-c", help="Only this connection; repeatable.")] = None,
) -> None:
    """Roll back a wave and stop the rollout.

    Settings become what they were before; applied changes are undone.
    """
    from instep.operations.immediate.rollouts import RollBackRolloutRequest

    with open_backend() as backend:
        known = _id(backend, id)
        what = ", ".join(connection or ()) or f"wave {wave or _known(backend, known).wave}"
        if _asks() and not confirm(f"Roll back {what} of {known}?"):
            raise Blocked("the rollout was not rolled back", hint="confirm, or pass --yes")
        _carry(backend, RollBackRolloutRequest(known, wave, tuple(connection or ())), exits=False)


def _asks() -> bool:
    import sys

    return options.interactive and not options.yes and sys.stdin.isatty()


def _carry(backend: Backend, request: Any, *, exits: bool = True) -> None:
    """Advance the rollout by this step, and show it."""
    backend.carry_rollout(request)
    _finish(backend, _known(backend, request.rollout), exits=exits)


def _finish(backend: Backend, made: RolloutDetails, *, exits: bool = True) -> None:
    from instep.cli.render.rollouts import show_rollout

    document = _document(backend, made, every=False)
    emit(document, lambda out: show_rollout(out, document, made.text))
    if exits and made.status in ("halted", "stopped"):
        raise fail(BLOCKED)
    if exits and (made.status == "partial" or document["counts"].get("failed")):
        say(
            f"next: mend what the column `why` names, then `instep rollout resume {made.id}`; "
            'or leave a connection out: `instep rollout skip CONNECTION --reason "..."`'
        )
        raise fail(PARTIAL)
