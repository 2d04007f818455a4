"""What is said about a database server that is a source, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from instep.sources.private_file import carried
from instep.sources.ssh import Ssh


@dataclass(frozen=True)
class ServerConfig:
    """Where and as whom to connect, and which tables are looked at.

    `include` and `exclude` are patterns for tables. Timeouts are in seconds, 0 means none; `read_timeout` is the
    longest silence of the server. `max_connections` and `rows_per_second` bound one sync, 0 means no bound.
    `read_replica` are `host` or `host:port` of servers to read from before `host`.
    """

    CERTIFICATES: ClassVar[tuple[str, ...]] = ()
    """Fields that are paths of certificates."""

    host: str
    database: str
    user: str
    port: int = 0
    password: str = field(default="", repr=False)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    connect_timeout: int = 10
    read_timeout: float = 3600
    statement_timeout: float = 0
    ssh: Ssh | None = None
    max_connections: int = 0
    rows_per_second: float = 0
    application_name: str = "instep"
    read_replica: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Certificates go along: a task may run where their files are not."""
        return {**self.__dict__, **{name: carried(getattr(self, name)) for name in self.CERTIFICATES}}

    @property
    def place(self) -> str:
        """`user@host:port/database`, for messages."""
        return f"{self.user}@{self.host}:{self.port}/{self.database}"

    def without_secret(self, text: str) -> str:
        """A text of the server's or a library's that may repeat the password."""
        return text.replace(self.password, "***") if self.password else text
