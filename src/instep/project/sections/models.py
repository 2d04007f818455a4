"""The project file's sections. Field names are the keys of the file; every default stands in them, and whoever works
with a section takes it as it is."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from instep.project.sections.channels import (
    Channel,
    Egress,
    LineageSection,
    Notify,
    OidcSection,
    RetentionSection,
    Route,
    ServerUrl,
    TracesSection,
)
from instep.project.sections.detector import AppOptions, TableOptions
from instep.project.sections.file_settings import SHELVES
from instep.project.sections.policies import Backfilled, Handling, PolicySection, Propagation
from instep.project.sections.reach import Tls
from instep.project.sections.schedule import BackfillSection, MaintainSection, schedule, time_zone
from instep.project.sections.sources import Source
from instep.project.sections.tables import TableKeys, TableSettings
from instep.project.sections.values import (
    ColumnTypes,
    Name,
    Patterns,
    Port,
    Properties,
    Seconds,
    Secret,
    Section,
    TablePattern,
    Text,
    Url,
    Words,
    as_text,
    expression,
    folders,
    is_secret,
)
from instep.project.text.references import Reference
from instep.schema.policy.safeguards import MAX_NEW_COLUMNS
from instep.schema.selection import pii
from instep.schema.selection.selection import Pattern, Selection, patterns


def _plain_conf(value: Any) -> Any:
    """Refuse secrets: Spark shows its configuration on its pages and in its logs."""
    for name, text in value.items() if isinstance(value, dict) else ():
        if isinstance(text, Reference) or is_secret(name, str(text)):
            raise PydanticCustomError("conf_secret", "{name}", {"name": name})
    return value


class Spark(Section):
    """Settings of Spark. `remote` is a Spark Connect URL and replaces `master`."""

    master: Text = "local[*]"
    remote: Url = ""
    driver_memory: str = ""
    conf: Annotated[Properties, BeforeValidator(_plain_conf)] = Field(default_factory=dict)


SystemPrefix = Annotated[str, Field(pattern=r"^_[a-z0-9_]*_$")]
QuarantineDays = Annotated[int, Field(ge=0, le=36_500)]


class DestinationSection(Section):
    """`namespace` is that of connections without one; `prefix` begins system columns. What was dropped can be taken
    back for `undo_days`; what is in quarantine goes `quarantine_days` after it was held last (0: never). `properties`
    go to the catalog, or reach the storage."""

    namespace: Text = ""
    prefix: SystemPrefix = "_instep_"
    properties: Properties = Field(default_factory=dict)
    quarantine_days: QuarantineDays = 30
    undo_days: Annotated[int, Field(ge=0)] = 7


class IcebergDestinationSection(DestinationSection):
    """`catalog` is `sqlite` (a file in the warehouse), the URI of a REST catalog, or `rest`, `sql`, `hive` or `glue`;
    `properties` go to it. In upserts that compare more than `upsert_rows` rows Spark finds and writes what differs, in
    others this process does. Columns of tables with more are rewritten in parts."""

    type: Literal["iceberg"]
    warehouse: Text = "lake"
    catalog: Url = "sqlite"
    upsert_rows: Annotated[int, Field(ge=0)] = 20_000_000

    def local_paths(self) -> tuple[str, ...]:
        """Return the settings that are local paths; the warehouse of a catalog other than SQLite may be a name."""
        return ("warehouse",) if self.catalog == "sqlite" else ()

    @property
    def catalog_type(self) -> str:
        """The type of the catalog: `rest` where `catalog` is a URI."""
        return "rest" if "://" in self.catalog else self.catalog

    @property
    def catalog_properties(self) -> dict[str, str]:
        """The properties as texts, with the URI of the catalog."""
        uri = {"uri": self.catalog} if "://" in self.catalog else {}
        return {**uri, **as_text(self.properties)}


class DuckDbDestinationSection(DestinationSection):
    """`path` of the database file; staged files and quarantine are in a folder beside it, or in `staging`: a folder,
    or a place in a bucket, which `properties` reach. A run waits `lock_timeout` seconds for a file that another
    program holds. The others are as for a lake."""

    files: ClassVar[tuple[str, ...]] = ("path", "staging")
    type: Literal["duckdb"]
    path: Text
    staging: str = ""
    lock_timeout: Seconds = 10


class PostgresDestinationSection(DestinationSection):
    """A database. `staging` is the folder of staged files and of quarantine, or a place in a bucket, which
    `properties` reach. A run waits `lock_timeout` seconds for a table that another session has locked. From `copy_rows`
    staged rows on tasks of Spark copy them. The others are as for a lake."""

    files: ClassVar[tuple[str, ...]] = ("staging",)
    type: Literal["postgres"]
    host: Text = "localhost"
    port: Port = 5432
    database: Text
    user: Text
    password: Secret = ""
    tls: Tls = Tls()
    staging: Text = ".instep/staging"
    connect_timeout: Annotated[int, Field(ge=0)] = 10
    read_timeout: Seconds = 4 * 3600
    lock_timeout: Seconds = 10
    statement_timeout: Seconds = 0
    copy_rows: Annotated[int, Field(ge=0)] = 1_000_000

    @property
    def place(self) -> str:
        """`user@host:port/database`, for messages."""
        return f"{self.user}@{self.host}:{self.port}/{self.database}"


class DeltaDestinationSection(DestinationSection):
    """`warehouse` is the folder of the tables, one a folder, or a place in a bucket, which `properties` reach. Upserts
    of tables with more than `upsert_rows` rows (in whole compares, with four times as many), and rewrites of their
    columns, are done by tasks of Spark. The others are as for Iceberg."""

    files: ClassVar[tuple[str, ...]] = ("warehouse",)
    type: Literal["delta"]
    warehouse: Text = "lake"
    upsert_rows: Annotated[int, Field(ge=0)] = 5_000_000


Destination = Annotated[
    IcebergDestinationSection | DuckDbDestinationSection | DeltaDestinationSection | PostgresDestinationSection,
    Field(discriminator="type"),
]


class Include(Section):
    tables: Patterns = ()


class Exclude(Section):
    tables: Patterns = ()
    columns: Patterns = ()


class Detect(Section):
    """The times at which syncs detect schema changes, and how long (in seconds) they rely on the last detection."""

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
    sample: Annotated[int, Field(ge=1, le=10_000)] = pii.Protect.sample
    allow: Patterns = ()

    def rules(self) -> pii.Protect:
        return pii.Protect(self.mode, patterns(self.names), dict(self.values), self.sample, patterns(self.allow))


class LogSection(Section):
    """Names of the slot and the publication at the source, if they differ from the connection's default names."""

    slot: Annotated[str, Field(pattern=r"^[a-z0-9_]{0,63}$")] = ""
    publication: str = ""


