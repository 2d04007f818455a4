"""Which class serves which `type:` of the project file.

A class is imported when something of its type is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from instep.errors import ProjectError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.destinations.base import Destination
    from instep.egress.guard import EgressGuard
    from instep.notify.channel import Channel
    from instep.project.project import Project, Settings
    from instep.sources.base import Source
    from instep.sources.connector.cluster.runner import Cluster
    from instep.sources.jdbc.config import JarFile
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
    """Return the source; one that remembers what its runs brought does so for a `connection`, and one that is a program
    runs `on` other machines, if there are such. `filtered` false: it looks at all tables, whatever its patterns say."""
    settings = project.source(name)
    if not filtered:
        settings |= {"include": (), "exclude": ()}
    match settings.type:
        case "postgres":
            from instep.sources.postgres.source import PostgresConfig, PostgresSource
            from instep.sources.ssh import ssh_of

            return PostgresSource(PostgresConfig(**ssh_of(settings)))
        case "mysql" | "mariadb":
            from instep.sources.mysql.connect import MySqlConfig
            from instep.sources.mysql.source import MySqlSource
            from instep.sources.ssh import ssh_of

            return MySqlSource(MySqlConfig(**ssh_of(settings)))
        case "sqlite":
            from instep.sources.sqlite.connect import SqliteConfig
            from instep.sources.sqlite.source import SqliteSource

            copies = project.root / ".instep" / "copies" if project.works_elsewhere else ""
            return SqliteSource(SqliteConfig(**settings), str(copies))
        case "files":
            from instep.sources.files.config import FileOptions, FilesConfig
            from instep.sources.files.source import FilesSource

            said = {**settings, "name": name, "options": FileOptions(**settings["options"])}
            return FilesSource(FilesConfig(**said), store().source_files)
        case "jdbc":
            from instep.sources.jdbc.config import JdbcConfig
            from instep.sources.jdbc.source import JdbcSource

            return JdbcSource(JdbcConfig(**{**settings, "jars": jars(settings["jars"])}), start)
        case "connector":
            from instep.project.sections.connector import segments_folder, uploads_folder
            from instep.sources.connector.config import ConnectorConfig, ConnectorLimits
            from instep.sources.connector.source import ConnectorSource

            limits = ConnectorLimits(**settings.pop("limits"))
            config = ConnectorConfig(**settings, name=connection or name, limits=limits)
            of = connection or f"source-{name}"
            place, uploads = segments_folder(project.root, of), uploads_folder(project.root, of)
            salt = project.salt(connection) if connection else b""
            return ConnectorSource(config, str(place), store().connectors.of(connection), salt, str(uploads), on)
    raise ProjectError(f"source {name}: unknown type {settings.type!r}")


def cluster(project: Project, connection: str, start: Callable[[], SparkSession], into: Destination) -> Cluster | None:
    """Return the cluster that a connection's program runs on; None for this machine."""
    from instep.destinations.base import SharesStorage
    from instep.sources.connector.cluster.runner import cluster_of
    from instep.stage.files.place import StorageFolder

    if not project.works_elsewhere:
        return None
    room = into.room() if isinstance(into, SharesStorage) else None
    own = room and StorageFolder(room.child(quote(connection, safe="")), room.io)
    return cluster_of(start, own, connection)


def jars(said: Iterable[Any]) -> tuple[JarFile, ...]:
    """Return the jars of a JDBC driver."""
    from instep.sources.jdbc.config import JarFile

    return tuple(JarFile(jar.path, jar.maven, jar.sha256) for jar in said)


def destination(name: str, project: Project) -> Destination:
    settings = project.destination(name)
    match settings.type:
        case "delta":
            from instep.destinations.delta.destination import DeltaConfig, DeltaDestination

            return DeltaDestination(DeltaConfig(name=name, **settings))
        case "duckdb":
            from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination

            return DuckDbDestination(DuckDbConfig(name=name, **settings))
        case "iceberg":
            from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination

            return IcebergDestination(IcebergConfig(name=name, **settings))
        case "postgres":
            from instep.destinations.postgres.destination import PostgresDestination
            from instep.destinations.postgres.server import PostgresServerConfig as PostgresDestinationConfig

            return PostgresDestination(PostgresDestinationConfig(name=name, **settings))
    raise ProjectError(f"destination {name}: unknown type {settings.type!r}")


def channel(settings: Settings, guard: EgressGuard) -> Channel:
    match settings.type:
        case "email":
            from instep.notify.mail import EmailChannel, EmailConfig

            return EmailChannel(EmailConfig(**settings), guard)
        case "slack":
            from instep.notify.channel import PostChannel, PostConfig
            from instep.notify.slack import payload as blocks

            return PostChannel(PostConfig(**settings), guard, blocks)
        case "teams":
            from instep.notify.channel import PostChannel, PostConfig
            from instep.notify.teams import payload as card

            return PostChannel(PostConfig(**settings), guard, card)
        case "webhook":
            from instep.notify.webhook import WebhookChannel, WebhookConfig

            return WebhookChannel(WebhookConfig(**settings), guard)
        case "apprise":
            from instep.notify.other import AppriseChannel, AppriseConfig

            return AppriseChannel(AppriseConfig(**settings), guard)
    raise ProjectError(f"unknown type of channel {settings.type!r}")
