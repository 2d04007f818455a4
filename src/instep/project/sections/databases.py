"""Sources that are servers of databases, and what every source has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from instep.errors import quoted
from instep.project.sections.detector import AppOptions, TableOptions
from instep.project.sections.reach import ServerSection, former
from instep.project.sections.values import Patterns, Port, Seconds, Secret, Section, Text

_POSTGRES_TLS = {"sslmode": "mode", "sslrootcert": "ca"}
_MYSQL_TLS = {"ssl": "mode", "ssl_ca": "ca", "ssl_cert": "cert", "ssl_key": "key"}
_MYSQL_MODES = {"verify_ca": "verify-ca", "verify_identity": "verify-full"}


class SourceSection(Section):
    """Settings of every source beside its address: the options of a scheduled detector."""

    app_options: AppOptions | None = None
    table_options: TableOptions = Field(default_factory=dict)


class SelectiveSourceSection(SourceSection):
    """Patterns for tables: the exact text, a glob, or `re:` and a regular expression; no `include` means all."""

    include: Patterns = ()
    exclude: Patterns = ()


class DatabaseSection(SelectiveSourceSection, ServerSection):
    """A server of databases. Timeouts are in seconds, 0 means none; `read_timeout` is its longest silence."""

    host: Text = "localhost"
    port: Port
    database: Text
    user: Text
    password: Secret = ""
    connect_timeout: Annotated[int, Field(ge=0)] = 10
    read_timeout: Seconds = 3600

    @property
    def place(self) -> str:
        """`user@host:port/database`, for messages."""
        return f"{self.user}@{self.host}:{self.port}/{self.database}"

    def redacted(self, text: str) -> str:
        """Return a text of the server's or a library's as it may be passed on: without the password, which it may
        repeat, on one line, without what moves a cursor, and not too long."""
        return quoted(text.replace(self.password, "***") if self.password else text)


class PostgresSourceSection(DatabaseSection):
    """`options` is passed to the server as libpq's `options`."""

    type: Literal["postgres"]
    port: Port = 5432
    options: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _former(cls, data: Any) -> Any:
        return former(data, _POSTGRES_TLS, {"allow": "prefer"})


class MySqlSourceSection(DatabaseSection):
    """`table_connections` bounds the connections that read one large table."""

    type: Literal["mysql", "mariadb"]
    port: Port = 3306
    table_connections: Annotated[int, Field(ge=1, le=64)] = 4

    @model_validator(mode="before")
    @classmethod
    def _former(cls, data: Any) -> Any:
        return former(data, _MYSQL_TLS, _MYSQL_MODES)
