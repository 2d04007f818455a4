"""The project file's sections. Field names are the keys of the file; every default stands here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from instep.model import Deletes
from instep.project.sections.channels import Channel, Egress, Notify, Route, ServerUrl
from instep.project.sections.connector import ConnectorServer
from instep.project.sections.detector import AppOptions, TableOptions
from instep.project.sections.file_options import FileColumn, FileOptions, TableGlob
from instep.project.sections.folders import SHELVES
from instep.project.sections.foreign_settings import Backfilled, Handling, Propagation
from instep.project.sections.jdbc import JdbcServer
from instep.project.sections.limits import BackfillSection, MaintainSection
from instep.project.sections.policies import OverrideSection, PolicySection
from instep.project.sections.reach import ServerSection, Tls, former
from instep.project.sections.schedule import schedule, time_zone
from instep.project.sections.table_layout import PartitionTerms, SortTerms, TableKeys, TableProperties
from instep.project.sections.telemetry import LineageSection, RetentionSection, TracesSection
from instep.project.sections.values import (
    SECRET_NAME,
    URL_PASSWORD,
    ColumnTypes,
    Name,
    Patterns,
    Port,
    Seconds,
    Secret,
    Section,
    TablePattern,
    Text,
    Url,
    Words,
    as_text,
    check_property,
    expression,
    folders,
)
from instep.project.text.references import Reference
from instep.schema.policy.safeguards import MAX_NEW_COLUMNS
from instep.schema.selection import pii
from instep.schema.selection.selection import Pattern, Selection, patterns

_POSTGRES_TLS = {"sslmode": "mode", "sslrootcert": "ca"}
_MYSQL_TLS = {"ssl": "mode", "ssl_ca": "ca", "ssl_cert": "cert", "ssl_key": "key"}
_MYSQL_MODES = {"verify-ca": "verify_ca", "verify-full": "verify_identity"}


def _checked(value: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
    if not (info.context and info.context.get("resolved")):
        for name, text in value.items():
            check_property(name, text)
    return value


def _plain_conf(value: Any) -> Any:
    """Spark shows its configuration on its pages and in its logs."""
    for name, text in value.items() if isinstance(value, dict) else ():
        if isinstance(text, Reference) or SECRET_NAME.search(name) or URL_PASSWORD.search(str(text)):
            raise PydanticCustomError("conf_secret", "{name}", {"name": name})
    return value


Properties = Annotated[dict[str, Text | bool | int | float], AfterValidator(_checked)]


class Spark(Section):
    """Settings of Spark. `remote` is a Spark Connect URL and replaces `master`."""

    master: Text = "local[*]"
    remote: Url = ""
    driver_memory: str = ""
    conf: Annotated[Properties, BeforeValidator(_plain_conf)] = Field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        out = super().arguments()
        return {**out, "conf": as_text(out["conf"])}


class SourceSection(Section):
    """Keys of every source: the options of a scheduled detector."""

    app_options: AppOptions | None = None
    table_options: TableOptions = Field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        return {k: v for k, v in super().arguments().items() if k not in SourceSection.model_fields}


class PostgresSourceSection(SourceSection, ServerSection):
    type: Literal["postgres"]
    host: Text = "localhost"
    port: Port = 5432
    database: Text
    user: Text
    password: Secret = ""
    include: Patterns = ()
    exclude: Patterns = ()
    connect_timeout: Annotated[int, Field(ge=0)] = 10
    read_timeout: Seconds = 3600
    options: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _former(cls, data: Any) -> Any:
        return former(data, _POSTGRES_TLS, {"allow": "prefer"})

    def arguments(self) -> dict[str, Any]:
        out = super().arguments()
        tls: Tls = out.pop("tls")
        return {**out, "sslmode": tls.chosen, "sslrootcert": tls.ca, "sslcert": tls.cert, "sslkey": tls.key}


class MySqlSourceSection(SourceSection, ServerSection):
    type: Literal["mysql", "mariadb"]
    host: Text = "localhost"
    port: Port = 3306
    database: Text
    user: Text
    password: Secret = ""
    include: Patterns = ()
    exclude: Patterns = ()
    connect_timeout: Annotated[int, Field(ge=0)] = 10
    read_timeout: Seconds = 3600

    @model_validator(mode="before")
    @classmethod
    def _former(cls, data: Any) -> Any:
        return former(data, _MYSQL_TLS, {old: mode for mode, old in _MYSQL_MODES.items()})

    def arguments(self) -> dict[str, Any]:
        out = super().arguments()
        tls: Tls = out.pop("tls")
        mode = _MYSQL_MODES.get(tls.chosen, tls.chosen)
        return {**out, "ssl": mode, "ssl_ca": tls.ca, "ssl_cert": tls.cert, "ssl_key": tls.key}


class SqliteSourceSection(SourceSection):
    files: ClassVar[tuple[str, ...]] = ("path",)
    type: Literal["sqlite"]
    path: Text
    include: Patterns = ()
    exclude: Patterns = ()
    timeout: Seconds = 10


class FilesSourceSection(SourceSection, FileOptions):
    """`path` is a folder, or its URI with its login in `properties`. `tables` is a glob that derives the table from
    each file's path. `options` apply to the tables that match a pattern."""

    type: Literal["files"]
    path: Url
    tables: TableGlob = ""
    options: dict[TablePattern, FileOptions] = Field(default_factory=dict)
    metadata: tuple[FileColumn, ...] = ()
    properties: Properties = Field(default_factory=dict)
    settle: Seconds = 5
    include: Patterns = ()
    exclude: Patterns = ()

    def local_paths(self) -> tuple[str, ...]:
        """A URI is none."""
        return () if "://" in str(self.path) else ("path",)

    def arguments(self) -> dict[str, Any]:
        out = {k: v for k, v in super().arguments().items() if k not in FileOptions.model_fields}
        by_table = {pattern: said.said() for pattern, said in self.options.items()}
        return {**out, "properties": as_text(out["properties"]), "options": self.said(), "by_table": by_table}