def _mode(value: Any) -> Any:
    """Accept `protect: on` as short for `protect: {mode: on}`."""
    if isinstance(value, bool):
        return {"mode": "on" if value else "off"}
    return {"mode": value} if isinstance(value, str) else value


Protection = Annotated[
    ProtectSection, BeforeValidator(_mode, json_schema_input_type=Literal["off", "names", "on"] | ProtectSection)
]


class ConnectionSection(Section):
    """One source into one destination; either may be omitted if the project has only one. `policy` decides what happens
    to schema changes; `schema_change_handling` and `detect_and_propagate_schema_changes` do the same in the words of
    other products. `freshness`: the age that the rows of a table may reach before it is late; 0: no target."""

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
    tables: dict[TablePattern, TableSettings] = Field(default_factory=dict)
    detect: Detect = Detect()
    schedule: Schedule = Schedule()
    notify: tuple[Notify, ...] = ()
    notify_schema_changes: bool | None = None
    downstream: DownstreamSection = DownstreamSection()
    mode: Literal["auto", "cdc"] = "auto"
    log: LogSection = LogSection()
    max_new_columns: Annotated[int, Field(ge=0)] = MAX_NEW_COLUMNS
    keep_old_names: Seconds = 0
    freshness: Seconds = 0
    backfill_limits: BackfillSection = BackfillSection()
    maintain: MaintainSection = MaintainSection()

    @model_validator(mode="after")
    def _named_once(self) -> ConnectionSection:
        """Refuse one destination name for several tables."""
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
        enabled = {Pattern(text): table.enabled for text, table in tables if "enabled" in table.model_fields_set}
        excluded = [pattern.text for pattern, on in enabled.items() if not on and not pattern.is_exact]
        return Selection(
            include=patterns(self.include.tables),
            exclude_tables=patterns([*self.exclude.tables, *excluded]),
            exclude_columns=patterns(self.exclude.columns),
            hashed=patterns(self.hash),
            on=frozenset(pattern.text for pattern, on in enabled.items() if on and pattern.is_exact),
            off=frozenset(pattern.text for pattern, on in enabled.items() if not on and pattern.is_exact),
        )


class ProjectFile(Section):
    """instep.yml"""

    version: Literal[1] = 1
    project: str = ""
    store: Url = "sqlite:///.instep/state.db"
    engine: Literal["spark", "local"] = "spark"
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
    oidc: OidcSection = OidcSection()
