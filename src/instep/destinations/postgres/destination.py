"""The PostgreSQL destination: a database, with the staged files in a folder."""

from __future__ import annotations

from instep.destinations.postgres.connect import PostgresServerConfig
from instep.destinations.postgres.server import PostgresServer
from instep.destinations.postgres.shape import CAPABILITIES
from instep.destinations.shared import shard_column
from instep.destinations.sql.destination import CheckNames, SqlDestination

__all__ = ["CAPABILITIES", "PostgresDestination"]


class PostgresDestination(SqlDestination):
    """See `destinations.facets.Destination`."""

    def __init__(self, config: PostgresServerConfig, shard: str = "") -> None:
        """Connect to the server; `shard` limits loading and reading to one shard of shared tables."""
        self.config = config
        self.server = PostgresServer(config, (shard_column(config.prefix), shard) if shard else None)
        names = CheckNames(
            ("log in", "check host, port, user and password"),
            (
                "create a schema and a table",
                f"GRANT CREATE ON DATABASE to {config.user}, or make the schemas and give them to it",
            ),
            ("stage a file and load it", "the folder of `staging` must allow new files"),
            "the table must belong to the user who loads it",
        )
        super().__init__(self.server, lambda shard: PostgresDestination(config, shard), names)
