"""Where a command works: at the project of this machine, or at the server that `--server` names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from instep.cli.context import open_app, options, say
from instep.errors import InstepError

if TYPE_CHECKING:
    from instep.remote.client import Client
    from instep.remote.desk import Desk
    from instep.remote.there import There

REMOTE = frozenset({
    "status", "detect", "sync", "pause", "resume", "history", "schema show",
    "changes list", "changes show", "changes approve", "changes reject", "changes ignore", "changes snooze",
    "quarantine list", "quarantine show",
    "queue list", "queue show", "queue cancel", "queue retry",
    "keys list", "keys create", "keys rotate", "keys revoke",
})  # fmt: skip
"""What works over a server."""

HERE = frozenset({
    "version", "init", "demo up", "demo down", "demo change", "demo play",
    "connector init", "connector debug", "connector run", "connector check", "connector reset", "connector demo",
})  # fmt: skip
"""What is about this machine alone, whatever server is named."""

_OVER_THERE = "run it where the server's project is, without --server and INSTEP_SERVER, or use the API"
_WHY = {
    "server": "it starts a server on this machine",
    "worker": "it runs jobs on this machine",
    "doctor": "it checks this machine",
    "validate": "it checks the instep.yml of this machine",
    "source": "it opens the source, which a server does not",
    "destination": "it opens the destination, which a server does not",
    "query": "rows do not pass through the server",
    "verify": "it reads the rows of both sides, which do not pass through the server",
    "secrets": "master keys never leave the machine of the server",
    "db": "it works on the store itself",
    "connection": "a deletion is confirmed where its tables are",
    "changes map": "a mapping is prepared with a look at source and destination",
    "quarantine replay": "it writes rows into the destination",
    "quarantine discard": "it rewrites files at the destination",
    "schema diff": "a server tells one schema at a time",
    "schema lock": "it writes a file of the project",
}
_INSTEAD = {
    "server": "run it without --server and INSTEP_SERVER",
    "worker": "run it without --server and INSTEP_SERVER, where the server's store is reached",
    "doctor": "run it without --server and INSTEP_SERVER",
    "validate": "run it without --server and INSTEP_SERVER",
    "schema diff": "see both: `instep schema show --at A`, `instep schema show --at B`",
}


def refuse_local(command: str) -> None:
    """InstepError if a server is named and this command (`changes map`; "" for help) does not work over one."""
    if not options.server or not command or command in REMOTE or command in HERE:
        return
    family = command.partition(" ")[0]
    why = _WHY.get(command) or _WHY.get(family) or "it works on the project itself"
    hint = _INSTEAD.get(command) or _INSTEAD.get(family) or _OVER_THERE
    raise InstepError(f"`instep {command}` does not work over --server: {why}", hint=hint)


@contextmanager
def open_desk() -> Iterator[Desk]:
    """The desk that the global options name."""
    if options.server:
        yield open_there()
        return
    from instep.cli.here import Here

    with Here(open_app()) as desk:
        yield desk


def open_there() -> There:
    """The desk at the server that is named."""
    from instep.cli.live import watched
    from instep.remote.follow import Follower
    from instep.remote.there import There

    client = open_client()
    return There(client, Follower(client, watched, goes_on))


def open_client() -> Client:
    """A client of the server that is named, with the user's key."""
    from importlib.metadata import version

    from instep.remote.client import Client
    from instep.remote.key import key

    return Client(options.server, key(os.environ), version("instep"), say)


def goes_on(job: str) -> None:
    """Told when somebody stops waiting."""
    say(f"job {job} goes on at the server: `instep queue show {job}` says how it stands, `queue cancel {job}` stops it")
