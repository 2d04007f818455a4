"""An open project: its store, its sources and destinations, what a run of a connection needs, and the logs kept for
CDC."""

from __future__ import annotations

import atexit
import getpass
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from instep.bootstrap import kinds
from instep.errors import InstepError, ProjectError, SetupError
from instep.model import EngineUse, LogNames
from instep.private import make_state_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.control.compat import Identity
    from instep.control.resources.resources import Resources
    from instep.destinations.facets import Destination
    from instep.monitoring.lineage import Lineage
    from instep.monitoring.traces import TraceExporter
    from instep.notify.channel import Channel
    from instep.notify.deliver import Sender
    from instep.project.project import Project
    from instep.project.sections.tables import TableSettings
    from instep.project.text.references import Opens
    from instep.schema.planning.naming import NamesOf
    from instep.schema.policy.policy import Policy
    from instep.sources.base import Source
    from instep.sources.log import ChangeLog
    from instep.spark.provided_session import GivenSession
    from instep.spark.settings import SparkSettings
    from instep.store.server.secrets import Secrets
    from instep.store.store import Store
    from instep.sync.context import Scope, SyncContext
    from instep.sync.loading.engine import Engine
    from instep.temporary import TemporaryFolder


_log = logging.getLogger(__name__)


def open_project(folder: Path, spark: SparkSession | None = None) -> App:
    """Open the project whose instep.yml is in `folder` or above it; ProjectError if there is none or it is wrong.

    `spark`: a session of the caller, for all Spark work of this project; SetupError if it is stopped or too old.
    """
    from instep.project.load import find, load

    file = find(folder)
    if spark is None:
        return App(load(file), reread=lambda: load(file))
    from instep.spark.provided_session import GivenSession

    session = GivenSession(spark)

    def read() -> Project:
        return load(file).with_spark(session.master)

    return App(read(), reread=read, spark=session)


def open_server(folder: Path, *, insecure_dev: bool = False, lazy_keys: bool = False) -> App:
    """Return the project in `folder` together with what its store keeps; an instep.yml is not needed. ProjectError
    without master keys for secrets, unless `insecure_dev`; with `lazy_keys` not before a secret is used."""
    from instep.project.load import load_beside
    from instep.project.served import served
    from instep.store.engine.keyring import keyring
    from instep.store.store import Store

    project = load_beside(folder)
    read = partial(keyring, project.root, insecure_dev=insecure_dev, variables=project.environment.variables)
    keys = read if lazy_keys else read()
    make_state_folder(project.root)
    store = Store(project.store_url(), keys=keys)
    opening = opens(store.secrets)

    def reread() -> Project:
        if app.project.digest and not project.file.is_file():
            raise ProjectError(f"{project.file} is gone")
        return served(load_beside(project.root), store.objects, opening)

    app = App(served(project, store.objects, opening), store, reread)
    return app


def open_page(folder: Path) -> App:
    """Open the project for the person at this machine: as `open_work` does, and an empty folder with a master key that
    is made for it."""
    from instep.project.load import load_beside
    from instep.store.engine.keyring import FILE, add_key, has_keys

    project = load_beside(folder)
    if not project.file.is_file() and not has_keys(project.root, project.environment.variables):
        add_key(project.root / FILE)
    return open_work(folder)


def open_work(folder: Path, *, insecure_dev: bool = False) -> App:
    """Open the project for a worker: as the server opens it where there are master keys, else from the file alone."""
    from instep.project.load import load_beside
    from instep.store.engine.keyring import has_keys

    project = load_beside(folder)
    if insecure_dev or has_keys(project.root, project.environment.variables):
        return open_server(folder, insecure_dev=insecure_dev)
    return open_project(folder)


