"""Log-based change capture: the row-based binary log, read as a replica reads it, up to where a snapshot is.

The server keeps nothing for us: a position is a file, a place in it and when the file was begun, so that a log that
was restarted, or another server's, is not taken for the same. With it go the names (GTIDs) of transactions that are
before it: by these its place in the log of another server is found, after a failover. Up to where a snapshot shows
everything is asked of the server: MariaDB says where in the log a consistent snapshot is; MySQL says which transactions
are done. Neither is the end of the log, where transactions stand that nobody sees yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from instep.errors import InstepError, ReadError
from instep.project.sections.databases import MySqlSourceSection
from instep.schema.planning.projection import TableRead
from instep.sources.base import Snapshot
from instep.sources.keyset import KEYS, most_keys, portions
from instep.sources.log import ChangedKeys, FollowedTable, Key, LogRead, LogState, Ref, source_key
from instep.sources.mysql.binlog.collect import BEYOND, BinlogKeys, CascadingTables, LogPass, Spot
from instep.sources.mysql.binlog.gtids import GtidSet
from instep.sources.mysql.binlog.stream import DENIED, MAGIC, NOTHING, BinlogServer, dump, missing, server_of
from instep.sources.mysql.binlog.tables import LogTables, log_tables
from instep.sources.mysql.binlog.wire import BinlogBegin
from instep.sources.mysql.connect import connect, first, is_mariadb, run, translated
from instep.sources.mysql.types import literal, locking, probing, quoted, quoted_table, selected
from instep.sources.server import nearest
from instep.stage.spec import Chunk

if TYPE_CHECKING:
    import pymysql


SQL_KEYS = 5_000
"""Keys that one query asks for."""


def row_chunks(read: TableRead, name: str, changed: ChangedKeys, connections: int = 1) -> list[Chunk]:
    """Return chunks of the existing rows with these keys: all accepted columns with a source, from one view."""
    what = ", ".join(selected(c.source) for c in read.columns if c.source is not None)
    key = ", ".join(map(quoted, changed.columns))
    where = f" AND {read.condition}" if read.where else ""
    select = f"SELECT {what} FROM {quoted_table(*read.source.ref)} WHERE ({key}) IN"  # noqa: S608
    chunks = [
        Chunk(
            name,
            number,
            f"{select} ({', '.join(map(_line, keys))}){where}",
            len(keys),
            lane=name,
            probe=probing(read.source.ref),
            lock=locking(read.source.ref),
        )
        for number, keys in enumerate(portions(changed.keys, SQL_KEYS))
    ]
    return [replace(chunk, connections=connections) for chunk in chunks] if len(chunks) >= _SEVERAL else chunks


def key_chunks(read: TableRead, name: str, changed: ChangedKeys, *, mariadb: bool) -> list[Chunk]:
    """Return chunks of these keys, existing or not, as a read of the key columns yields them."""
    key = read.table.key
    what = ", ".join(selected(c.source) for c in read.columns if c.source is not None and c.column.name in key)
    names = ", ".join(map(quoted, changed.columns))
    row = "" if mariadb else "ROW"
    return [
        Chunk(
            name,
            number,
            f"WITH asked ({names}) AS (VALUES {', '.join(row + _tuple(k) for k in keys)}) SELECT {what} FROM asked",  # noqa: S608
            len(keys),
            lane=name,
        )
        for number, keys in enumerate(portions(changed.keys, SQL_KEYS))
    ]


def _tuple(key: Key) -> str:
    return f"({', '.join(key)})"


def _line(key: Key) -> str:
    """Return the key as SQL: a single value without brackets, or its index would not be used."""
    return key[0] if len(key) == 1 else _tuple(key)


EVENTS = 1_000_000
"""Events of the log that one read looks at, to the end of the transaction that goes beyond."""
_MALFORMED_SET = 1772
_SEVERAL = 20
"""Queries for the rows of one table from which on several connections are worth it."""
TOGETHER = 4
"""Connections that read one table so, the first in a pass that has as many queries."""


@dataclass(frozen=True)
class Position:
    """A position in the binary log."""

    file: str
    at: int
    birth: int
    """Time when the server began the file, in seconds since 1970."""
    gtids: str = ""
    """Transactions that are all before it, "" if that is not known."""

    @classmethod
    def of(cls, text: str) -> Position:
        spot, _, suffix = text.rpartition("@")
        file, _, at = spot.rpartition(":")
        birth, _, gtids = suffix.partition("#")
        return cls(file, int(at), int(birth), gtids)

    def __str__(self) -> str:
        return f"{self.place}#{self.gtids}" if self.gtids else self.place

    @property
    def place(self) -> str:
        return f"{self.file}:{self.at}@{self.birth}"

    @property
    def spot(self) -> Spot:
        return self.file, self.at


def numbered(spot: Spot) -> tuple[int, int]:
    """Return the order of places in one server's log: files are numbered."""
    return int(spot[0].rpartition(".")[2]), spot[1]


