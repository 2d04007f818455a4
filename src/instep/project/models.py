"""The project file's sections. Field names are the keys of the file; every default stands here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from instep.model import Deletes
from instep.project.policies import OverrideSection, PolicySection
from instep.project.reference import Reference
from instep.project.schedule import cron, timezone
from instep.project.values import (
    Name,
    Pattern,
    Patterns,
    Port,
    Seconds,
    Secret,
    Section,
    Text,
    Url,
    Words,
    check_properties,
)

SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]


def _checked(value: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
    if not (info.context and info.context.get("resolved")):
        check_properties(value)
    return value


def _plain_conf(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Spark shows its configuration on its pages and in its logs."""
    for name, text in value.items():
        if isinstance(text, Reference):
            raise PydanticCustomError("conf_reference", "{name}", {"name": name})
    return value


Properties = Annotated[dict[str, Text | bool | int | float], AfterValidator(_checked)]


class Spark(Section):
    """Where the Spark jobs run. `remote` is a Spark Connect URL and replaces `master`."""

    master: Text = "local[*]"
    remote: Url = ""
    driver_memory: str = ""
    conf: Annotated[Properties, BeforeValidator(_plain_conf)] = Field(default_factory=dict)


class PostgresSource(Section):
    paths: ClassVar[tuple[str, ...]] = ("sslrootcert",)
    type: Literal["postgres"]
    host: Text = "localhost"
    port: Port = 5432
    database: Text
    user: Text
    password: Secret = ""
    sslmode: SslMode = "prefer"
    sslrootcert: Text = ""
    include: Patterns = ()
    exclude: Patterns = ()
    connect_timeout: Annotated[int, Field(ge=0)] = 10
    statement_timeout: Seconds = 0
    options: Text = ""


class MySqlSource(Section):
    paths: ClassVar[tuple[str, ...]] = ("ssl_ca",)
    type: Literal["mysql", "mariadb"]
    host: Text = "localhost"
    port: Port = 3306
    database: Text
    user: Text
    password: Secret = ""
    ssl_ca: Text = ""
    ssl_verify: bool = True
    include: Patterns = ()
    exclude: Patterns = ()
    connect_timeout: Annotated[int, Field(ge=0)] = 10


class SqliteSource(Section):
    paths: ClassVar[tuple[str, ...]] = ("path",)
    type: Literal["sqlite"]
    path: Text
    include: Patterns = ()
    exclude: Patterns = ()


class IcebergDestination(Section):
    """`catalog` is `sqlite` (a file beside the warehouse) or the URI of a REST catalog; `properties` go to it.
    `namespace` is put before the names of all its connections' namespaces; `prefix` begins system columns."""

    paths: ClassVar[tuple[str, ...]] = ("warehouse",)
    type: Literal["iceberg"]
    warehouse: Text = "lake"
    catalog: Url = "sqlite"
    properties: Properties = Field(default_factory=dict)
    namespace: Text = ""
    prefix: Annotated[str, Field(pattern=r"^_[a-z0-9_]*_$")] = "_instep_"


Source = Annotated[PostgresSource | MySqlSource | SqliteSource, Field(discriminator="type")]
Destination = IcebergDestination


class TableSection(OverrideSection):
    """How the tables that a pattern names are loaded; also policy settings of their own."""

    mode: Literal["auto", "full_refresh", "append", "upsert"] = "auto"
    cursor: str = ""
    lookback: Seconds = 0
    deletes: Deletes = "soft"
    key: Words = ()
    enabled: bool = True


class Filter(Section):
    tables: Patterns = ()
    columns: Patterns = ()


class Detect(Section):
    """`min_interval`: seconds since the last detection before another one is worth while."""

    before_sync: bool = True
    min_interval: Seconds = 0


class Schedule(Section):
    detect: Annotated[str, AfterValidator(cron)] = ""
    sync: Annotated[str, AfterValidator(cron)] = ""
    timezone: Annotated[str, AfterValidator(timezone)] = "UTC"


Notice = Literal["detected", "review_needed", "breaking", "ignored", "applied", "paused", "resumed", "failed", "done"]


class Notify(Section):
    on: Annotated[tuple[Notice, ...], Field(min_length=1)]
    to: str


class Connection(Section):
    """One source into one destination; where the project has only one, it need not be named."""

    source: str = ""
    destination: str = ""
    policy: str = ""
    namespace: str = ""
    tags: Words = ()
    include: Filter = Filter()
    exclude: Filter = Filter()
    hash: Patterns = ()
    salt: Secret = ""
    tables: dict[Pattern, TableSection] = Field(default_factory=dict)
    detect: Detect = Detect()
    schedule: Schedule = Schedule()
    notify: tuple[Notify, ...] = ()


class Channel(Section):
    """Where notices go; the keys depend on the type."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)
    type: Literal["slack", "email", "teams", "webhook"]

    @model_validator(mode="after")
    def _secrets_referenced(self) -> Channel:
        """The address of a web hook is a secret as well."""
        for name, value in (self.model_extra or {}).items():
            if isinstance(value, Reference) and value.problem():
                raise PydanticCustomError("reference", "{name}: {why}", {"name": name, "why": value.problem()})
            check_properties({"webhook" if name == "url" else name: value})
        return self


class ProjectFile(Section):
    """instep.yml"""

    version: Literal[1] = 1
    project: str = ""
    store: Url = "sqlite:///.instep/state.db"
    spark: Spark = Spark()
    sources: dict[Name, Source] = Field(default_factory=dict)
    destinations: dict[Name, Destination] = Field(default_factory=dict)
    policies: dict[Name, PolicySection] = Field(default_factory=dict)
    connections: dict[Name, Connection] = Field(default_factory=dict)
    channels: dict[Name, Channel] = Field(default_factory=dict)
