"""A project of this machine, or the one of a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from instep.backends.calls import (
    answer_changes,
    assign_change,
    choose_changes,
    comment_change,
    find_change,
    list_changes,
    reopen_changes,
    snooze_changes,
    status_document,
)
from instep.errors import ProjectError
from instep.python.connection import Connection, chosen
from instep.python.frames import DestinationTable
from instep.python.progress import ProgressWatch
from instep.python.results import Changes, Document, QueryResult, Records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.backends.protocol import Backend
    from instep.bootstrap import App
    from instep.control.imports import ImportedFiles
    from instep.model import Review
    from instep.store.catalogs.comments import Comment
from instep.operations.queries.changes import ListComments
from instep.operations.queries.work import ListStatus
from instep.operations.values import Answer, ImportedProduct


def open(folder: str | Path = ".", *, spark: SparkSession | None = None) -> Project:
    """Open the project whose `instep.yml` is in `folder` or above it. Use it in a `with` block, or close it.

    Example:
        with instep.open(".") as project:
            project.connection("shop").sync()

    `spark`: a running session, classic or Spark Connect, in which all Spark work of this project is done. It is never
    stopped, and its settings stay as they are. What it lacks is found when Spark is first needed: SetupError names it,
    and how to start a session that has it (see `spark_conf`). Without it, a session is started when work needs one; it
    ends with this process.

    Raises ProjectError if there is no project or if it is wrong, SetupError for a session that is stopped or of another
    version of Spark.
    """
    from instep.backends.local import LocalBackend
    from instep.bootstrap import open_project

    watch, app = ProgressWatch(), open_project(Path(folder), spark)
    return Project(LocalBackend(app, watch, watch.step), watch, str(app.project.root))


def spark_conf(folder: str | Path = ".") -> dict[str, str]:
    """Return the settings that a Spark session needs from its start on, to be given to the project in `folder`.

    Example:
        spark = SparkSession.builder.config(map=instep.spark_conf(".")).getOrCreate()

    With them its lakes are catalogs of the session, by their names in instep.yml. The pinned jars are fetched if they
    are not there. Raises ProjectError as `open` does, SetupError if jars cannot be fetched.
    """
    from instep.bootstrap import open_project

    with open_project(Path(folder)) as app:
        return app.spark_conf()


def connect(url: str, key: str | None = None) -> Project:
    """Open the project of a server. `key`: an API key; without one, that of INSTEP_API_KEY or INSTEP_API_KEY_FILE.

    Example:
        with instep.connect("https://instep.example", key) as project:
            project.connection("shop").sync()

    Workers of the server do the work; a call waits for its end, and leaves it going on when it is interrupted. Raises
    ConnectError if nobody answers at `url`, AccessDenied for a key that is not known.
    """
    from importlib.metadata import version

    from instep.backends.http.client import Client
    from instep.backends.http.credentials import checked_key
    from instep.backends.http.credentials import key as key_of_environment
    from instep.backends.remote import RemoteBackend
    from instep.backends.remote_jobs import Follower

    def ignore(_: object) -> None:
        """Ignore messages for a terminal: results have what matters."""

    secret = key_of_environment(os.environ) if key is None else checked_key(key.strip(), "`key`")
    watch, client = ProgressWatch(), Client(url, secret, version("instep"), ignore)
    return Project(RemoteBackend(client, Follower(client, watch, ignore), ignore, Path()), watch, f"at {client.base}")


def import_configuration(
    product: ImportedProduct,
    files: Sequence[str | Path],
    folder: str | Path = ".",
    *,
    into: str | Path | None = None,
    connectors: Sequence[str] = (),
    warehouse: str = "",
    dry_run: bool = False,
) -> ImportedFiles:
    """Write the project of an export of "airbyte" or "fivetran" into `folder`; return what it has, and its files.

    Example:
        done = instep.import_configuration("airbyte", ["sources.json", "connections.json"])
        for secret in done.configuration.secrets:
            print(secret.variable, secret.found)

    States and catalogs of the export are adopted: the next sync of their connections reads on. `into`: write this new
    file alone. `connectors`: versions that the export does not tell, such as "source-faker==7.2.1". `warehouse`: an
    Iceberg warehouse for connections whose destination instep does not have. With `dry_run` nothing is written.

    Raises ProjectError for files that are no export, or if a file is there already with another text. A server does the
    same by `project.perform("import_configuration", product=..., files={"export.json": {...}})`.
    """
    from instep.backends import local
    from instep.operations.immediate.imports import ImportConfigurationRequest
    from instep.project.imports.documents import read_files

    documents = read_files([Path(file) for file in files])
    request = ImportConfigurationRequest(product, documents, tuple(connectors), warehouse)
    new = None if into is None else Path(into)
    return local.import_configuration(request, Path(folder), into=new, dry_run=dry_run)


class Project(AbstractContextManager["Project"]):
    """An open project: its connections, the changes that wait, and its tables in SQL.

    Example:
        with instep.open(".") as project:
            for shop in project.connections:
                shop.sync()
            project.approve(*project.changes())
            project.query("select count(*) from shop.orders").rows

    Errors are those of `instep.errors`.
    """

    def __init__(self, backend: Backend, watch: ProgressWatch, place: str) -> None:
        self._backend, self._watch, self._place = backend, watch, place

    def __repr__(self) -> str:
        return f"<instep project {self._place}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the project. A Spark session that was given goes on; one that instep has started ends with the process.

        Calls of a closed project fail: open it again.
        """
        self._backend.__exit__(None, None, None)

    def connection(self, name: str | None = None) -> Connection:
        """Return the named connection, or the only one; ProjectError if that is not clear or it is not there."""
        return Connection(self._backend.connection(name), self._backend, self._watch)

    @property
    def connections(self) -> list[Connection]:
        """Return all connections, by name."""
        return [Connection(name, self._backend, self._watch) for name in self._backend.connections()]

    def status(self) -> Records[Document]:
        """Return the last run, pauses, waiting changes, tables and backfills of each connection."""
        statuses = self._backend.items(ListStatus())
        return Records(Document(status_document(self._backend, one)) for one in statuses)

    def changes(self, *, all: bool = False, search: str = "", tag: str = "", assignee: str = "") -> Changes:
        """Return the changes that wait for a decision, or `all` changes; newest first.

        `search`: a part of the name of a connection, schema, table or column, or a regular expression after `re:`;
        `tag`: of connections with this tag; `assignee`: assigned to this person.
        """
        return Changes(list_changes(self._backend, None, every=all, search=search, tag=tag, assignee=assignee))

    def comment(self, change: Review | str, text: str) -> Comment:
        """Comment on a change, given as a record or by its id; return the comment. Errors: see `approve`."""
        [id] = chosen((change,))
        return comment_change(self._backend, id, text)

    def comments(self, change: Review | str) -> Records[Comment]:
        """Return the comments on a change, oldest first. Errors: see `approve`."""
        [id] = chosen((change,))
        return Records(self._backend.items(ListComments(find_change(self._backend, id).id)))

    def assign(self, change: Review | str, assignee: str) -> Review:
        """Assign a change to a person, "" for nobody; return the change. Errors: see `approve`."""
        [id] = chosen((change,))
        return assign_change(self._backend, id, assignee)

    def approve(self, *changes: Review | str | Iterable[Review | str]) -> Changes:
        """Approve changes, given as records, lists of them, or by their ids; the next sync or `apply` carries them out.

        Raises InstepError for an id that there is not, Conflict for a change that was superseded.
        """
        return self._answer(changes, "approved")

    def reject(self, *changes: Review | str | Iterable[Review | str]) -> Changes:
        """Reject changes, given as records or by their ids: what is loaded stays as it is. Errors: see `approve`."""
        return self._answer(changes, "rejected")

    def ignore(self, *changes: Review | str | Iterable[Review | str]) -> Changes:
        """Reject changes and send no more notices of them until the change itself differs. Errors: see `approve`."""
        return self._answer(changes, "ignored")

    def snooze(self, *changes: Review | str | Iterable[Review | str], until: datetime) -> Changes:
        """Leave open changes out of `changes` until this time (UTC without an offset). Errors: see `approve`."""
        end = until if until.tzinfo else until.replace(tzinfo=UTC)
        return Changes(snooze_changes(self._backend, self._named(changes), end))

    def reopen(self, *changes: Review | str | Iterable[Review | str]) -> Changes:
        """Take back the answers to changes, or their snoozes: they wait for a person again. Errors: see `approve`."""
        return Changes(reopen_changes(self._backend, self._named(changes)))

    def _answer(self, changes: Iterable[Review | str | Iterable[Review | str]], status: Answer) -> Changes:
        return Changes(answer_changes(self._backend, self._named(changes), status))

    def _named(self, changes: Iterable[Review | str | Iterable[Review | str]]) -> list[Review]:
        from instep.control.reviews import ChangeFilter

        return choose_changes(self._backend, ChangeFilter(chosen(changes), None, (), (), ()))

    def perform(self, operation: str, **fields: object) -> Any:
        """Carry out an operation that is done at once, by its name in the API; return its answer.

        Example:
            project.perform("create_key", name="ci", role="operator").secret

        `fields`: those of its request in the API's description. Raises InstepError for an operation or a field that
        there is not, NotFound, Conflict or Blocked as the operation says.
        """
        from instep.backends.calls import immediate_request

        return self._backend.operations.perform(immediate_request(operation, fields))

    def query(self, sql: str, destination: str | None = None) -> QueryResult:
        """Run one SELECT (`sql`) over the tables of a destination, named as `namespace.table`; only those are read.

        Example:
            project.query("select id, total from shop.orders").to_pandas()

        `destination`: its name in `instep.yml`; not needed if there is only one. The rows are read into this process;
        rows that the source has deleted are marked in a system column. Raises InstepError if the query cannot be run,
        ProjectError for the project of a server: rows do not pass through it.
        """
        from instep.sync.query import ask_arrow

        app = self._with_rows()
        return QueryResult(ask_arrow(app.destination(destination), sql), app.given_spark)

    def table(self, name: str, destination: str | None = None) -> DestinationTable:
        """Return a table of a destination, named as `query` names it (`namespace.table`).

        Example:
            project.table("shop.orders").to_spark(spark)

        `destination`: its name in `instep.yml`; not needed if there is only one. Raises NotFound for a table that the
        destination does not have, ProjectError for the project of a server: rows do not pass through it.
        """
        app = self._with_rows()
        return DestinationTable.named(name, app.destination(destination), app.given_spark)

    def _with_rows(self) -> App:
        from instep.backends.local import LocalBackend

        if not isinstance(self._backend, LocalBackend):
            raise ProjectError("rows do not pass through a server", hint="open the project where it is")
        return self._backend.app
