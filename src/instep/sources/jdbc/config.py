"""Configuration of a JDBC source, checked."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Literal

from instep.errors import ProjectError, SetupError
from instep.project.sections.jdbc import JdbcJar
from instep.project.sections.jdbc_address import (
    DIALECTS,
    JdbcDialect,
    address,
    check_options,
    dialect_of,
    properties,
    subprotocol_of,
)
from instep.project.sections.sources import JdbcSourceSection
from instep.project.sections.values import as_text
from instep.spark.jars import Jar, ensure
from instep.spark.jdbc import Login

_MAVEN = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)")


def jar_file(jar: JdbcJar) -> str:
    """Return a driver's jar, fetched into the cache if it has coordinates; SetupError if it is not there."""
    if not jar.maven:
        if not Path(jar.path).is_file():
            raise SetupError(f"the jar {jar.path} does not exist", hint="correct `jars` of the source in instep.yml")
        return str(Path(jar.path).resolve())
    match = _MAVEN.fullmatch(jar.maven)
    assert match is not None
    return str(ensure([Jar(match[1], match[2], match[3], jar.sha256)])[0])


class JdbcConfig(JdbcSourceSection):
    """A database that is reached through its own driver."""

    type: Literal["jdbc"] = "jdbc"

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
        """Return the login. Raises ProjectError for what is refused, SetupError without a jar or a class."""
        url = self.address
        check_options(self.kind, self.options)
        driver = self.driver or self.dialect.driver
        if not driver:
            raise SetupError(
                f"which class is the driver of {url}?", hint="set `driver`, as the driver's documentation names it"
            )
        settings = properties(self.dialect, as_text(self.options), self.user, self.password, self.connect_timeout)
        return Login(url, driver, tuple(map(jar_file, self.jars)), settings)

    @property
    def default_schema(self) -> str:
        """The schema that needs no mention in names: the only one that is read, or the usual one."""
        if len(self.schemas) == 1:
            return self.schemas[0]
        own = {"oracle": self.user.upper(), "db2": self.user.upper()}
        return self.dialect.schema or own.get(self.kind, self.database if self.kind in ("mysql", "mariadb") else "")
