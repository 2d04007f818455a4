"""The control database as one object."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType

from sqlalchemy import func, insert, select

from instep.store.admin.prune import Prune
from instep.store.catalogs.backfills import Backfills, Watermarks
from instep.store.catalogs.choices import Choices, Switches
from instep.store.catalogs.clones import Copies
from instep.store.catalogs.comments import Comments
from instep.store.catalogs.connections import Connections, DestinationNames
from instep.store.catalogs.connector_states import ConnectorStates
from instep.store.catalogs.connector_versions import ConnectorVersions
from instep.store.catalogs.discoveries import Discoveries, SourceFiles
from instep.store.catalogs.freshness import FreshTables
from instep.store.catalogs.loaded import CountedQuarantines, Cursors, LoadedColumns
from instep.store.catalogs.open_fields import OpenFields
from instep.store.catalogs.plans import Plans, Steps
from instep.store.catalogs.renames import Mappings, OldNames, Undos
from instep.store.catalogs.reviews import Reviews
from instep.store.catalogs.schemas import AcceptedCatalogs, Schemas
from instep.store.engine.database import BUSY_SECONDS, Database
from instep.store.engine.keyring import Keys, at_first_use
from instep.store.engine.migrate import HEAD, upgrade, version
from instep.store.history.events import Events
from instep.store.history.outbox import Outbox
from instep.store.history.totals import Positions, Totals
from instep.store.server.api_keys import ApiKeys
from instep.store.server.audit import Audit, Idempotency
from instep.store.server.change_pages import ChangePages
from instep.store.server.connection_tests import Setups
from instep.store.server.gauges import StoreGauges
from instep.store.server.pages import Pages
from instep.store.server.resources import StoredResources
from instep.store.server.saved_filters import SavedFilters
from instep.store.server.secrets import Secrets
from instep.store.server.sessions import Sessions
from instep.store.tables.queue import installation
from instep.store.work.jobs import Jobs
from instep.store.work.pauses import Pauses, Troubles
from instep.store.work.rollouts import Rollouts
from instep.store.work.runs import LEASE, Runs
from instep.store.work.schedules import Detectors, Schedules, SourceInspections
from instep.store.work.workers import Workers

_ID = select(installation.c.id)


class Installation:
    """The store's own random id: projects of one name that have stores of their own are told apart by it."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def known(self) -> str:
        """Return the id, "" if nobody has asked for it yet."""
        with self._db.read() as transaction:
            return str(transaction.execute(_ID).scalar() or "")

    def id(self) -> str:
        """Return the id; it is made when it is first asked for, and goes with a backup."""
        if existing := self.known():
            return existing
        with self._db.write() as transaction:
            if existing := str(transaction.execute(_ID).scalar() or ""):  # another process was first
                return existing
            new = secrets.token_hex(8)
            transaction.execute(insert(installation).values(id=new))
            return new


def utc_now() -> datetime:
    return datetime.now(UTC)