class JdbcSourceSection(SourceSection, JdbcServer):
    type: Literal["jdbc"]
    include: Patterns = ()
    exclude: Patterns = ()


class ConnectorSourceSection(SourceSection, ConnectorServer):
    type: Literal["connector"]


SystemPrefix = Annotated[str, Field(pattern=r"^_[a-z0-9_]*_$")]
QuarantineDays = Annotated[int, Field(ge=0, le=36_500)]


class IcebergDestinationSection(Section):
    """`catalog` is `sqlite` (a file in the warehouse), the URI of a REST catalog or another catalog type;
    `properties` go to it. `namespace` is that of connections without one; `prefix` begins system columns. Upserts
    of tables with more than `upsert_rows` rows run as a MERGE of Spark, those of smaller ones without. What was
    dropped can be taken back for `undo_days`; what is in quarantine goes `quarantine_days` after it was held last
    (0: never)."""

    type: Literal["iceberg"]
    warehouse: Text = "lake"
    catalog: Url = "sqlite"
    properties: Properties = Field(default_factory=dict)
    namespace: Text = ""
    prefix: SystemPrefix = "_instep_"
    upsert_rows: Annotated[int, Field(ge=0)] = 5_000_000
    quarantine_days: QuarantineDays = 30
    undo_days: Annotated[int, Field(ge=0)] = 7

    def local_paths(self) -> tuple[str, ...]:
        """The warehouse of another catalog may be a name."""
        return ("warehouse",) if self.catalog == "sqlite" else ()

    def arguments(self) -> dict[str, Any]:
        out = super().arguments()
        del out["namespace"]
        properties = as_text(out["properties"])
        if "://" in out["catalog"]:
            properties = {"uri": out["catalog"], **properties}
            out["catalog"] = "rest"
        return {**out, "properties": properties}


class DuckDbDestinationSection(Section):
    """`path` is the database file. Staged files and quarantine are in a folder beside it, or in `staging`: a folder, or
    `s3://bucket/prefix` with its login in `properties`. A run waits `lock_timeout` seconds for a file that another
    program has locked. The other keys are as for Iceberg."""

    files: ClassVar[tuple[str, ...]] = ("path", "staging")
    type: Literal["duckdb"]
    path: Text
    staging: str = ""
    properties: Properties = Field(default_factory=dict)
    lock_timeout: Seconds = 10
    namespace: Text = ""
    prefix: SystemPrefix = "_instep_"
    quarantine_days: QuarantineDays = 30
    undo_days: Annotated[int, Field(ge=0)] = 7

    def arguments(self) -> dict[str, Any]:
        out = {k: v for k, v in super().arguments().items() if k != "namespace"}
        return {**out, "properties": as_text(out["properties"])}


