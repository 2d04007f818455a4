"""A real PostgreSQL as source, a lake, a mail server, and a worker in this process whose clock the test turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

from instep.bootstrap import App
from instep.control import detector, schedules
from instep.model import Job, JobKind
from instep.notify.deliver import Sender
from instep.project.load import load
from instep.store.store import Store
from instep.worker.perform import JobEnd, perform
from postgres_server import Database
from receivers import Post

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
TABLES = """
    create table customer (id integer primary key, name text not null, city text);
    create table item (id integer primary key, price integer, at timestamp);
    create table box (id integer primary key, size integer);
    insert into customer values (1, 'Ann', 'Oslo'), (2, 'Bo', null);
    insert into item values (1, 10, '2026-01-01');
    insert into box values (1, 3);
"""
ALL_ON = (
    "app_options: {propagate_table_creations_to_target_app: true, auto_unsync_deleted_tables: true}, "
    "table_options: {'*.*': {propagate_column_creations_to_target_app: true, auto_unsync_deleted_columns: true}}"
)
ALL_OFF = "app_options: {enable_detect_schema_changes: true}"
HEAD = """\
engine: local
sources:
  crm: {{type: postgres, host: 127.0.0.1, port: {port}, database: {database}, user: {user}, password: "${{env:PG}}"}}
destinations: {{lake: {{type: duckdb, path: lake.duckdb}}}}
egress: {{allow: [127.0.0.0/8]}}
server_url: https://instep.example.org
"""


@dataclass
class Base:
    """`names` are the connections, all of one source. `post` receives what mails say."""

    folder: Path
    database: Database
    names: Sequence[str] = ("shop",)
    post: Post | None = None
    now: datetime = START
    did: list[tuple[Job, JobEnd]] = field(default_factory=list)

    def write(self, options: str = ALL_OFF, more: str = "") -> None:
        """`more`: further sections. A channel for mail is there if there is a mail server."""
        c = self.database.config
        text = HEAD.format(port=c.port, database=c.database, user=c.user)
        pipes = "".join(f"  {name}: {{source: crm, destination: lake, {options}}}\n" for name in self.names)
        mail = (
            f"channels:\n  mail: {{type: email, host: 127.0.0.1, port: {self.post.port}, tls: none, "
            "to: [data@example.org], sender: instep@example.org}\n"
            if self.post
            else ""
        )
        self.folder.joinpath("instep.yml").write_text(f"{text}connections:\n{pipes}{mail}{more}")

    def sql(self, script: str) -> None:
        self.database.execute(script)

    @contextmanager
    def app(self) -> Iterator[App]:
        """Over the file as it is now, with the test's clock."""
        (self.folder / ".instep").mkdir(exist_ok=True)
        project = load(self.folder)
        store = Store(f"sqlite:///{self.folder / '.instep' / 'state.db'}", now=lambda: self.now)
        with App(project, store) as app:
            yield app

    def do(self, kind: JobKind, connection: str = "shop", **options: object) -> JobEnd:
        """One job, asked for and done now."""
        with self.app() as app:
            job, _ = app.store.jobs.enqueue(connection, kind, options=options, key=str(options), priority=50)
            self._work(app)
        return next(ended for one, ended in reversed(self.did) if one.id == job.id)

    def detect(self, connection: str = "shop") -> JobEnd:
        """What the schedule does when it is due."""
        return self.do("detect", connection, apply=True)

    def turn(self, **later: float) -> list[Job]:
        """The clock goes on by so much, and the worker does what is due; the jobs that it has done."""
        self.now += timedelta(**later)
        before = len(self.did)
        with self.app() as app:
            assert schedules.reconcile(app.store, app.project, self.now) == []
            schedules.fire(app.store, self.now)
            self._work(app)
            self._send(app)
        return [job for job, _ in self.did[before:]]

    def _work(self, app: App) -> None:
        while job := app.store.jobs.claim("worker"):
            self.did.append((job, ended := perform(app, job)))
            if ended.error:
                app.store.jobs.fail(job, ended.error, retryable=ended.transient, result=ended.result)
            else:
                app.store.jobs.finish(job, result=ended.result)

    def _send(self, app: App) -> None:
        sender = Sender(app.store, app.channel, app.project.source_of, app._link, lambda: self.now)
        assert [one.error for one in sender.send() if one.error] == []

    def mails(self) -> list[EmailMessage]:
        """Those that came since this was asked last."""
        assert self.post is not None
        found = list(self.post.mails)
        self.post.mails.clear()
        return found

    def standing(self, connection: str = "shop") -> detector.DetectorStatus:
        with self.app() as app:
            return detector.detector_status(app.store, app.project, connection)

    def paused(self, connection: str = "shop") -> str:
        """Why the connection is, "" if it is not."""
        with self.app() as app:
            found = app.store.pauses.connection(connection)
            return found.reason if found else ""

    def lake(self, connection: str = "shop") -> dict[str, list[str]]:
        """Tables of the destination with their columns; none of the product's own."""
        rows = self.rows(
            "select table_name, column_name from information_schema.columns where table_schema = ? order by all",
            connection,
        )
        found: dict[str, list[str]] = {}
        for table, column in rows:
            if not str(table).startswith("_") and not str(column).startswith("_"):
                found.setdefault(str(table), []).append(str(column))
        return found

    def rows(self, sql: str, *values: str) -> list[tuple[object, ...]]:
        import duckdb

        with duckdb.connect(str(self.folder / "lake.duckdb"), read_only=True) as connection:
            return connection.execute(sql, values).fetchall()

    def accepted(self, connection: str = "shop") -> dict[str, list[str]]:
        """What is read, without what only stays behind."""
        with self.app() as app:
            tables = app.store.accepted.catalog(connection).tables
        return {t.name: sorted(c.name for c in t.live) for t in tables if not t.retained}

    def waiting(self, connection: str = "shop") -> list[str]:
        """The kinds of the changes that a person has to decide."""
        with self.app() as app:
            found = app.store.reviews.find(connection, ("open",))
        return sorted(r.kind for r in found if r.action not in ("ignore", "apply"))

    def events(self, *prefixes: str, connection: str = "shop") -> list[str]:
        with self.app() as app:
            return [e.type for e in app.store.events.after(connection=connection) if e.type.startswith(prefixes)]


def html(mail: EmailMessage) -> str:
    found = mail.get_body(("html",))
    assert found is not None
    return str(found.get_content())


def text(mail: EmailMessage) -> str:
    found = mail.get_body(("plain",))
    assert found is not None
    return str(found.get_content())
