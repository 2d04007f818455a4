"""Classes of sources and destinations by the `type:` of the project file; a class is imported on first use.

A class is imported when something of its type is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.destinations.facets import Destination
    from instep.egress.guard import EgressGuard
    from instep.notify.channel import Channel
    from instep.project.project import Project
    from instep.project.sections.channels import Channel as ChannelSection
    from instep.project.sections.sources import AirbyteSourceSection
    from instep.schema.catalog.catalog import Table
    from instep.sources.base import Source
    from instep.sources.connector.cluster.runner import Cluster
    from instep.store.store import Store


def source(
    name: str,
    project: Project,
    store: Callable[[], Store],
    start: Callable[[], SparkSession],
    connection: str = "",
    on: Callable[[], Cluster | None] = lambda: None,
    *,
    filtered: bool = True,
) -> Source:
    """Return the source. With a `connection` it can remember what its runs brought; a program runs `on` other
    machines where there are any. `filtered=False` ignores the source's include and exclude patterns."""
    section = project.source(name)
    if not filtered:
        section = section.model_copy(update={"include": (), "exclude": ()})
    match section.type:
        case "postgres":
            from instep.sources.postgres.source import PostgresSource

            return PostgresSource(section)
        case "mysql" | "mariadb":
            from instep.sources.mysql.source import MySqlSource

            return MySqlSource(section)
        case "sqlite":
            from instep.sources.sqlite.source import SqliteSource

            copies = project.root / ".instep" / "copies" if project.works_elsewhere else ""
            return SqliteSource(section, str(copies))
        case "files":
            from instep.sources.files.config import FilesConfig
            from instep.sources.files.source import FilesSource

            config = FilesConfig.of(section, name=name, links=project.may_follow_links(name))
            return FilesSource(config, store().source_files, start if project.engine == "spark" else None)
        case "jdbc":
            from instep.sources.jdbc.config import JdbcConfig
            from instep.sources.jdbc.source import JdbcSource

            return JdbcSource(JdbcConfig.of(section), start)
        case "connector":
            from instep.project.sections.connector import segments_folder, uploads_folder
            from instep.sources.connector.config import ConnectorConfig
            from instep.sources.connector.source import SdkSource

            program = ConnectorConfig.of(section, name=connection or name)
            of = connection or f"source-{name}"
            place, uploads = segments_folder(project.root, of), uploads_folder(project.root, of)
            salt = project.salt(connection) if connection else b""
            return SdkSource(program, str(place), store().connectors.of(connection), salt, str(uploads), on)
        case "airbyte":
            return _airbyte(section, name, connection, project, store)


def _airbyte(
    section: AirbyteSourceSection, name: str, connection: str, project: Project, store: Callable[[], Store]
) -> Source:
    from instep.project.sections.connector import segments_folder
    from instep.project.sections.tables import TableSettings
    from instep.sources.airbyte.config import AirbyteConfig
    from instep.sources.airbyte.source import AirbyteSource

    def settings(ref: tuple[str, str]) -> TableSettings:
        return project.table(connection, ref) if connection else TableSettings()

    def accepted() -> Mapping[tuple[str, str], Table]:
        return store().accepted.catalog(connection).by_ref if connection else {}

    def note_open(fields: Sequence[tuple[str, ...]]) -> None:
        written = project.model.sources[name]
        if written.type == "airbyte":
            store().open_fields.note(name, written.program, fields)

    config = AirbyteConfig.of(section, name=connection or name, folder=str(project.root))
    place = segments_folder(project.root, connection or f"source-{name}")
    salt = project.salt(connection) if connection else b""
    memory = store().connectors.of(connection)
    return AirbyteSource(config, str(place), memory, settings, accepted, salt, note_open=note_open)


def cluster(project: Project, connection: str, start: Callable[[], SparkSession], into: Destination) -> Cluster | None:
    """Return the cluster that a connection's program runs on; None for this machine."""
    from instep.sources.connector.cluster.runner import cluster_of
    from instep.stage.files.place import StorageFolder

    if not project.works_elsewhere:
        return None
    room = into.lifecycle.shared_storage()
    own = room and StorageFolder(room.child(quote(connection, safe="")), room.io)
    return cluster_of(start, own, connection)


def destination(name: str, project: Project) -> Destination:
    section = project.destination(name)
    match section.type:
        case "delta":
            from instep.destinations.delta.destination import DeltaConfig, DeltaDestination

            return DeltaDestination(DeltaConfig.of(section, name=name))
        case "duckdb":
            from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination

            return DuckDbDestination(DuckDbConfig.of(section, name=name))
        case "iceberg":
            from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination

            local_files = project.may_read_local_files(name)
            return IcebergDestination(IcebergConfig.of(section, name=name, local_files=local_files))
        case "postgres":
            from instep.destinations.postgres.connect import PostgresServerConfig
            from instep.destinations.postgres.destination import PostgresDestination

            return PostgresDestination(PostgresServerConfig.of(section, name=name))


def channel(section: ChannelSection, guard: EgressGuard) -> Channel:
    match section.type:
        case "email":
            from instep.notify.mail import EmailChannel

            return EmailChannel(section, guard)
        case "slack":
            from instep.notify.channel import PostChannel
            from instep.notify.chat_services import slack_payload as blocks

            return PostChannel(section, guard, blocks)
        case "teams":
            from instep.notify.channel import PostChannel
            from instep.notify.chat_services import teams_payload as card

            return PostChannel(section, guard, card)
        case "webhook":
            from instep.notify.webhook import WebhookChannel

            return WebhookChannel(section, guard)
        case "apprise":
            from instep.notify.apprise import AppriseChannel

            return AppriseChannel(section, guard)