class App:
    """An open project. Use it in a `with` block: it closes the store."""

    def __init__(
        self,
        project: Project,
        store: Store | None = None,
        reread: Callable[[], Project] | None = None,
        spark: GivenSession | None = None,
    ) -> None:
        """Take an open `store`, or open the project's when it is needed. `reread` returns the project as its files
        are now. `spark` is a session of the caller; without it, one is started when it is needed."""
        from instep.project.text.references import ENV_FILE, FileWatch

        self.project = project
        self._reread = reread
        self._given = spark
        secrets = FileWatch(project.root / ENV_FILE, project.environment.digest)
        self._watches = FileWatch(project.file, project.digest), secrets
        self._sessions: list[SparkSession] = []
        if store is not None:
            self.store = self._telling(store)
        self.before_close: Callable[[App], None] | None = None
        self.looks_only = False  # what a command writes into the store may be lost: it writes nothing
        self._copy: TemporaryFolder | None = None
        self._traces: TraceExporter | None = None

    @cached_property
    def store(self) -> Store:
        from instep.store.engine.keyring import found_keys
        from instep.store.engine.read_only import copied, is_writable
        from instep.store.store import Store

        root, variables = self.project.root, self.project.environment.variables
        keys, url = partial(found_keys, root, variables), self.project.store_url()
        if self.looks_only and not is_writable(url):
            url, self._copy = copied(url)
        else:
            make_state_folder(root)
        return self._telling(Store(url, keys=keys))

    @property
    def store_is_read_only(self) -> bool:
        """Return whether the store is a copy, as its place may not be written."""
        return bool(self.store) and self._copy is not None

    def refresh(self) -> str:
        """Take in what the project file and the `.env` beside it say, if one is another text by now. "" or, once for
        each text, why that is not done: what they said before holds on."""
        moved = [watch.has_changed() for watch in self._watches]  # all are asked, so that each text is told once
        if self._reread is None or not any(moved):
            return ""
        try:
            new = self._reread()
            if new.store_url() != self.project.store_url():
                raise ProjectError("store: another one is taken in by a new start only")
        except ProjectError as error:
            return f"{error.message}; what {self.project.file.name} said before holds on"
        self.project = new
        if "store" in self.__dict__:
            self._telling(self.store)
        _log.info("%s and what stands beside it were read again", new.file.name)
        return ""

    def _telling(self, store: Store) -> Store:
        """Return the store, which writes the notices of its events from now on."""
        from instep.notify.hooks import Hooks
        from instep.notify.routes import Routes

        routes, hooks = Routes(self.project, store), Hooks(store, self._about)
        store.outbox.routing = lambda event, at: [*routes(event, at), *hooks(event, at)]
        return store

    def _about(self, connection: str) -> Identity:
        from instep.control.compat import identity

        return identity(self.project, self.store, connection)

    def connection(self, name: str | None = None) -> str:
        """Return the named connection, or the only one; ProjectError if that is not clear."""
        names = self.project.selected([name] if name else [])
        if len(names) > 1:
            from instep.suggest import first_of

            raise ProjectError(
                f"this project has {len(names)} connections: choose one",
                hint=f"name it as the command's CONNECTION or by -c (see --help): {first_of(names)}",
            )
        return names[0]

    def source(self, name: str | None = None) -> Source:
        """Return the source of that name, or the only one."""
        chosen = self._only("source", name, self.project.model.sources)
        return kinds.source(chosen, self.project, lambda: self.store, lambda: self._session(None, chosen))

    def source_in(self, project: Project, connection: str) -> Source:
        """Return a connection's source as another form of the project has it."""
        name, start = project.source_of(connection), partial(self._start, connection)
        return kinds.source(name, project, lambda: self.store, start, connection)

    def destination(self, name: str | None = None) -> Destination:
        """Return the destination of that name, or the only one."""
        return kinds.destination(self._only("destination", name, self.project.model.destinations), self.project)

    def channel(self, name: str) -> Channel:
        """Return the channel of that name; also one that is a webhook of the compatible API."""
        from instep.control.compat import CompatDocuments
        from instep.egress.guard import EgressGuard
        from instep.notify.hooks import PREFIX, HookChannel, HookConfig

        guard = EgressGuard(self.project.model.egress.allow)
        if not name.startswith(PREFIX):
            return kinds.channel(self.project.channel(name), guard)
        webhook = CompatDocuments(self.store).opened("webhook", name.removeprefix(PREFIX))
        return HookChannel(HookConfig(webhook["url"], webhook.get("secret", "")), guard, self._about)

    def traced(self) -> None:
        """Send this process's spans to the project's collector from now on, if it names one."""
        if self._traces is None and self.project.model.traces.url:
            from instep.egress.guard import EgressGuard
            from instep.monitoring.traces import trace_to

            self._traces = trace_to(EgressGuard(self.project.model.egress.allow), self.project.traces())

    def lineage(self) -> Lineage | None:
        """Return the sender of runs as OpenLineage events, if the project names a receiver."""
        if not self.project.model.lineage.on:
            return None
        from instep.egress.guard import EgressGuard
        from instep.monitoring.lineage import Lineage

        return Lineage(self.store, self.project, self.project.lineage(), EgressGuard(self.project.model.egress.allow))

    def sender(self) -> Sender:
        """Return the sender of the notifications that are due."""
        self.traced()
        from instep.notify.deliver import Sender
        from instep.store.store import utc_now

        retention = self.project.model.retention.period("deliveries")
        return Sender(self.store, self.channel, self._source_of, self._link, utc_now, retention=retention)

    def _source_of(self, connection: str) -> str:
        """Return the name of a connection's source, "" if it is no longer in the project."""
        try:
            return self.project.source_of(connection)
        except ProjectError:
            return ""

    def _link(self, connection: str, of: str) -> str:
        """Return the page of a change, a run (`of`: its id) or the connection; "" if no server is known."""
        url = self.project.model.server_url
        if not url:
            return ""
        if not of:
            return f"{url}/connections/{quote(connection, safe='')}"
        return f"{url}/{'changes' if of.startswith('c-') else 'runs'}/{quote(of, safe='')}"

    def _only(self, what: str, name: str | None, names: Mapping[str, Any]) -> str:
        if name is not None:
            return name
        if len(names) != 1:
            from instep.suggest import first_of

            hint = f"name it: {first_of([*names])}" if names else f"add one below `{what}s:` in instep.yml"
            raise ProjectError(
                f"this project has {len(names) or 'no'} {what}s{': choose one' * bool(names)}", hint=hint
            )
        return next(iter(names))

    def sync_context(self, connection: str) -> SyncContext:
        """Return everything that one connection's run needs."""
        self.traced()
        from instep.schema.planning.naming import Naming
        from instep.sync.context import SyncContext
        from instep.sync.schema_changes.owned_tables import of_shard
        from instep.sync.schema_changes.selected import chosen

        project = self.project.of(connection)
        destination = kinds.destination(project.destination_of(connection), project)
        start = partial(self._start, connection)
        on = partial(kinds.cluster, project, connection, start, destination)
        source = kinds.source(project.source_of(connection), project, lambda: self.store, start, connection, on)
        settings = project.destination(project.destination_of(connection))
        policy = project.policy(connection)
        naming = Naming(
            namespace=project.namespace_of(connection),
            prefix=settings.prefix,
            default_schema=source.default_schema,
            max_bytes=destination.capabilities.max_name_bytes,
            case_sensitive=destination.capabilities.case_sensitive,
            reserved=destination.capabilities.reserved,
            custom_names=custom_names_of(project, connection),
        )
        settings_of = cache(lambda ref: table_settings(project, connection, ref, policy))
        context = SyncContext(
            name=connection,
            source=source,
            destination=destination,
            destination_name=project.destination_of(connection),
            policy=policy,
            selection=chosen(project.selection(connection), self.store, connection),
            file=project.selection(connection),
            protect=project.connection(connection).protect.rules(),
            naming=naming,
            settings=lambda table: settings_of(table.ref),
            types=project.connection(connection).types,
            store=self.store,
            spark=self._spark(destination),
            tags=tuple(project.connection(connection).tags),
            salt=project.salt(connection),
            who=user(),
            max_new_columns=project.connection(connection).max_new_columns,
            backfill_limits=project.connection(connection).backfill_limits.limits(),
            maintenance=project.connection(connection).maintain.rules(),
            detect_every=project.detect(connection).relied_on,
            log=(log := self._log_names(project, connection)),
            log_taken=partial(self.log_taken, connection, log.slot if log else ""),
            tables_named=project.tables_named(connection),
            four_eyes=project.model.four_eyes,
            scope=self._scope(project, connection, start),
            engine=cache(partial(self.engine, connection)),
        )
        shard = project.connection(connection).shard
        return of_shard(context, shard) if shard else context

    def _scope(self, project: Project, connection: str, start: Callable[[], SparkSession]) -> Scope:
        from instep.sync.context import Scope

        name = project.source_of(connection)

        def unfiltered() -> Source:
            return kinds.source(name, project, lambda: self.store, start, connection, filtered=False)

        section, own = project.model.sources[name], project.connection(connection)
        include, exclude = (tuple(getattr(section, key, ())) for key in ("include", "exclude"))
        columns = dict.fromkeys(own.exclude.columns, "exclude") | dict.fromkeys(own.hash, "hash")
        return Scope(name, include, unfiltered, exclude, columns)

    def log_names(self, connection: str) -> LogNames | None:
        """Return the names of the connection's log at its source; None if no table of it uses change data capture."""
        return self._log_names(self.project, connection)

    def _log_names(self, project: Project, connection: str) -> LogNames | None:
        """Return the names as `log_names` does. A slot without the store's id stays in use as long as cursors of the
        connection are in it."""
        if not project.follows_log(connection):
            return None
        from instep.sync.loading.cdc import slots

        own = project.own_log_name(connection)
        if own not in slots(self.store.cursors.of(connection)):
            own = project.own_log_name(connection, self.store.installation.id())
        return LogNames(*project.log_names(connection, own))

    def log_taken(self, connection: str, slot: str) -> str:
        """Return the other connection of the same source whose tables are read from this slot, "" for none."""
        from instep.control.resources.log_names import reads_slot

        return reads_slot(self.project, self.store, connection, self.project.source_of(connection), slot)

    @property
    def objects(self) -> Resources:
        """Return the managed resources: the file's sections, and those of the server's store."""
        from instep.control.resources.resources import Resources

        return Resources(self.project, self.store)

    def _spark(self, destination: Destination | None) -> SparkSettings:
        from instep.project.sections.values import as_text
        from instep.spark.settings import SparkSettings

        settings = self.project.spark()
        return SparkSettings(
            master=settings.master,
            remote=settings.remote or None,
            driver_memory=settings.driver_memory,
            conf={**(destination.lifecycle.spark_catalog() if destination else {}), **as_text(settings.conf)},
        )

    @property
    def given_spark(self) -> SparkSession | None:
        """Return the session that the caller has given, if there is one."""
        return self._given.spark if self._given is not None else None

    def spark_conf(self) -> dict[str, str]:
        """Return the settings that a Spark session needs from its start to be used for this project, with every lake
        as a catalog."""
        from instep.spark.provided_session import start_settings

        settings = self._spark(None)
        for name in self.project.model.destinations:
            settings = replace(settings, conf={**self.destination(name).lifecycle.spark_catalog(), **settings.conf})
        return start_settings(settings)

    def engine(self, connection: str) -> Engine:
        """Return the engine that reads this connection's rows. A Spark session ends with the process."""
        from instep.sync.loading.engine import DriverReads, LocalEngine, OnSpark

        kind = self.project.model.sources[self.project.source_of(connection)].type
        if self.project.engine == "spark":
            check_spark()
            on_driver = kind in ("connector", "airbyte") and self.project.works_elsewhere
            engine = DriverReads if on_driver else OnSpark  # a connector's operations are in files of this machine
            return engine(lambda: self._start(connection), self._spark(None).where)
        if kind == "jdbc":
            raise ProjectError(
                f"connection {connection}: a source of type jdbc is read by Spark, whose JVM its driver runs in",
                hint="set `engine: spark`",
            )
        return LocalEngine()

    def engine_use(self) -> EngineUse:
        """Return the engine of the project and where it runs."""
        on_spark = self.project.engine == "spark"
        return EngineUse(self.project.engine, self._spark(None).where if on_spark else "")

    def _start(self, connection: str) -> SparkSession:
        destination = self.destination(self.project.destination_of(connection))
        return self._session(destination, self.project.source_of(connection))

    def _session(self, destination: Destination | None, source: str) -> SparkSession:
        """Return a session that the source's driver can run in: the caller's, or one that runs, as it is, or a new
        one."""
        check_spark()
        from instep.sources.jdbc.config import jar_file
        from instep.spark.resident import attach
        from instep.spark.session import end, start

        if self._given is not None:
            return self._given.session(self._spark(destination))  # a JDBC source brings its driver to it
        section = self.project.source(source)
        drivers = tuple(map(jar_file, section.jars)) if section.type == "jdbc" else ()
        settings = replace(self._spark(destination), drivers=drivers)
        if (attached := attach(settings)) is not None:
            return attached
        session = start(settings)
        if session not in self._sessions:
            self._sessions.append(session)
            atexit.register(end, session)
        return session

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "store" in self.__dict__:
            try:
                if self.before_close and not isinstance(error, KeyboardInterrupt):
                    self.before_close(self)
            finally:
                self.store.close()
                if self._copy is not None:
                    self._copy.close()
        if self._given is not None:
            self._given.close()
        if self._traces is not None:
            self._traces.flush()


