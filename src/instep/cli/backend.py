"""Opens the backend of a command: the project of this machine, or the server that `--server` names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from instep.cli.context import open_app, options, say
from instep.errors import InstepError

if TYPE_CHECKING:
    from instep.backends.http.client import Client
    from instep.backends.protocol import Backend
    from instep.backends.remote import RemoteBackend

REMOTE = frozenset({
    "status", "undo", "pause", "resume", "history", "preview",
    "schema show", "schema lock", "restore", "repair",
    "changes list", "changes show", "changes approve", "changes map", "changes reject", "changes ignore",
    "changes snooze", "changes reopen", "changes comment", "changes assign", "changes sample",
    "quarantine list", "quarantine show", "quarantine replay", "quarantine discard",
    "table set-key", "table set-cursor",
    "selection show", "selection on", "selection off", "selection hash", "selection unhash",
    "policy show", "policy explain", "policy test", "policy simulate",
    "rollout create", "rollout status", "rollout advance", "rollout resume", "rollout stop", "rollout skip",
    "rollout rollback",
    "detector status", "detector enable", "detector set",
    "queue list", "queue show", "queue cancel", "queue retry",
    "source upgrade", "import airbyte", "import fivetran",
    "notify test", "notify log", "notify retry", "notify open",
    "keys list", "keys create", "keys rotate", "keys revoke", "keys password", "keys link", "remove",
})  # fmt: skip
"""The commands that work over a server, beside those that show the answer of a `DirectWork`: see `is_remote`."""

LOCAL_COMMANDS = frozenset({
    "engine status", "engine start", "engine stop",
    "version", "init", "demo up", "demo down", "demo change", "demo play",
    "connector init", "connector debug", "connector run", "connector check", "connector reset", "connector demo",
})  # fmt: skip
"""The commands that are about this machine alone, whatever server is named."""

_USE_SERVER = "run it where the server's project is, without --server and INSTEP_SERVER, or use the API"
_LOCALLY = "run it without --server and INSTEP_SERVER"
WHY = {
    "server": "it starts a server on this machine",
    "ui": "it starts the page of this machine's project; a server has its own",
    "worker": "it runs jobs on this machine",
    "doctor": "it checks this machine",
    "validate": "it checks the instep.yml of this machine",
    "source": "it opens the source, which a server does not",
    "destination": "it opens the destination, which a server does not",
    "query": "rows do not pass through the server",
    "secrets": "master keys never leave the machine of the server",
    "db": "it works on the store itself",
    "audit": "the chain is verified in the store itself, without relying on a server",
    "connection": "a deletion is confirmed where its tables are",
    "schema diff": "a server returns one schema at a time",
    "policy import": "it writes keys for the instep.yml of a project",
    "contract": "it reads and writes files of the project",
    "migration": "it reads files of the project",
    "table": "a server has no route for it",
    "notify": "notifications are sent where the project is",
    "export": "it copies the store, encrypted secrets included",
    "import project": "it writes into the store, secrets included",
}
_INSTEAD = {
    "server": _LOCALLY,
    "ui": "open the server's address in a browser",
    "worker": f"{_LOCALLY}, where the server's store is reached",
    "doctor": _LOCALLY,
    "validate": _LOCALLY,
    "policy import": f"{_LOCALLY}, in the folder of that project",
    "schema diff": "see both: `instep schema show --at A`, `instep schema show --at B`",
}


def refuse_local(command: str) -> None:
    """Raise InstepError if a server is named and this command (`changes map`; "" for help) does not work over one."""
    if not options.server or not command or command in LOCAL_COMMANDS or is_remote(command):
        return
    family = command.partition(" ")[0]
    why = WHY.get(command) or WHY.get(family) or "servers do not support it"
    hint = _INSTEAD.get(command) or _INSTEAD.get(family) or _USE_SERVER
    raise InstepError(f"`instep {command}` is not available with --server: {why}", hint=hint)


def is_remote(command: str) -> bool:
    """True if the command works over a server: one of `REMOTE`, or called as an operation that answers a record."""
    from instep.operations.registry import specs

    return command in REMOTE or (command in specs() and specs()[command].result != "")


@contextmanager
def open_backend() -> Iterator[Backend]:
    """Open the backend that the global options name."""
    if options.server:
        yield open_remote()
        return
    from instep.backends.local import LocalBackend
    from instep.cli.render.live import waiting, watched

    with LocalBackend(open_app(), watched, say, waiting) as backend:
        yield backend


def table_ref(backend: Backend, connection: str, path: str) -> tuple[str, str]:
    """Return the accepted table that people call by this path; InstepError if there is none."""
    from instep.backends.calls import accepted_tables

    known = accepted_tables(backend, connection)
    if path not in known:
        from instep.suggest import unknown_table

        raise unknown_table(f"connection {connection} has no table {path}", path, known)
    return known[path]


def open_remote() -> RemoteBackend:
    """Open the backend of the server that is named."""
    from instep.backends.remote import RemoteBackend
    from instep.backends.remote_jobs import Follower
    from instep.cli.render.live import watched

    client = open_client()
    follower = Follower(client, watched, goes_on)
    return RemoteBackend(client, follower, say, options.project)


def open_client() -> Client:
    """Return a client of the server that is named, with the user's key."""
    from importlib.metadata import version

    from instep.backends.http.client import Client
    from instep.backends.http.credentials import key

    return Client(options.server, key(os.environ), version("instep"), say)


def goes_on(job: str) -> None:
    """Notify the user who stops waiting that the job continues."""
    say(
        f"job {job} continues on the server: run `instep queue show {job}` to follow it, "
        f"`instep queue cancel {job}` to stop it"
    )
