# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""Log-based change capture: a logical slot with `pgoutput`, streamed by the server.

Nothing is taken out of the slot while it is read; it moves on when the destination has what was read (`release`), so a
run that dies in between reads the same again. The passes of a run read on in one stream.

**What a snapshot shows is what the log is read for.** Positions alone do not tell: a transaction is in the log before
others see it. So each transaction of the log is looked up in the snapshot; the position that is reached ends before
the first one that the snapshot does not show, and what lies behind it comes again.

**Each read leaves a mark in the log, which the next one has to find.** A server that was put back to an earlier copy of
its data has the same names and numbers, and its log may be as long by then; the mark is not in it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from instep.errors import ConnectError, InstepError, ReadError
from instep.model import LogNames
from instep.project.sections.databases import PostgresSourceSection
from instep.schema.catalog.catalog import Column
from instep.schema.planning.projection import TableRead
from instep.sources.base import Snapshot
from instep.sources.keyset import KEYS, most_keys, portions
from instep.sources.log import ChangedKeys, FollowedTable, LogRead, LogState, LogUnreadable, Ref, source_key
from instep.sources.postgres.connect import dial, settings, translated
from instep.sources.postgres.snapshot import PostgresSnapshot
from instep.sources.postgres.types import expression, literal, quote, quote_table, select
from instep.sources.postgres.wal.stream import MARKS, WalStream, open_stream, timeline_end
from instep.sources.postgres.wal.tables import TablePartition, WalTable, additions, followed, log_tables, partitions
from instep.sources.postgres.wal.wire import MARK, VisibleTransactions, WalKeys, WalReach, collect
from instep.stage.spec import Chunk
from instep.stage.timeouts import timed_connection

if TYPE_CHECKING:
    import psycopg


SQL_KEYS = 10_000
"""Keys that one query asks for."""


def row_chunks(read: TableRead, name: str, changed: ChangedKeys) -> list[Chunk]:
    """Return the rows of these keys that are there, all accepted columns that have a source."""
    what = ", ".join(_expression(c.source) for c in read.columns if c.source is not None)
    key = ", ".join(map(quote, changed.columns))
    table = quote_table(*read.source.ref)
    return [
        Chunk(name, number, select(what, table, f"({key}) IN ({values})", read.condition), count)
        for number, (values, count) in enumerate(_values(read, changed))
    ]


def key_chunks(read: TableRead, name: str, changed: ChangedKeys) -> list[Chunk]:
    """Return chunks of these keys, existing or not, as a read of the key columns yields them."""
    key = read.table.key
    what = ", ".join(_expression(c.source) for c in read.columns if c.source is not None and c.column.name in key)
    names = ", ".join(map(quote, changed.columns))
    return [
        Chunk(name, number, select(what, f"({values}) AS asked({names})"), count)
        for number, (values, count) in enumerate(_values(read, changed))
    ]


def _values(read: TableRead, changed: ChangedKeys) -> Iterator[tuple[str, int]]:
    """Yield the keys as VALUES lists; the first line says what types they have."""
    kinds = [read.source.by_name[name].native for name in changed.columns]
    for first, *others in portions(changed.keys, SQL_KEYS):
        lines = [_line([f"{literal(text)}::{kind}" for text, kind in zip(first, kinds, strict=True)])]
        lines += [_line([literal(text) for text in key]) for key in others]
        yield f"VALUES {', '.join(lines)}", len(lines)


def _line(values: Sequence[str]) -> str:
    return f"({', '.join(values)})"


def _expression(column: Column) -> str:
    name = quote(column.name)
    return f"{expression(name, column.native, column.type, column.name)} AS {name}"


MESSAGES = 1_000_000
"""Messages of the log that one read looks at, to the end of the transaction that goes beyond."""
WAIT = 10.0
"""Seconds to wait for other transactions, or for a slot that a dying process still holds."""
CONFIRM = 60.0
"""Seconds to wait for the server to move the slot."""
TABLES = 200
"""Tables that one statement takes into the publication: each is locked until it ends."""
OLDEST = 130_000
FAILOVERS = 170_000
"""The first version that hands slots on to standbys."""
Done = TypeVar("Done")
PLUGIN = "pgoutput"
_PUT_BACK = "the source was put back to an earlier copy of its data"
OTHER = "name another slot in the connection's `log:`"
PUBLISHED = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"