def check_spark() -> None:
    """Raise SetupError if this environment has no Spark."""
    if find_spec("pyspark") is None:
        raise SetupError(
            "Spark is not installed here: the package pyspark is missing",
            hint="pip install 'instep[spark]', or set `engine: local` in instep.yml",
        )


def opens(secrets: Secrets) -> Opens:
    """Return the function by which a project reads the value of a secret in the store."""
    from instep.project.documents import PLURALS, pointer

    singular = {plural: kind for kind, plural in PLURALS.items()}

    def value(id: str, place: tuple[str | int, ...]) -> str:
        return secrets.open(id, singular.get(str(place[0]), ""), str(place[1]), pointer(place[2:]))

    return value


def custom_names_of(project: Project, connection: str) -> NamesOf:
    """Return the names that the project file gives to tables and columns."""
    from instep.schema.planning.naming import CustomNames, no_custom_names

    if not any(t.name or t.columns for t in project.connection(connection).tables.values()):
        return no_custom_names

    @cache
    def names_of_table(ref: tuple[str, str]) -> CustomNames:
        settings = project.table(connection, ref)
        return CustomNames(settings.name, settings.columns)

    return names_of_table


def table_settings(project: Project, connection: str, table: tuple[str, str], policy: Policy) -> TableSettings:
    """Return the settings of a table in the project file, with what its connection, policy and source say of all."""
    settings = project.table(connection, table)
    common = {
        "keep_old_names": project.connection(connection).keep_old_names,
        "on_invalid_value": policy.modifiers.get("on_invalid_value"),
    }
    more = {name: value for name, value in common.items() if getattr(settings, name) is None}
    if project.model.sources[project.source_of(connection)].type in ("connector", "airbyte"):
        more["mode"] = "stream"
    return settings.model_copy(update=more) if more else settings


