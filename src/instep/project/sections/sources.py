"""The sources of the project file: how each is reached, and which of its tables are looked at."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from instep.project.sections.airbyte import AirbyteServer
from instep.project.sections.connector import ConnectorServer
from instep.project.sections.databases import (
    MySqlSourceSection,
    PostgresSourceSection,
    SelectiveSourceSection,
    SourceSection,
)
from instep.project.sections.file_settings import FileColumn, FileOptions, TableGlob
from instep.project.sections.jdbc import JdbcServer
from instep.project.sections.values import Properties, Seconds, TablePattern, Text, Url


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
        """Return the settings that are local paths; a URI is none."""
        return () if "://" in str(self.path) else ("path",)


class JdbcSourceSection(SelectiveSourceSection, JdbcServer):
    type: Literal["jdbc"]


class ConnectorSourceSection(SourceSection, ConnectorServer):
    type: Literal["connector"]


class AirbyteSourceSection(SourceSection, AirbyteServer):
    type: Literal["airbyte"]


Source = Annotated[
    PostgresSourceSection
    | MySqlSourceSection
    | SqliteSourceSection
    | FilesSourceSection
    | JdbcSourceSection
    | ConnectorSourceSection
    | AirbyteSourceSection,
    Field(discriminator="type"),
]
