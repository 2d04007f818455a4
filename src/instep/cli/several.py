"""One command for several connections, one after another: `--tag` and `--match` name them, as for a rollout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.context import PARTIAL, console, fail, gathered, options, report, say, write_json
from instep.errors import InstepError
from instep.operations.queries.work import ListConnections

if TYPE_CHECKING:
    from instep.backends.protocol import Backend

WithTag = Annotated[
    list[str] | None,
    typer.Option("--tag", help="All connections with this tag, one after another; repeatable."),
]
Matching = Annotated[
    list[str] | None,
    typer.Option("--match", help="All connections that match a glob or re:REGEX, one after another; repeatable."),
]


def for_each(
    backend: Backend,
    connection: str | None,
    tags: Sequence[str] | None,
    matching: Sequence[str] | None,
    command: Callable[[str], None],
) -> None:
    """Run a command for the connection, or for each that has one of the tags and matches one of the patterns.

    A connection whose command fails does not stop the next one. Ends with the exit code that all commands share beside
    0, or with `PARTIAL` where there are several.
    """
    if not (tags or matching):
        command(backend.connection(connection))
        return
    if connection is not None:
        raise InstepError(
            f"{connection} is named beside --tag or --match", hint="name one connection, or choose several by options"
        )
    codes: dict[str, int] = {}
    with gathered() as documents:
        for name in _chosen(backend, tags or (), matching or ()):
            if options.output != "json":
                console().print(name, style="bold")
            codes[name] = _code(command, name)
    if options.output == "json":
        pairs = zip(codes.items(), documents, strict=True)
        write_json({"connections": [{**one, "connection": name, "exit_code": code} for (name, code), one in pairs]})
    _end(codes)


def _chosen(backend: Backend, tags: Sequence[str], matching: Sequence[str]) -> list[str]:
    from instep.control.rollouts.waves import ConnectionGroup, members_of

    group = ConnectionGroup(tags=tuple(tags), matching=tuple(matching))
    return members_of(group, [(one.name, one.destination, one.tags) for one in backend.items(ListConnections())])


def _code(command: Callable[[str], None], name: str) -> int:
    try:
        command(name)
    except typer.Exit as end:
        return end.exit_code
    except InstepError as error:
        return report(error)
    return 0


def _end(codes: dict[str, int]) -> None:
    counts = Counter(codes.values())
    ends = ", ".join(f"{count} with exit code {code}" for code, count in sorted(counts.items()))
    say(f"{len(codes)} connection(s) ended: {ends}")
    others = sorted(counts.keys() - {0})
    if others:
        for name, code in codes.items():
            if code:
                say(f"  {name}: exit code {code}")
        raise fail(others[0] if len(others) == 1 else PARTIAL)
