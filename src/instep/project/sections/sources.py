"""The sources of the project file: how each is reached, and which of its tables are looked at."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from instep.project.sections.connector import ConnectorServer
from instep.project.sections.detector import AppOptions, TableOptions
from instep.project.sections.file_settings import FileColumn, FileOptions, TableGlob
from instep.project.sections.jdbc import JdbcServer
from instep.project.sections.reach import ServerSection, Tls, former
from instep.project.sections.values import Patterns, Port, Properties, Seconds, Secret, Section, TablePattern, Text, Url

_POSTGRES_TLS = {"sslmode": "mode", "sslrootcert": "ca"}
_MYSQL_TLS = {"ssl": "mode", "ssl_ca": "ca", "ssl_cert": "cert", "ssl_key": "key"}
_MYSQL_MODES = {"verify-ca": "verify_ca", "verify-full": "verify_identity"}


class SourceSection(Section):
    """Settings of every source beside its address: the options of a scheduled detector."""

    app_options: AppOptions | None = None
    table_options: TableOptions = Field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        return {k: v for k, v in super().arguments().items() if k not in SourceSection.model_fields}


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


class PostgresSourceSection(DatabaseSection):
    """`options` is passed to the server as libpq's `options`."""

    type: Literal["postgres"]
    port: Port = 5432
    options: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _former(cls, data: Any) -> Any:
        return former(data, _POSTGRES_TLS, {"allow": "prefer"})

    def arguments(self) -> dict[str, Any]:
        out = super().arguments()
        tls: Tls = out.pop("tls")
        return {**out, "sslmode": tls.chosen, "sslrootcert": tls.ca, "sslcert": tls.cert, "sslkey": tls.key}


class MySqlSourceSection(DatabaseSection):
    """`table_connections` bounds the connections that read one large table."""

    type: Literal["mysql", "mariadb"]
    port: Port = 3306
    table_connections: Annotated[int, Field(ge=1, le=64)] = 4

    @model_validator(mode="before")
    @classmethod
    def _former(cls, data: Any) -> Any:
        return former(data, _MYSQL_TLS, {old: mode for mode, old in _MYSQL_MODES.items()})

    def arguments(self) -> dict[str, Any]:
        out = super().arguments()
        tls: Tls = out.pop("tls")
        mode = _MYSQL_MODES.get(tls.chosen, tls.chosen)
        return {**out, "ssl": mode, "ssl_ca": tls.ca, "ssl_cert": tls.cert, "ssl_key": tls.key}


class SqliteSourceSection(SelectiveSourceSection):
    """A file; a lock of another program is waited for `timeout` seconds."""

    files: ClassVar[tuple[str, ...]] = ("path",)
    type: Literal["sqlite"]
    path: Text
    timeout: Seconds = 10


class FilesSourceSection(SelectiveSourceSection, FileOptions):
    """`path` of a folder, or its URI, which `properties` reach. `tables`: a glob that tells the table of each file, ""
    for: a folder is a table, and so is a file beside it. `options` are for the tables that a pattern names. `metadata`
    names columns about the file that each row is in. Local files that changed less than `settle` seconds ago are left
    to the next read."""

    type: Literal["files"]
    path: Url
    tables: TableGlob = ""
    options: dict[TablePattern, FileOptions] = Field(default_factory=dict)
    metadata: tuple[FileColumn, ...] = ()
    properties: Properties = Field(default_factory=dict)
    settle: Seconds = 5

    def local_paths(self) -> tuple[str, ...]:
        """A URI is none."""
        return () if "://" in str(self.path) else ("path",)


class JdbcSourceSection(SelectiveSourceSection, JdbcServer):
    type: Literal["jdbc"]


class ConnectorSourceSection(SourceSection, ConnectorServer):
    type: Literal["connector"]


Source = Annotated[
    PostgresSourceSection
    | MySqlSourceSection
    | SqliteSourceSection
    | FilesSourceSection
    | JdbcSourceSection
    | ConnectorSourceSection,
    Field(discriminator="type"),
]
