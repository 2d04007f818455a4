"""What the project file says of a JDBC source, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from instep.errors import ProjectError, SetupError
from instep.project.sections.jdbc_address import address, check_options, properties, subprotocol_of
from instep.project.sections.jdbc_dialects import DIALECTS, JdbcDialect, dialect_of
from instep.spark.jars import Jar, ensure
from instep.spark.jdbc import Login

_MAVEN = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)")


@dataclass(frozen=True)
class JarFile:
    """A driver's jar: a file, or Maven coordinates `group:name:version` and the SHA-256 that it must have."""

    path: str = ""
    maven: str = ""
    sha256: str = ""

    def file(self) -> str:
        """Return the file, fetched into the cache if it has coordinates; SetupError if it is not there."""
        if not self.maven:
            if not Path(self.path).is_file():
                raise SetupError(
                    f"the jar {self.path} does not exist", hint="correct `jars` of the source in instep.yml"
                )
            return str(Path(self.path).resolve())
        match = _MAVEN.fullmatch(self.maven)
        assert match is not None
        return str(ensure([Jar(match[1], match[2], match[3], self.sha256)])[0])


@dataclass(frozen=True)
class JdbcConfig:
    """`url` is a template, "" for the one of `subprotocol`. `schemas`: those that are read, none for the login's own.
    `partition_columns`: table pattern to the column by whose ranges it is read. Times in seconds, 0 for no limit."""

    subprotocol: str = ""
    url: str = ""
    host: str = ""
    port: int = 0
    database: str = ""
    driver: str = ""
    jars: tuple[JarFile, ...] = ()
    user: str = ""
    password: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    schemas: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    partitions: int = 0
    partition_columns: Mapping[str, str] = field(default_factory=dict)
    fetch_size: int = 5_000
    connect_timeout: float = 10
    query_timeout: float = 0
    max_connections: int = 0
    rows_per_second: float = 0

    @cached_property
    def kind(self) -> str:
        """The subprotocol."""
        return subprotocol_of(self.url) if self.url else self.subprotocol.lower()

    @cached_property
    def dialect(self) -> JdbcDialect:
        return dialect_of(self.kind)

    @cached_property
    def address(self) -> str:
        """The URL, without a login; raises ProjectError."""
        template = self.url or self.dialect.url
        if not template:
            known = ", ".join(sorted(DIALECTS))
            raise ProjectError(f"no URL is known for `subprotocol: {self.kind}`", hint=f"set `url`; known: {known}")
        return address(template, self.host, self.port or self.dialect.port, self.database)

    @cached_property
    def login(self) -> Login:
        """What it takes to connect. Raises ProjectError for what is refused, SetupError without a jar or a class."""
        url = self.address
        check_options(self.kind, self.options)
        driver = self.driver or self.dialect.driver
        if not driver:
            raise SetupError(
                f"which class is the driver of {url}?", hint="set `driver`, as the driver's documentation names it"
            )
        given = properties(self.dialect, self.options, self.user, self.password, self.connect_timeout)
        return Login(url, driver, tuple(jar.file() for jar in self.jars), given)

    @property
    def default_schema(self) -> str:
        """The schema that needs no mention in names: the only one that is read, or the usual one."""
        if len(self.schemas) == 1:
            return self.schemas[0]
        own = {"oracle": self.user.upper(), "db2": self.user.upper()}
        return self.dialect.schema or own.get(self.kind, self.database if self.kind in ("mysql", "mariadb") else "")