def user() -> str:
    """Return the name of the person at the keyboard, for the history."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def log_status(app: App, connection: str) -> dict[str, Any]:
    """Return the state of a connection's log as JSON; `trouble` says why it cannot be read, if so, and `paused` that
    nothing reads it."""
    from instep.sync.loading.cdc import places

    names = app.log_names(connection)
    assert names is not None, "asked for by the caller"
    status: dict[str, Any] = {"connection": connection, "slot": names.slot, "publication": names.publication}
    status["paused"] = app.store.pauses.connection(connection) is not None
    try:
        log = log_of(app, connection)[0]
        log.resume(places(_going_on(app, connection)))
        return status | asdict(log.state())
    except InstepError as error:
        return status | {"exists": False, "ours": True, "trouble": error.message, "hint": error.hint or ""}


def _going_on(app: App, connection: str) -> dict[tuple[str, str], Any]:
    """Return the positions of the tables that syncs read; one that is paused or gone needs nothing of the log."""
    accepted, paused = app.store.accepted.catalog(connection), app.store.pauses.tables(connection)
    records = app.store.cursors.of(connection)
    gone = {ref for ref in records if (table := accepted.get(ref)) is None or table.retained}
    return {ref: record for ref, record in records.items() if ref not in gone and ref not in paused}


def log_of(app: App, connection: str, slot: str = "") -> tuple[ChangeLog, str]:
    """Return the log of a connection and the name of its slot (or of `slot`, if given).

    Raises ProjectError if no table of the connection follows a log, or the source has none.
    """
    from instep.model import LogNames
    from instep.sources.log import Logs

    names = LogNames(slot, slot) if slot else app.log_names(connection)
    if names is None:
        raise ProjectError(f"no table of connection {connection} follows a log", hint="name the slot: --slot NAME")
    source = app.source(app.project.source_of(connection))
    if not isinstance(source, Logs):
        raise ProjectError(f"the source of connection {connection} has no log that can be followed ({source.kind})")
    return source.log(names), names.slot