class Store:
    """Opens the control database, creating or updating its tables.

    Each call is one transaction; calls inside `with store.transaction():` commit together or not at all. Safe
    for several threads and processes. Raises ConnectError (naming the file) if it cannot be read or written,
    Conflict if it belongs to a newer version or stays locked, ProjectError for a URL that is none.
    """

    def __init__(
        self,
        url: str,
        *,
        now: Callable[[], datetime] = utc_now,
        lease: timedelta = LEASE,
        busy: float = BUSY_SECONDS,
        keys: Keys = None,
    ) -> None:
        """Open the store; `url` is an SQLAlchemy URL, `busy` the seconds to wait for another writer. `keys` open and
        seal secrets and states of connectors, which nothing else needs: the function is called at first use."""
        opening = at_first_use(keys)
        self._db = Database(url, now, busy)
        try:
            upgrade(self._db)
        except BaseException:
            self._db.close()
            raise
        self.connections = Connections(self._db)
        self.names = DestinationNames(self._db)
        self.accepted = AcceptedCatalogs(self._db)
        self.schemas = Schemas(self._db)
        self.discoveries = Discoveries(self._db)
        self.reviews = Reviews(self._db)
        self.plans = Plans(self._db)
        self.steps = Steps(self._db)
        self.cursors = Cursors(self._db)
        self.outbox = Outbox(self._db)
        self.events = Events(self._db, self.outbox)
        self.runs = Runs(self._db, self.events, lease)
        self.setups = Setups(self._db, self.events)
        self.troubles = Troubles(self._db)
        self.pauses = Pauses(self._db)
        self.backfills = Backfills(self._db)
        self.mappings = Mappings(self._db)
        self.undos = Undos(self._db)
        self.switches = Switches(self._db)
        self.watermarks = Watermarks(self._db)
        self.choices = Choices(self._db)
        self.copies = Copies(self._db)
        self.loaded = LoadedColumns(self._db)
        self.fresh_tables = FreshTables(self._db)
        self.quarantines = CountedQuarantines(self._db)
        self.source_files = SourceFiles(self._db)
        self.old_names = OldNames(self._db)
        self.connectors = ConnectorStates(self._db, opening)
        self.open_fields = OpenFields(self._db)
        self.connector_versions = ConnectorVersions(self._db, opening)
        self.secrets = Secrets(self._db, opening)
        self.objects = StoredResources(self._db, self.secrets)
        self.jobs = Jobs(self._db, self.events, lease, opening)
        self.workers = Workers(self._db, lease)
        self.schedules = Schedules(self._db)
        self.detectors = Detectors(self._db)
        self.inspections = SourceInspections(self._db)
        self.api_keys = ApiKeys(self._db)
        self.sessions = Sessions(self._db)
        self.audit = Audit(self._db)
        self.idempotency = Idempotency(self._db)
        self.pages = Pages(self._db)
        self.changes = ChangePages(self._db)
        self.comments = Comments(self._db)
        self.filters = SavedFilters(self._db)
        self.rollouts = Rollouts(self._db, lease)
        self.totals = Totals(self._db)
        self.installation = Installation(self._db)
        self.positions = Positions(self._db)
        self.prune = Prune(self._db)
        self.gauges = StoreGauges(self._db, self.workers, self.outbox, self.fresh_tables)

    @property
    def file(self) -> Path | None:
        """The database's file, None for a server."""
        return self._db.file

    def reason_unusable(self) -> str:
        """Return why this program must no longer use the store, "" if it may: a newer one may have upgraded it."""
        with self._db.read() as transaction:
            revision = version(transaction)
        if revision == HEAD:
            return ""
        return f"the store is at version {revision} now, and this process knows {HEAD}: start it again with that instep"

    def clock_skew(self) -> float:
        """Return the seconds by which the database's clock differs from the one that leases go by here; a file has
        none of its own."""
        if self._db.file:
            return 0.0
        with self._db.read() as transaction:
            database_time: datetime = transaction.execute(select(func.clock_timestamp())).scalar_one()
        return abs((database_time - self._db.now()).total_seconds())

    def copied(self, file: Path) -> Store:
        """Return a store of its own, in a new SQLite file, with all that this one holds now."""
        from instep.store.admin.backup import dump, restore

        if self._db.file:
            self.back_up(file)
            return Store(f"sqlite:///{file}", now=self._db.now)
        copy = Store(f"sqlite:///{file}", now=self._db.now)
        restore(copy._db, dump(self._db), replace=True)
        return copy

    def back_up(self, file: Path) -> None:
        """Write a backup; see `instep.store.admin.backup`."""
        from instep.store.admin.backup import back_up

        back_up(self._db, file)

    @contextmanager
    def transaction(self, connection: str = "") -> Iterator[None]:
        """Open a transaction: everything that this thread does inside commits together, and an exception undoes all
        of it. With a connection's name it waits only for those who write rows of the same connection."""
        with self._db.write(connection):
            yield

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