_SERVER = """
SELECT CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE')
            THEN (SELECT system_identifier::text FROM pg_control_system()) ELSE '' END,
       (SELECT d.oid::text FROM pg_database d WHERE d.datname = current_database()),
       CASE WHEN pg_is_in_recovery() THEN '' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END,
       current_setting('wal_level'), (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)
       OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication' AND pg_has_role(oid, 'MEMBER'))
"""
_SLOT = """
SELECT s.confirmed_flush_lsn::text, s.restart_lsn::text, s.wal_status, s.active_pid, s.plugin, s.database,
       (pg_current_wal_lsn() - s.confirmed_flush_lsn)::int8, (pg_current_wal_lsn() - s.restart_lsn)::int8,
       current_database(), pg_current_wal_lsn()::text
FROM pg_replication_slots s WHERE s.slot_name = {slot}
"""
_END_READER = """
SELECT pg_terminate_backend(a.pid) FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = {slot} AND a.usename = current_user AND a.application_name = current_setting('application_name')
"""
_OWNER = "SELECT plugin, database, current_database() FROM pg_replication_slots WHERE slot_name = {slot}"
_WRITERS = """
SELECT format('process %s of %s', pid, usename) FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 3
"""
_LISTED = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = {publication}"
_PUBLICATION = "SELECT to_json(p) FROM pg_publication p WHERE p.pubname = {publication}"


@dataclass(frozen=True)
class Mark:
    """A sync's message in the log, whose transaction ends between `low` and `high`. Positions bear it behind an @."""

    low: str
    high: str
    token: str

    @classmethod
    def of(cls, position: str) -> Mark | None:
        fields = position.partition("@")[2].split(":")
        return cls(*fields) if len(fields) == 3 else None

    def __str__(self) -> str:
        return f"@{self.low}:{self.high}:{self.token}"


