"""PostgreSQL as a source: version 12 and later (page ranges from 14), one login, one database.

A catalog lists what exists, readable or not: a table or column without the SELECT privilege is in the catalog
and in `Discovery.denied`, so that a lost grant is never taken for a removal. Partitions are part of their
parent. An inheriting table is a table of its own, and its rows are its parent's too, as in any query.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from instep.model import Check, LogNames
from instep.sources.base import Discovery
from instep.sources.log import ChangeLog
from instep.sources.postgres.catalog import Names, read_catalog, read_fingerprint
from instep.sources.postgres.checks import checks
from instep.sources.postgres.connect import PostgresConfig, connect, translated
from instep.sources.postgres.snapshot import PostgresSnapshot, open_snapshot
from instep.sources.replicas import nearest

__all__ = ["PostgresConfig", "PostgresSource"]


class PostgresSource:
    """See `Source`. Raises ConnectError where the server cannot be reached or refuses the login."""

    kind = "postgres"
    default_schema = "public"

    def __init__(self, config: PostgresConfig) -> None:
        self.config = config

    def __repr__(self) -> str:
        return f"PostgresSource({self.config!r})"

    def test(self) -> list[Check]:
        """Test the source from the network up; stop at the first failed check that the others need."""
        return checks(self.config)

    def fingerprint(self) -> str:
        """Computed in the server: 0.4 s for 10,000 tables of 10 columns."""
        with nearest(self.config, connect) as at, translated(at.config):
            return read_fingerprint(at.connection, self._names)

    def discover(self) -> Discovery:
        """Discover the schema in one statement: 1.4 s for 10,000 tables of 10 columns."""
        with nearest(self.config, connect) as at, translated(at.config):
            return read_catalog(at.connection, self._names)

    def snapshot(self) -> AbstractContextManager[PostgresSnapshot]:
        return open_snapshot(self.config)

    def log(self, names: LogNames) -> ChangeLog:
        """Return its log, by logical replication."""
        from instep.sources.postgres.wal.log import PostgresLog

        return PostgresLog(self.config, names)

    @property
    def _names(self) -> Names:
        return Names(self.config.include, self.config.exclude)