class PostgresDestinationSection(Section):
    """A PostgreSQL database. `staging` is the folder of staged files and of quarantine, or `s3://bucket/prefix` with
    its login in `properties`. A run waits `lock_timeout` seconds for a table that another session has locked. The other
    keys are as for Iceberg."""

    files: ClassVar[tuple[str, ...]] = ("staging",)
    type: Literal["postgres"]
    host: Text = "localhost"
    port: Port = 5432
    database: Text
    user: Text
    password: Secret = ""
    tls: Tls = Tls()
    staging: Text = ".instep/staging"
    properties: Properties = Field(default_factory=dict)
    connect_timeout: Annotated[int, Field(ge=0)] = 10
    read_timeout: Seconds = 4 * 3600
    lock_timeout: Seconds = 10
    statement_timeout: Seconds = 0
    namespace: Text = ""
    prefix: SystemPrefix = "_instep_"
    quarantine_days: QuarantineDays = 30
    undo_days: Annotated[int, Field(ge=0)] = 7

    def arguments(self) -> dict[str, Any]:
        out = {k: v for k, v in super().arguments().items() if k != "namespace"}
        tls: Tls = out.pop("tls")
        out["properties"] = as_text(out["properties"])
        return {**out, "sslmode": tls.chosen, "sslrootcert": tls.ca, "sslcert": tls.cert, "sslkey": tls.key}


class DeltaDestinationSection(Section):
    """`warehouse` is the folder of the tables, or `s3://bucket/prefix` with its login in `properties`; the other keys
    are as for Iceberg."""

    files: ClassVar[tuple[str, ...]] = ("warehouse",)
    type: Literal["delta"]
    warehouse: Text = "lake"
    properties: Properties = Field(default_factory=dict)
    namespace: Text = ""
    prefix: SystemPrefix = "_instep_"
    quarantine_days: QuarantineDays = 30
    undo_days: Annotated[int, Field(ge=0)] = 7

    def arguments(self) -> dict[str, Any]:
        out = {k: v for k, v in super().arguments().items() if k != "namespace"}
        return {**out, "properties": as_text(out["properties"])}


Source = Annotated[
    PostgresSourceSection
    | MySqlSourceSection
    | SqliteSourceSection
    | FilesSourceSection
    | JdbcSourceSection
    | ConnectorSourceSection,
    Field(discriminator="type"),
]
Destination = Annotated[
    IcebergDestinationSection | DuckDbDestinationSection | DeltaDestinationSection | PostgresDestinationSection,
    Field(discriminator="type"),
]


class TableSection(OverrideSection):
    """Settings of the tables that match a pattern: how they are loaded, and their own policy settings."""

    mode: Literal["auto", "full_refresh", "append", "upsert", "cdc"] = "auto"
    cursor: str = ""
    lookback: Seconds = 0
    deletes: Deletes = "soft"
    key: Words = ()
    keep_old_names: Seconds | None = None
    filter: str | None = None
    name: str = ""
    columns: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    properties: TableProperties = Field(default_factory=dict)
    sort: SortTerms = ()
    partition: PartitionTerms = ()
    history: bool = False
    types: ColumnTypes = Field(default_factory=dict)
    enabled: bool = True


class Include(Section):
    tables: Patterns = ()


class Exclude(Section):
    tables: Patterns = ()
    columns: Patterns = ()


class Detect(Section):
    """When syncs detect schema changes, and how long (in seconds) they rely on the last detection."""

    before_sync: bool = True
    min_interval: Seconds = 0

    @property
    def relied_on(self) -> float:
        """Return the seconds for which syncs rely on a detection: infinite if they never detect themselves."""
        return self.min_interval if self.before_sync else math.inf


class Schedule(Section):
    detect: Annotated[str, AfterValidator(schedule)] = ""
    sync: Annotated[str, AfterValidator(schedule)] = ""
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"


class DownstreamSection(Section):
    """Models that read the connection's tables: a dbt manifest, folders of SQL files. `dialect` is the SQL dialect."""

    manifest: str = ""
    sql: Words = ()
    dialect: str = ""


class ProtectSection(Section):
    """New columns that look personal wait for a review: by name, or by name and data. See docs/guides/selection.md."""

    mode: Literal["off", "names", "on"] = "on"
    names: Patterns = ()
    values: dict[str, Annotated[str, AfterValidator(expression)]] = Field(default_factory=dict)
    sample: Annotated[int, Field(ge=1, le=10_000)] = 100
    allow: Patterns = ()

    def rules(self) -> pii.Protect:
        return pii.Protect(self.mode, patterns(self.names), dict(self.values), self.sample, patterns(self.allow))