@dataclass
class PostgresLog:
    """See `sources.log.ChangeLog`."""

    config: PostgresSourceSection
    names: LogNames
    messages: int = MESSAGES
    limit: int = KEYS
    wait: float = WAIT
    _known: dict[Ref, WalTable] = field(default_factory=dict)
    _listed: frozenset[Ref] = frozenset()
    _parts: Mapping[Ref, Sequence[TablePartition]] = field(default_factory=dict)
    _following: int = 0
    _now: str = ""
    _confirmed: str = ""
    _places: tuple[str, ...] = ()
    _reach: WalReach | None = None
    _more: bool = False
    _server: str = ""
    _reader: int | None = None
    _stream: WalStream | None = None

    def order(self, position: str) -> int:
        """Return the position as a number; the empty one comes before all."""
        high, _, low = position.partition("@")[0].partition("/")
        return (int(high, 16) << 32) + int(low, 16) if position else -1

    def state(self) -> LogState:
        """Return where the slot stands, and what keeps it from being read."""
        with self._session() as session:
            return self._state(session)

    def _state(self, session: psycopg.Connection[Any]) -> LogState:
        system, database, timeline, level, may = _one(session, _SERVER)
        self._server = server = f"{system}/{database}/{timeline}"
        row = (
            session.execute(_SLOT.replace("{slot}", literal(self.names.slot)).encode()).fetchone() if timeline else None
        )
        trouble, hint = self._missing(session, level, may, timeline)
        if row is None:
            return LogState(server, trouble=trouble, hint=hint)
        confirmed, restart, status, self._reader, plugin, of, behind, retained, current, now = row
        self._now, self._confirmed, self._reach = now, confirmed or "", None
        if foreign := self._why_foreign(plugin, of, current):
            trouble, hint = foreign, OTHER
        elif status == "lost" or restart is None:
            trouble = f"the server has given up the log of the slot {self.names.slot} (wal_status {status})"
            hint = "raise max_slot_wal_keep_size or sync more often"
        elif self.order(now) < self.order(confirmed):
            trouble, hint = f"the server's log ({now}) has gone back behind the slot {self.names.slot}", ""
        elif not trouble and not self._published(session):
            trouble = f"the publication {self.names.publication} is gone, and the changes since the last sync are lost"
        return LogState(
            server,
            True,
            confirmed or "",
            restart or "",
            behind or 0,
            retained or 0,
            status or "",
            self._reader is not None,
            trouble,
            hint,
            foreign=bool(foreign),
        )

    def _why_foreign(self, plugin: str, database: str, database_here: str) -> str:
        """Return why the slot cannot be this connection's, "" if it can."""
        if plugin == PLUGIN and database == database_here:
            return ""
        return f"the slot {self.names.slot} is one of {plugin} in the database {database}"

    def _published(self, session: psycopg.Connection[Any]) -> Any:
        """Return the publication as the server describes it, None if there is none."""
        statement = _PUBLICATION.replace("{publication}", literal(self.names.publication))
        row = session.execute(statement.encode()).fetchone()
        return row[0] if row else None

    def _missing(self, session: psycopg.Connection[Any], level: str, may: bool, timeline: str) -> tuple[str, str]:
        """Return what the server or the user lacks, and the statement that adds it."""
        if session.info.server_version < OLDEST:
            return "the log can be read from PostgreSQL 13 on", "use mode: upsert"
        if not timeline:
            return "the server is a standby: its log cannot be followed", "name the primary server as the source's host"
        if level != "logical":
            return f"wal_level is {level}", "ALTER SYSTEM SET wal_level = logical; then restart the server"
        if not may:
            return (
                f"user {self.config.user} is not allowed to read the log",
                f"ALTER ROLE {quote(self.config.user)} REPLICATION;",
            )
        published = self._published(session)
        if published is None:
            return "", ""
        required = ("pubinsert", "pubupdate", "pubdelete", "pubtruncate", "pubviaroot")
        if not all(published[name] for name in required):
            fix = f"ALTER PUBLICATION {quote(self.names.publication)} SET ({PUBLISHED});"
            return f"the publication {self.names.publication} leaves changes out", fix
        return "", ""

    def create(self) -> None:
        """Create the publication first, then the slot, which cannot be read for changes from before the publication."""
        with self._session() as session:
            publication, slot = quote(self.names.publication), literal(self.names.slot)
            if self._published(session) is None:
                hint = f"have the owner of the database run: CREATE PUBLICATION {publication} WITH ({PUBLISHED});"
                with _hinted(hint):
                    session.execute(f"CREATE PUBLICATION {publication} WITH ({PUBLISHED})".encode())
            failover = ", failover => true" if session.info.server_version >= FAILOVERS else ""
            self._make_slot(session, f"SELECT pg_create_logical_replication_slot({slot}, '{PLUGIN}'{failover})")

    def _make_slot(self, session: psycopg.Connection[Any], statement: str) -> None:
        """Create the slot. The server waits for all transactions that write now, in whatever database; nobody waits for
        it meanwhile, so that the limit is that of statements, or else of the server's silence, not the short one of
        locks."""
        import psycopg

        limit = self.config.statement_timeout or self.config.read_timeout * 0.9
        session.execute("SET lock_timeout = 0")
        session.execute(f"SET statement_timeout = {int(limit * 1000)}".encode())
        with _hinted("raise max_replication_slots, or drop slots that nobody reads (pg_replication_slots)"):
            try:
                session.execute(statement.encode())
            except psycopg.errors.QueryCanceled:
                writers = ", ".join(text for (text,) in session.execute(_WRITERS).fetchall())
                what = f"the slot {self.names.slot} could not be made within {limit:g} s"
                raise InstepError(
                    f"{what}: transactions of the server have not ended{f' ({writers})' if writers else ''}",
                    hint="end them (see pg_stat_activity and pg_prepared_xacts), then sync again",
                ) from None

    def drop(self) -> bool:
        """Return the slot, and the publication if it is this user's and bears the slot's name, as by default. Never a
        slot of somebody else."""
        self.close()
        with self._session() as session:
            slot = literal(self.names.slot)
            slot_row = session.execute(_OWNER.replace("{slot}", slot).encode()).fetchone()
            if slot_row and (foreign := self._why_foreign(*slot_row)):
                raise InstepError(foreign, hint=OTHER)
            if slot_row:
                self._retry_while_active(lambda: session.execute(f"SELECT pg_drop_replication_slot({slot})".encode()))
            owned = "SELECT 1 FROM pg_publication WHERE pubname = {} AND pg_get_userbyid(pubowner) = current_user"
            same = self.names.publication == self.names.slot
            if same and session.execute(owned.format(literal(self.names.publication)).encode()).fetchone():
                session.execute(f"DROP PUBLICATION {quote(self.names.publication)}".encode())
            return slot_row is not None

    def position_error(self, position: str) -> str:
        """Return whether the server was restored: its log ends before the position, or lacks the mark behind it.
        Released positions are before `LogState.confirmed`."""
        if not self._now:
            return ""
        mark = Mark.of(position)
        if self.order(self._now) < self.order(last := mark.low if mark else position):
            return f"{_PUT_BACK} (its log ends at {self._now}, and was read up to {last})"
        if mark and self._lacks(mark):
            return f"{_PUT_BACK} (its log at {position.partition('@')[0]} is another one than the one that was read)"
        return ""

    def _lacks(self, mark: Mark) -> bool:
        """Return whether the last read should have found the mark, and did not; its own comes behind it."""
        low = self.order(mark.low)
        if self._reach is None or not self.order(self._confirmed) <= low < self.order(self._now):
            return False
        return mark.token not in self._reach.marks and (not self._more or self._reach.last >= self.order(mark.high))

    def resume(self, places: Mapping[Ref, str]) -> None:
        """Remember their marks; where to read on is known by the slot."""
        self._places = tuple(places.values())

    def follow(self, reads: Sequence[TableRead]) -> Mapping[Ref, FollowedTable]:
        """Add the tables that can be followed to the publication and return them; one that is new there since
        `begin` is `pending`, whoever has added it."""
        with self._session() as session:
            keys = {read.source.ref: source_key(read) for read in reads}
            logged = self._retry_while_active(lambda: log_tables(session, self.names.publication, keys))
            unlisted = [(k, keys[ref]) for ref, k in logged.items() if k.listed is None and keys[ref]]
            new = [table for table, key in unlisted if not table.reason_not_followable(key)]
            why = self._add(session, new) if new else ""
            if new and not why:
                logged = self._retry_while_active(lambda: log_tables(session, self.names.publication, keys))
            self._known |= logged
            added = {k.ref for k in new}  # one that was recreated meanwhile has the name of a table that was listed
            tables = {
                ref: followed(
                    logged.get(ref), key, self._parts.get(ref, ()), pending=ref in added or ref not in self._listed
                )
                for ref, key in keys.items()
            }
        lack = {k.ref for k in new} if why else set()
        return {ref: FollowedTable(f.shape, why) if ref in lack else f for ref, f in tables.items()}

    def _add(self, session: psycopg.Connection[Any], new: Sequence[WalTable]) -> str:
        """Return why the tables could not be taken in, "" if they are."""
        import psycopg

        for start in range(0, len(new), TABLES):
            statement = additions(new[start : start + TABLES], self.names.publication)
            try:
                self._retry_while_active(partial(session.execute, statement.encode()), timeout=self.wait)
            except psycopg.errors.InsufficientPrivilege:
                return f"user {self.config.user} cannot add it to the publication; let its owner run: {statement};"
            except psycopg.errors.LockNotAvailable:
                return "another session keeps it, or a table beside it, locked; the next sync takes it in"
        return ""

    def begin(self, *, wait: bool) -> None:
        """Wait a moment for transactions that began before the tables were taken in: their changes until then are not
        in the log, and a snapshot that does not show them would miss them for good."""
        with self._session() as session:
            listed = _LISTED.replace("{publication}", literal(self.names.publication))
            done = self._retry_while_active(lambda: session.execute(listed.encode()).fetchall())
            self._listed = frozenset((s, n) for s, n in done)
            self._parts = partitions(session)
            following = int(_one(session, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8")[0])
            self._following = following
            ends = time.monotonic() + (self.wait if wait else 0)
            while time.monotonic() < ends:
                if int(_one(session, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::int8")[0]) >= following:
                    return
                time.sleep(0.02)

    def read(self, snapshot: Snapshot, reads: Sequence[TableRead]) -> LogRead:
        """Return the keys of the rows that changed; `pg_current_snapshot` of the snapshot's own transaction decides."""
        assert isinstance(snapshot, PostgresSnapshot)
        visible = VisibleTransactions.of(snapshot.transactions())
        tables = {read.source.ref: self._collected(read) for read in reads}
        by_oid = {self._known[ref].oid: table for ref, table in tables.items()}
        parts = {part.oid: table for ref, table in tables.items() for part in self._known[ref].parts}
        with self._session() as session:
            upto, mark = self._flushed(session)
        reach = self._collect(upto, by_oid, parts, visible)
        self._now, self._reach, self._more = upto, reach, (more := reach.count >= self.messages)
        if not reach.hidden and not more:
            reached = upto
        else:
            reached = _text(reach.end) if reach.end is not None else self._confirmed
        changed_keys = {ref: table.changed_keys for ref, table in tables.items()}
        if unmet := self._last_missing_mark():
            mark = unmet
            short = self.order(self._confirmed) < self.order(unmet.low) < self.order(reached)
            reached = unmet.low if short and reach.last < self.order(unmet.high) else reached
        return LogRead(f"{reached}{mark or ''}", changed_keys, more, visible.first >= self._following)

    def _last_missing_mark(self) -> Mark | None:
        """Return the last of the marks that are still to be found, once more of the log is read."""
        assert self._reach is not None
        if not self._more:
            return None
        met, after = self._reach.marks, self.order(self._confirmed)
        marks = [m for m in map(Mark.of, self._places) if m and m.token not in met and self.order(m.low) >= after]
        return max(marks, key=lambda m: self.order(m.low), default=None)

    def _collected(self, read: TableRead) -> WalKeys:
        table = self._known[read.source.ref]
        columns = {name: kind for _, name, kind, *_ in table.columns}
        return WalKeys(source_key(read), columns, most_keys(self.limit, table.rows))

    def _flushed(self, session: psycopg.Connection[Any]) -> tuple[str, Mark | None]:
        """Return a position behind all that a snapshot from before shows, and that is on the disk, and the mark there:
        the log is read no further than that. A message of our own brings it there, also where commits do not wait for
        the disk; its transaction ends behind the position, so that it comes with the next read."""
        session.execute(b"SET synchronous_commit = 'local'")
        token = secrets.token_hex(8)
        upto = str(_one(session, f"SELECT pg_logical_emit_message(true, '{MARK}', {literal(token)})::text")[0])
        after = str(_one(session, "SELECT pg_current_wal_insert_lsn()::text")[0])
        return upto, Mark(upto, after, token) if session.info.server_version >= MARKS else None

    def _collect(
        self, upto: str, tables: Mapping[int, WalKeys], parts: Mapping[int, WalKeys], visible: VisibleTransactions
    ) -> WalReach:
        """Read on where the stream is, if that is where the slot is."""
        with self._translated(), self._as_published():
            stream, next_read = self._stream, (self.order(self._confirmed), self._reader)
            if stream is None or (stream.position, stream.server_process) != next_read:
                stream = self._open()
            for oid in stream.relations.keys() & tables.keys():
                tables[oid].relation(stream.relations[oid])
            for oid in stream.relations.keys() & parts.keys():
                parts[oid].partition(stream.relations[oid])
            try:
                return collect(stream.messages(self.order(upto), self.messages), tables, visible, parts)
            except BaseException:
                self.close()
                raise

    def _open(self) -> WalStream:
        self.close()
        at = self.order(self._confirmed)
        self._stream = self._retry_while_active(lambda: open_stream(self.config, self.names, at))
        return self._stream

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    @contextmanager
    def _as_published(self) -> Iterator[None]:
        """Report a missing publication: the server looks publications up as they were at the time of each change."""
        import psycopg

        try:
            yield
        except psycopg.errors.UndefinedObject:
            raise LogUnreadable(
                f"the publication {self.names.publication} was dropped and created again; the slot {self.names.slot} "
                "has changes from before, which can no longer be read",
                hint="read the tables again: instep sync --full",
            ) from None

    def rows(self, read: TableRead, key: str, changed: ChangedKeys) -> list[Chunk]:
        return row_chunks(read, key, changed)

    def keys(self, read: TableRead, key: str, changed: ChangedKeys) -> list[Chunk]:
        return key_chunks(read, key, changed)

    def release(self, position: str) -> None:
        """Move the slot; nothing if it is there already."""
        slot, to = literal(self.names.slot), literal(position.partition("@")[0])
        behind = f"SELECT active FROM pg_replication_slots WHERE slot_name = {slot} AND confirmed_flush_lsn < {to}"
        ends = time.monotonic() + CONFIRM
        with self._session() as session:
            while row := session.execute(behind.encode()).fetchone():
                if time.monotonic() >= ends:
                    raise ReadError(f"{self.config.place} has not moved the slot {self.names.slot}", hint="sync again")
                stream = self._stream if row[0] and self._stream else self._open()
                stream.confirm(self.order(position))
                time.sleep(0.01)

    def covered(self) -> str:
        """Return the end of the server's log, behind all that anybody has seen."""
        with self._session() as session:
            system, database, timeline, *_ = _one(session, _SERVER)
            if self._server != (server := f"{system}/{database}/{timeline}"):
                return ""
            return f"{server}@{_one(session, 'SELECT pg_current_wal_insert_lsn()::text')[0]}"

    def place_of(self, position: str, covered: str) -> str:
        """Return the position itself, on a server that was promoted with all that is covered and with the slot."""
        before, _, end = covered.partition("@")
        old, new = before.split("/"), self._server.split("/")
        if len(old) != 3 or not old[0] or old[:2] != new[:2] or not int(old[2], 16) < int(new[2] or "0", 16):
            return ""
        with self._translated():
            left = timeline_end(self.config, int(new[2], 16), int(old[2], 16))
        return position if left and self.order(end) <= self.order(left) else ""

    def _retry_while_active(self, act: Callable[[], Done], timeout: float | None = None) -> Done:
        """Try again for a while as long as another process holds the slot: one that was killed may still be at it, and
        one of ours that stands still is ended, for its run is over. While one has locked a table, for `timeout`
        seconds (None: as long as the server may be silent)."""
        import psycopg

        begun = time.monotonic()
        limit = (self.config.read_timeout or inf) if timeout is None else timeout
        while True:
            try:
                return act()
            except psycopg.errors.ObjectInUse:
                if time.monotonic() >= begun + self.wait:
                    raise
                with self._session() as session:
                    session.execute(_END_READER.format(slot=literal(self.names.slot)).encode())
            except psycopg.errors.LockNotAvailable:
                if time.monotonic() >= begun + limit:
                    raise
            time.sleep(0.05)

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self.config, f"the log of {self.config.place}")

    @contextmanager
    def _session(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a connection to the primary server, statement by statement, whose texts do not depend on its
        defaults."""
        with translated(self.config, otherwise=ConnectError):
            opened = timed_connection(self.config.read_timeout).connect
            session = dial(self.config, lambda info: opened(info, autocommit=True, prepare_threshold=None))
        try:
            with self._translated():
                for name, value in settings(self.config).items():
                    session.execute(f"SELECT set_config({literal(name)}, {literal(value)}, false)".encode())
                yield session
        finally:
            session.close()


def _text(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def _one(session: psycopg.Connection[Any], statement: str) -> tuple[Any, ...]:
    row = session.execute(statement.encode()).fetchone()
    assert row is not None
    return tuple(row)


@contextmanager
def _hinted(hint: str) -> Iterator[None]:
    """Turn an error of the server into one with this hint."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise InstepError(str(error).splitlines()[0], hint=hint) from None