@dataclass
class MySqlLog:
    """See `sources.log.ChangeLog`."""

    config: MySqlSourceSection
    messages: int = EVENTS
    limit: int = KEYS
    _at: MySqlSourceSection | None = None
    _server: BinlogServer = field(default_factory=BinlogServer)
    _known: LogTables = field(default_factory=LogTables)
    _since: dict[Ref, Position] = field(default_factory=dict)
    _births: dict[str, int] = field(default_factory=dict)
    _begins: dict[Spot, bool] = field(default_factory=dict)
    _several: Ref | None = None

    def order(self, position: str) -> int:
        """Return the position as a number; the empty one comes before all."""
        if not position:
            return -1
        number, at = numbered(Position.of(position).spot)
        return number * BEYOND + at

    def state(self) -> LogState:
        """Return whether the log can be read, and how much of it there is behind the lowest of the tables' places."""
        with self._session() as session:
            self._server = server = server_of(session)
            self._births, self._begins = {}, {}
            trouble, hint = missing(session, server, self.config)
            if trouble:
                return LogState(server.name, trouble=trouble, hint=hint, ours=False)
            first, last = next(iter(server.files)), server.end
            try:
                self._birth(last)
            except InstepError as error:
                denied = any(f"error {code}" in error.message for code in DENIED)
                grant = f"GRANT REPLICATION SLAVE ON *.* TO {server.account};" if denied else error.hint or ""
                return LogState(server.name, trouble=error.message, hint=grant, ours=False)
            state = LogState(
                server.name,
                exists=True,
                restart=f"{first}:4",
                retained=sum(server.files.values()),
                ours=False,
                wal_status=server.retention,
            )
            return self._with_resume_marks(state)

    def _with_resume_marks(self, state: LogState) -> LogState:
        """Add the marks of `resume` to the state."""
        if not self._since:
            return state
        lowest = min(self._since.values(), key=lambda p: numbered(p.spot))
        if why := self.position_error(str(lowest)):
            return replace(state, confirmed=lowest.place, trouble=why, hint="read its tables again: instep sync --full")
        first = numbered((lowest.file, 0))
        behind = sum(size for name, size in self._server.files.items() if numbered((name, 0)) >= first) - lowest.at
        return replace(state, confirmed=lowest.place, behind=behind, late=self._late(lowest) if behind else 0.0)

    def _late(self, place: Position) -> float:
        """Return the age of the first transaction behind the place."""
        with dump(self._reached, place.spot) as stream:
            if any(isinstance(event, BinlogBegin) for event, _ in stream.events()):
                return max(self._server.now - stream.when, 0.0)
        return 0.0

    def create(self) -> None:
        """No-op: the server writes its log anyway."""

    def drop(self) -> bool:
        """No-op: the server keeps nothing for us."""
        return False

    def position_error(self, position: str) -> str:
        place = Position.of(position)
        files = self._server.files
        if place.file not in files:
            first = next(iter(files), "")
            if files and numbered(place.spot) < numbered((first, 0)):
                retention = self._server.retention
                return f"the server has purged its binary log up to {first} ({retention}), and it was at {place.place}"
            return f"the server's binary log has gone back behind {place.place}"
        if place.at > files[place.file]:
            return f"the server's binary log has gone back behind {place.place}"
        if self._birth((place.file, place.at)) != place.birth:
            return f"the server's binary log was reset: {place.file} is not the file that it was"
        if not self._begins_event(place.spot):  # births are whole seconds: another file can have the same
            return f"the server's binary log has gone back: no event begins at {place.place}"
        return ""

    def _begins_event(self, spot: Spot) -> bool:
        if spot not in self._begins:
            with dump(self._reached, spot) as stream:
                self._begins[spot] = stream.begins_event()
        return self._begins[spot]

    def _birth(self, spot: Spot) -> int:
        """Return when the file was begun."""
        if spot[0] not in self._births:
            with dump(self._reached, spot) as stream:
                next((s for s in stream.events() if stream.birth), None)
                self._births[spot[0]] = stream.birth
        return self._births[spot[0]]

    def resume(self, places: Mapping[Ref, str]) -> None:
        self._since = {ref: Position.of(text) for ref, text in places.items()}

    def follow(self, reads: Sequence[TableRead]) -> Mapping[Ref, FollowedTable]:
        keys = {read.source.ref: source_key(read) for read in reads}
        with self._session() as session:
            self._known = log_tables(session, keys)
        full, left = self._server.full, self._server.left_out
        if left:
            return {ref: FollowedTable(why=left) for ref in keys}
        return {ref: self._known.followed(ref, key, full=full) for ref, key in keys.items()}

    def begin(self, *, wait: bool) -> None:
        """No-op: rows are logged as a whole when they are committed."""

    def read(self, snapshot: Snapshot, reads: Sequence[TableRead]) -> LogRead:
        """Return the keys of the rows that changed, up to what views that begin from now on show: readers open theirs
        later."""
        config: MySqlSourceSection = cast(Any, snapshot).config
        with connect(config) as session, translated(config, f"the log of {config.place}"):
            if server_of(session).name != self._server.name:
                raise ReadError("another server answers than a moment ago", hint="sync again")
            upto, shows, gtids = self._read_end(session)
        upto_at = Position(*upto, self._birth(upto), gtids)
        since = {r.source.ref: self._since.get(r.source.ref, upto_at) for r in reads}
        start = min([*since.values(), self._position_before(upto_at, since)], key=lambda p: numbered(p.spot))
        tables = {r.source.ref: self._collected(r, since[r.source.ref].spot) for r in reads}
        work = LogPass(tables, shows, numbered, start.spot, self.messages)
        reached, more = upto_at, False
        if numbered(start.spot) < numbered(upto):
            with dump(self._reached, start.spot) as stream:
                reach = work.collect(stream.events(upto))
            more = reach.more and numbered(reach.end) > numbered(start.spot)
            if reach.more or reach.hidden:
                reached = Position(*reach.end, self._birth(reach.end), start.gtids)
        changed_keys = {ref: t.changed_keys for ref, t in tables.items()}
        self._since, self._several = {}, None
        return LogRead(str(reached), changed_keys, more, since={ref: str(p) for ref, p in since.items()})

    def _position_before(self, upto: Position, since: Mapping[Ref, Position]) -> Position:
        """Return the position before which everything has been seen.

        For new tables of MySQL that is the begin of its last file, which is not begun before all of the one before is
        done.
        """
        new = upto in since.values() and not self._server.mariadb
        return replace(upto, at=4, gtids="") if new else upto

    def _collected(self, read: TableRead, since: Spot) -> BinlogKeys:
        key, table = source_key(read), self._known.tables[read.source.ref]
        by_name = {c.name: c for c in table.columns}
        followed = self._known.parents.get(read.source.ref, CascadingTables())
        columns = tuple(by_name[k] for k in key)
        return BinlogKeys(
            columns,
            table.places(key),
            len(table.columns),
            most_keys(self.limit, table.rows),
            numbered(since),
            followed,
            set(key) == table.unique,
            frozenset(name.lower() for name in by_name),
        )

    def _read_end(self, session: pymysql.Connection[Any]) -> tuple[Spot, Callable[[str], bool], str]:
        """Return (up to where the log is read, which transactions before that count, names of transactions before
        it)."""
        if is_mariadb(session):
            run(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            status = dict(run(session, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
            status = {name.lower(): value for name, value in status.items()}
            upto = status["binlog_snapshot_file"], int(status["binlog_snapshot_position"])
            gtids = first(session, f"SELECT BINLOG_GTID_POS({literal(upto[0])}, {upto[1]})")[0]
            return upto, lambda gtid: True, str(gtids or "")

        server = server_of(session)
        done = GtidSet.of(first(session, "SELECT @@global.gtid_executed")[0])
        return server.end, done.has, server.executed

    def covered(self) -> str:
        with self._session() as session:
            if server_of(session).name != self._server.name:
                return ""
            name = "gtid_binlog_pos" if self._server.mariadb else "gtid_executed"
            return "".join(str(first(session, f"SELECT @@global.{name}")[0] or "").split())

    def place_of(self, position: str, covered: str) -> str:
        """Return why the position cannot be used here, "" if it can. A transaction that the other server had and
        this one lacks may be in rows that were read. MariaDB names the last transaction of a domain alone: a replica
        may have others before it that were written there, unless it is strict. Names that the server does not
        recognise count as unknown."""
        try:
            gtids, end = Position.of(position).gtids, self._server.end
        except ValueError:  # of a source of another kind
            return ""
        if self._server.mariadb and self._server.settings.get("gtid_strict_mode") != "ON":
            return ""
        if not gtids or not covered or not self._has(gtids) or not self._has(covered):
            return ""
        with dump(self._reached, ("", MAGIC), gtids) as stream:
            spot_first = stream.first_transaction()
        if spot_first is None:
            return ""
        spot = spot_first if spot_first != NOTHING else end
        return str(Position(*spot, self._birth(spot), gtids))

    def _has(self, gtids: str) -> bool:
        """Return whether the server has all of these transactions; of MariaDB: and its log still knows of them."""
        if self._server.mariadb:
            with dump(self._reached, ("", MAGIC), gtids) as stream:
                return stream.first_transaction() is not None
        from pymysql.err import MySQLError

        with self._session() as session:
            try:
                return bool(first(session, f"SELECT GTID_SUBSET({literal(gtids)}, @@global.gtid_executed)")[0])
            except MySQLError as error:
                if error.args[:1] != (_MALFORMED_SET,):
                    raise
                return False

    def rows(self, read: TableRead, key: str, changed: ChangedKeys) -> list[Chunk]:
        bounded, engine = self.config.max_connections, self._known.tables[read.source.ref].engine
        in_lanes = engine == "innodb" and not bounded and self._several in (None, read.source.ref)
        chunks = row_chunks(read, key, changed, min(self.config.table_connections, TOGETHER) if in_lanes else 1)
        if chunks and chunks[0].connections > 1:
            self._several = read.source.ref
        return chunks

    def keys(self, read: TableRead, key: str, changed: ChangedKeys) -> list[Chunk]:
        return key_chunks(read, key, changed, mariadb=self._server.mariadb)

    def release(self, position: str) -> None:
        """No-op: the server expires its log by itself."""

    def close(self) -> None:
        """No-op: each read ends its own stream."""

    @property
    def _reached(self) -> MySqlSourceSection:
        """The server that was asked for the log's state."""
        return self._at or self.config

    @contextmanager
    def _session(self) -> Iterator[pymysql.Connection[Any]]:
        """Connect to the server that rows are read from: a replica has its own log."""
        with nearest(self.config, connect) as at, translated(at.config, f"the log of {at.config.place}"):
            self._at = at.config
            yield at.connection