class LogSection(Section):
    """Names of the slot and the publication at the source, if they differ from the connection's default names."""

    slot: Annotated[str, Field(pattern=r"^[a-z0-9_]{0,63}$")] = ""
    publication: str = ""


def _mode(value: Any) -> Any:
    """`protect: on` is short for `protect: {mode: on}`."""
    if isinstance(value, bool):
        return {"mode": "on" if value else "off"}
    return {"mode": value} if isinstance(value, str) else value


Protection = Annotated[
    ProtectSection, BeforeValidator(_mode, json_schema_input_type=Literal["off", "names", "on"] | ProtectSection)
]


class ConnectionSection(Section):
    """One source into one destination; either may be omitted if the project has only one. `policy` decides what happens
    to schema changes; `schema_change_handling` and `detect_and_propagate_schema_changes` do the same in the words of
    other products."""

    source: str = ""
    destination: str = ""
    policy: str = ""
    schema_change_handling: Handling | None = None
    detect_and_propagate_schema_changes: Propagation = ""
    backfill: Backfilled | None = None
    app_options: AppOptions | None = None
    table_options: TableOptions = Field(default_factory=dict)
    namespace: str = ""
    shard: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9_-]{0,62})?$")] = ""
    tags: Words = ()
    include: Include = Include()
    exclude: Exclude = Exclude()
    hash: Patterns = ()
    salt: Secret = ""
    protect: Protection = ProtectSection(mode="off")
    types: ColumnTypes = Field(default_factory=dict)
    tables: dict[TablePattern, TableSection] = Field(default_factory=dict)
    detect: Detect = Detect()
    schedule: Schedule = Schedule()
    notify: tuple[Notify, ...] = ()
    notify_schema_changes: bool | None = None
    downstream: DownstreamSection = DownstreamSection()
    mode: Literal["auto", "cdc"] = "auto"
    log: LogSection = LogSection()
    max_new_columns: Annotated[int, Field(ge=0)] = MAX_NEW_COLUMNS
    keep_old_names: Seconds = 0
    backfill_limits: BackfillSection = BackfillSection()
    maintain: MaintainSection = MaintainSection()

    @model_validator(mode="after")
    def _named_once(self) -> ConnectionSection:
        """Several tables cannot have one name."""
        for text, table in self.tables.items():
            if table.name and not Pattern(text).is_exact:
                why = f"tables: {text}: `name` is for one table: write its schema and name"
                raise PydanticCustomError("pattern", "{why}", {"why": why})
        return self

    @cached_property
    def table_keys(self) -> TableKeys:
        return TableKeys(self.tables)

    def selection(self) -> Selection:
        """Return what is read. `enabled` on an exactly named table is an explicit choice, on a pattern an exclusion."""
        tables = self.tables.items()
        said = {Pattern(text): table.enabled for text, table in tables if "enabled" in table.model_fields_set}
        excluded = [pattern.text for pattern, on in said.items() if not on and not pattern.is_exact]
        return Selection(
            include=patterns(self.include.tables),
            exclude_tables=patterns([*self.exclude.tables, *excluded]),
            exclude_columns=patterns(self.exclude.columns),
            hashed=patterns(self.hash),
            on=frozenset(pattern.text for pattern, on in said.items() if on and pattern.is_exact),
            off=frozenset(pattern.text for pattern, on in said.items() if not on and pattern.is_exact),
        )


class ProjectFile(Section):
    """instep.yml"""

    version: Literal[1] = 1
    project: str = ""
    store: Url = "sqlite:///.instep/state.db"
    engine: Literal["auto", "spark", "inline"] = "auto"
    engine_idle: Seconds = 900.0
    spark: Spark = Spark()
    sources: dict[Name, Source] = Field(default_factory=dict)
    destinations: dict[Name, Destination] = Field(default_factory=dict)
    policies: dict[Name, PolicySection] = Field(default_factory=dict)
    connections: dict[Name, ConnectionSection] = Field(default_factory=dict)
    channels: dict[Name, Channel] = Field(default_factory=dict)
    notify: tuple[Route, ...] = ()
    egress: Egress = Egress()
    server_url: ServerUrl = ""
    retention: RetentionSection = RetentionSection()
    shelves: Annotated[Words, AfterValidator(folders)] = SHELVES
    four_eyes: bool = False
    traces: TracesSection = TracesSection()
    lineage: LineageSection = LineageSection()
