"""A source that any JDBC driver reaches."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from instep.errors import ProjectError
from instep.project.sections.jdbc_address import address, check_options, check_url, dialect_of, subprotocol_of
from instep.project.sections.reach import RowsPerSecond
from instep.project.sections.values import (
    Port,
    Properties,
    Seconds,
    Secret,
    Section,
    TablePattern,
    Text,
    Url,
    Words,
)
from instep.project.text.references import Reference


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("reach", "{text}", {"text": text})


class JdbcJar(Section):
    """A jar file, or Maven coordinates that are downloaded once and must have this SHA-256."""

    files: ClassVar[tuple[str, ...]] = ("path",)
    path: str = ""
    maven: Annotated[str, Field(pattern=r"^([\w.-]+:[\w.-]+:[\w.-]+)?$")] = ""
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""

    @model_validator(mode="after")
    def _one(self) -> JdbcJar:
        if bool(self.path) == bool(self.maven):
            raise _wrong("is `path` of a file, or `maven: group:name:version` with its `sha256`")
        if self.maven and not self.sha256:
            raise _wrong("`maven` needs the `sha256` of the jar, so that no other file can be served")
        return self


def _jar(value: Any) -> Any:
    """Accept one text as the path of a file."""
    if isinstance(value, str):
        return ({"path": value},)
    return [{"path": v} if isinstance(v, str) else v for v in value] if isinstance(value, list) else value


Jars = Annotated[
    tuple[JdbcJar, ...],
    BeforeValidator(_jar, json_schema_input_type=str | list[str | JdbcJar]),
]


class JdbcServer(Section):
    """`subprotocol` names a database whose URL is known; otherwise `url` says it, with {host}, {port} and {database}
    where these belong. `options` are the driver's own, those that are allowed. `schemas`: none for the login's own.
    `partition_columns`: table pattern to the column by whose ranges a table is divided into `partitions` (0: one for
    a million values)."""

    subprotocol: str = ""
    url: Url = ""
    host: Text = ""
    port: Port | None = None
    database: Text = ""
    driver: str = ""
    jars: Jars = ()
    user: Text = ""
    password: Secret = ""
    options: Properties = Field(default_factory=dict)
    schemas: Words = ()
    fetch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 5_000
    partitions: Annotated[int, Field(ge=0, le=1_000)] = 0
    partition_columns: dict[TablePattern, str] = Field(default_factory=dict)
    connect_timeout: Seconds = 10
    query_timeout: Seconds = 0
    max_connections: Annotated[int, Field(ge=0)] = 0
    rows_per_second: RowsPerSecond = 0

    @model_validator(mode="after")
    def _reached(self, info: ValidationInfo) -> JdbcServer:
        if bool(self.subprotocol) == bool(self.url):
            raise _wrong(
                "needs `subprotocol`, such as postgresql, or `url`, such as jdbc:postgresql://{host}/{database}"
            )
        if not re.fullmatch(r"[A-Za-z0-9+.-]*", self.subprotocol):
            raise _wrong("`subprotocol` is the word after jdbc: in a URL")
        if info.context and info.context.get("resolved"):
            return self  # a source that is opened says it in its own words
        try:
            self.check_address()
        except ProjectError as error:
            raise _wrong(f"{error.message}: {error.hint}") from None
        return self

    def check_address(self) -> None:
        """Raise ProjectError for a URL or an option that is refused, as far as references leave it to be seen."""
        if isinstance(self.url, Reference):
            return
        kind = subprotocol_of(self.url) if self.url else self.subprotocol
        check_options(kind, self.options)
        if self.url:
            check_url(self.url)
        parts = self.host, self.port, self.database
        if not any(isinstance(part, Reference) for part in parts) and (template := self.url or dialect_of(kind).url):
            address(template, str(self.host), int(str(self.port or dialect_of(kind).port)), str(self.database))
