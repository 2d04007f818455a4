"""A project of this machine, or the one of a server."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from instep.errors import ProjectError
from instep.python.connection import Changes, Connection, chosen
from instep.python.progress import Watch
from instep.python.results import QueryResult

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.control.reviews import Answer
    from instep.model import Review
    from instep.remote.desk import Desk


def open(folder: str | Path = ".") -> Project:
    """Open the project whose `instep.yml` is in `folder` or above it. Use it in a `with` block, or close it.

    Raises ProjectError if there is none, or if it is wrong.
    """
    from instep.bootstrap import open_project
    from instep.cli.here import Here

    watch, app = Watch(), open_project(Path(folder))
    return Project(Here(app, watch), watch, app)


def connect(url: str, key: str | None = None) -> Project:
    """Open the project of a server. `key`: an API key; without one, that of INSTEP_API_KEY or INSTEP_API_KEY_FILE.

    Workers of the server do the work; calls wait for its end, and leave it going on when they are interrupted. Raises
    ConnectError if nobody answers at `url`, AccessRefused for a key that is not known.
    """
    from importlib.metadata import version

    from instep.remote.client import Client
    from instep.remote.follow import Follower
    from instep.remote.key import VARIABLE
    from instep.remote.key import key as found_key
    from instep.remote.there import There

    def ignore(_: object) -> None:
        """Nobody is told: what matters is in the results."""

    secret = found_key(os.environ if key is None else {VARIABLE: key})
    watch, client = Watch(), Client(url, secret, version("instep"), ignore)
    return Project(There(client, Follower(client, watch, ignore), ignore, ignore, Path()), watch)


class Project(AbstractContextManager["Project"]):
    """An open project: its connections, the changes that wait, and its tables in SQL."""

    def __init__(self, desk: Desk, watch: Watch, app: App | None = None) -> None:
        self._desk, self._watch, self._app = desk, watch, app

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and the Spark session that this project has started."""
        self._desk.__exit__(None, None, None)

    def connection(self, name: str | None = None) -> Connection:
        """Return the named connection, or the only one; ProjectError if that is not clear or it is not there."""
        return Connection(self._desk.connection(name), self._desk, self._watch)

    @property
    def connections(self) -> list[Connection]:
        """All connections, by name."""
        return [Connection(one["connection"], self._desk, self._watch) for one in self.status()]

    def status(self) -> list[dict[str, Any]]:
        """Return of each connection its last run, pauses, waiting changes, tables and backfills."""
        return self._desk.status()

    def changes(self, *, all: bool = False) -> Changes:
        """Return the changes that wait for a decision, or all of them; newest first."""
        return Changes(self._desk.changes(None, every=all))

    def approve(self, *changes: Review | str) -> Changes:
        """Approve changes, given as such or by their ids; the next sync or `apply` carries them out."""
        return self._answer(changes, "approved")

    def reject(self, *changes: Review | str) -> Changes:
        """Reject changes, given as such or by their ids: what is loaded stays as it is."""
        return self._answer(changes, "rejected")

    def _answer(self, changes: tuple[Review | str, ...], status: Answer) -> Changes:
        from instep.control.reviews import Wish

        found = self._desk.choose(Wish(chosen(changes), None, (), (), ()))
        return Changes(self._desk.answer(found, status, hashed=False))

    def query(self, sql: str, destination: str | None = None) -> QueryResult:
        """Run one SELECT over the tables of a destination, named as `namespace.table`; only those are read.

        `destination`: its name in `instep.yml`; not needed if there is only one. Raises InstepError if the query cannot
        be run, ProjectError for the project of a server: rows do not pass through it.
        """
        if self._app is None:
            raise ProjectError("rows do not pass through a server", hint="open the project where it is")
        from instep.sync.query import ask

        answer = ask(self._app.destination(destination), sql)
        return QueryResult(answer.columns, answer.rows)
