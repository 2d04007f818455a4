"""Every key of every object that an API can set: what it may lead to, and which values are refused.

A key without an entry is refused, and fails the tests. The project file is written by who owns the machine, and is
not held to any of this.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from instep.project.allowed.values import (
    apprise,
    catalog,
    catalog_properties,
    connector_environment,
    connector_file,
    connector_path,
    file,
    files,
    host,
    hosts,
    instep_yml_only,
    jdbc_database,
    jdbc_driver,
    jdbc_options,
    jdbc_path,
    jdbc_url,
    labels,
    mail_host,
    nothing,
    place,
    store_properties,
    subprotocol,
    url,
    warehouse,
)
from instep.project.sections import (
    airbyte,
    channels,
    connector,
    databases,
    detector,
    file_settings,
    jdbc,
    models,
    policies,
    reach,
    schedule,
    sources,
    tables,
)
from instep.project.sections.file_settings import Shelves
from instep.project.sections.values import Section
from instep.project.text.tree import Path

Refusals = Iterator[tuple[Path, str]]
Check = Callable[[Any, Any, Shelves], Refusals]


@dataclass(frozen=True)
class KeyReach:
    """Possible effects of a key, in the words of the docs' table."""

    words: str
    check: Check = nothing
    """Yields (place within the value, why) of what is refused, given the value, its section and the shelves."""
    address: bool = False
    """True if the value decides which server is sent the object's secrets, or how that server proves who it is."""


SETTING = KeyReach("nothing beside the object itself")
NAMES = KeyReach("names and patterns of tables, columns, objects; nothing is opened")
SECRET = KeyReach("sealed, shown to nobody; given to the server that the object names")
HOST = KeyReach("a server on any network, by TCP; no socket of this machine", host, address=True)
PORT = replace(SETTING, address=True)
TRUST = replace(SETTING, address=True)
SQL = KeyReach("one condition that the source's database evaluates with the source's login, read-only, over one table")
PUBLIC = KeyReach("a public address over TLS, or one that `egress` of instep.yml allows", url)
MAIL = KeyReach(PUBLIC.words, mail_host, address=True)
FILE = KeyReach("a file on a shelf", file)
TRUSTED = replace(FILE, address=True)
PLACE = KeyReach("a folder on a shelf, or a bucket (s3, gs, abfs)", place)
STORE = KeyReach("a bucket's address and login, by an allow-list of names", store_properties, address=True)
INSTEP_YML = KeyReach("refused: only instep.yml may set it", instep_yml_only)
PARTS = KeyReach("its own keys, below")


def _each(reach: KeyReach, names: str) -> dict[str, KeyReach]:
    return dict.fromkeys(names.split(), reach)


_LOGIN = {"host": HOST, "port": PORT, "database": NAMES, "user": NAMES, "password": SECRET}
_NOTICE = _each(NAMES, "on to severity kinds")

KEYS: Mapping[type[Section], Mapping[str, KeyReach]] = {
    databases.SourceSection: {"type": SETTING, "app_options": PARTS, "table_options": PARTS},
    detector.AppOptions: _each(NAMES, "enable_detect_schema_changes detect_schema_changes_frequency_in_seconds "
                                      "create_detect_schema_changes_ping_on_each_error "
                                      "propagate_table_creations_to_target_app auto_unsync_deleted_tables "
                                      "excluded_external_table_names excluded_external_table_names_regexes"),
    detector.ColumnOptions: _each(NAMES, "propagate_column_creations_to_target_app auto_unsync_deleted_columns "
                                         "excluded_external_column_names excluded_external_column_names_regexes"),
    reach.ServerSection: {
        "tls": PARTS, "ssh": PARTS, "application_name": NAMES,
        "read_replica": KeyReach("servers on any network, by TCP", hosts, address=True),
        **_each(SETTING, "statement_timeout max_connections rows_per_second"),
    },
    reach.Tls: {"mode": TRUST, "ca": TRUSTED, "cert": FILE, "key": SECRET},
    reach.SshSection: {
        "host": HOST, "port": PORT, "user": NAMES, "known_hosts": TRUSTED, "host_key": TRUST,
        "key": KeyReach("sealed; without it the ssh-agent and the keys in ~/.ssh of the worker's account"),
    },
    databases.SelectiveSourceSection: {"include": NAMES, "exclude": NAMES},
    databases.DatabaseSection: {**_LOGIN, "connect_timeout": SETTING, "read_timeout": SETTING},
    databases.PostgresSourceSection: {
        "options": KeyReach("settings of the source's own session, which libpq hands to the server"),
    },
    databases.MySqlSourceSection: {"table_connections": SETTING},
    sources.SqliteSourceSection: {"path": FILE, "timeout": SETTING},
    sources.FilesSourceSection: {
        "path": PLACE, "tables": NAMES, "options": PARTS, "metadata": SETTING, "properties": STORE, "settle": SETTING,
    },
    file_settings.FileOptions: _each(SETTING, "format delimiter quote escape header encoding nulls types key skip"),
    jdbc.JdbcServer: {
        "subprotocol": KeyReach("databases that are known here", subprotocol, address=True),
        "url": KeyReach("a server of a database that is known here, by TCP; no file, no directory service", jdbc_url,
                     address=True),
        "host": HOST, "port": PORT, "user": NAMES, "password": SECRET, "schemas": NAMES,
        "database": KeyReach("a database of that server; of SQLite a file on a shelf", jdbc_database),
        "driver": KeyReach("the driver's class of a database that is known here, and no other", jdbc_driver),
        "jars": PARTS,
        "options": KeyReach("the driver's options, by an allow-list that has none that name files", jdbc_options,
                         address=True),
        "partition_columns": NAMES,
        **_each(SETTING, "fetch_size partitions connect_timeout query_timeout max_connections rows_per_second"),
    },
    jdbc.JdbcJar: {
        "path": KeyReach("code: a jar below `drivers/` of the project", jdbc_path), "maven": INSTEP_YML,
        "sha256": SETTING,
    },
    connector.ConnectorServer: {
        "path": KeyReach("code: a folder below `connectors/` of the project", connector_path, address=True),
        "configuration": KeyReach(
            "texts that the connector is given; what looks like a secret is sealed", address=True),
        "configuration_file": KeyReach("a file in the connector's own folder", connector_file),
        "python": INSTEP_YML, "environments": INSTEP_YML, "sandbox": SETTING, "keep_invalid_values": NAMES,
        "limits": PARTS,
        "environment": KeyReach("variables of the connector's process that choose no code", connector_environment,
                             address=True),
    },
    airbyte.AirbyteServer: {
        **_each(INSTEP_YML, "package command manifest custom_code metadata python environments environment"),
        "configuration": KeyReach(
            "what the connector is given; what looks like a secret is sealed", address=True),
        "sandbox": SETTING, "flatten": NAMES, "limits": PARTS,
    },
    connector.ConnectorLimits: _each(SETTING, "time silence memory file checkpoints ahead"),
    models.DestinationSection: {
        "namespace": NAMES, "prefix": NAMES, "properties": STORE, "quarantine_days": SETTING, "undo_days": SETTING,
    },
    models.IcebergDestinationSection: {
        "type": SETTING, "upsert_rows": SETTING,
        "warehouse": KeyReach("a folder on a shelf, or a bucket; a bucket under any catalog but `sqlite`", warehouse),
        "catalog": KeyReach("`sqlite`, `glue`, or a REST catalog: a server on any network, by HTTP", catalog,
                         address=True),
        "properties": KeyReach(
            "the catalog's and bucket's addresses and logins, by an allow-list of names; the file of a "
                            "`sqlite` catalog on a shelf", catalog_properties, address=True),
    },
    models.DuckDbDestinationSection: {
        "type": SETTING, "path": FILE, "staging": PLACE, "lock_timeout": SETTING,
    },
    models.PostgresDestinationSection: {
        "type": SETTING, **_LOGIN, "tls": PARTS, "staging": PLACE,
        **_each(SETTING, "connect_timeout read_timeout lock_timeout statement_timeout copy_rows"),
    },
    models.DeltaDestinationSection: {"type": SETTING, "warehouse": PLACE, "upsert_rows": SETTING},
    policies.ModifierSection: _each(SETTING, "backfill removed on_invalid_value rename_threshold"),
    policies.OverrideSection: {"preset": SETTING, "rules": PARTS},
    policies.RuleSection: {"on": NAMES, "decide": SETTING, "match": NAMES, "tags": NAMES},
    channels.ChannelSection: {"type": SETTING, **_each(SETTING, "digest quiet timezone timeout")},
    channels.EmailChannelSection: {
        "to": NAMES, "sender": NAMES, "host": MAIL, "port": PORT, "tls": TRUST, "user": NAMES, "password": SECRET,
        "ca": TRUSTED,
    },
    channels.PostChannelSection: {"url": PUBLIC},
    channels.WebhookChannelSection: {"url": PUBLIC, "secret": SECRET, "former_secret": SECRET, "ca": FILE},
    channels.AppriseChannelSection: {
        "url": KeyReach("a service of a list of those that name no file and no program", apprise)},
    models.ConnectionSection: {
        **_each(NAMES, "source destination policy namespace shard tags hash"),
        **_each(SETTING, "schema_change_handling detect_and_propagate_schema_changes backfill mode "
                         "notify_schema_changes max_new_columns keep_old_names freshness types"),
        **_each(PARTS, "app_options table_options include exclude protect tables detect schedule notify downstream "
                       "log backfill_limits maintain"),
        "salt": SECRET,
    },
    tables.TableSettings: {
        **_each(SETTING, "mode lookback deletes keep_old_names freshness history types enabled"),
        **_each(NAMES, "cursor key name columns sort partition"), "filter": SQL,
        "properties": KeyReach("labels, and properties of Iceberg tables by an allow-list: no code, no place", labels),
    },
    models.Include: {"tables": NAMES},
    models.Exclude: {"tables": NAMES, "columns": NAMES},
    models.Detect: _each(SETTING, "before_sync min_interval"),
    models.Schedule: _each(SETTING, "detect sync timezone"),
    models.DownstreamSection: {"manifest": FILE,
        "sql": KeyReach("folders and files on a shelf", files), "dialect": SETTING},
    models.ProtectSection: _each(NAMES, "mode names values sample allow"),
    models.LogSection: {"slot": NAMES, "publication": NAMES},
    schedule.BackfillSection: _each(SETTING, "max_bytes max_minutes window timezone"),
    schedule.MaintainSection: _each(SETTING, "target_file_size min_files delete_ratio keep_snapshots max_snapshot_age "
                                           "orphan_age after_sync max_minutes"),
    channels.Notify: _NOTICE,
}  # fmt: skip


_CALLED = re.compile(
    r"(?i)host|(^|_)port$|ur[il]|endpoint|server|domain|account|site|address|(^|_)base(_|$)"
    r"|ssl|tls|encrypt|trust|verif|certificate|proxy"
)
_LOOKS = re.compile(
    r"(?i)://|[\w-]\.[^\W\d_]{2,}|localhost|::|\[[0-9a-f]*:"
    r"|\d+\.\d+\.\d+|(?<![\w:.-])(\d+\.\d{3,}|\d{8,})(?![\w-])|(?<!\w)0x[0-9a-f]"
)
"""Names and texts within a mapping that name a server, or say how it proves who it is. An IPv4 address may have fewer
than four parts, and numbers of other bases."""
_DOTS = {ord("\u3002"): "."}
"""Characters that names of hosts may have for a dot, beside those that Unicode itself maps to one."""


def reach_of(section: type[Section], key: str) -> KeyReach | None:
    """Return what a key of a section can reach; None for one without an entry."""
    reaches = (KEYS[cls][key] for cls in section.__mro__ if cls in KEYS and key in KEYS[cls])
    return next(reaches, None)


def refusals(section: Section, shelves: Shelves, path: Path = ()) -> Refusals:
    """Yield (place, why) of what an API may not say, in a section whose references are resolved."""
    for key, field in type(section).model_fields.items():
        value, rule = getattr(section, key), reach_of(type(section), key)
        if rule is None:
            yield (*path, key), "cannot be set through an API: its reach is not declared"
            continue
        if value != field.default:  # the product's own places are not the API's word
            yield from (((*path, key, *place), why) for place, why in rule.check(value, section, shelves))
        yield from _inner(value, shelves, (*path, key))


def _inner(value: Any, shelves: Shelves, path: Path) -> Refusals:
    if isinstance(value, Section):
        yield from refusals(value, shelves, path)
    elif isinstance(value, dict | tuple):
        for at, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _inner(item, shelves, (*path, at))


def addresses(section: Section, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield (place, text) of what decides which servers are sent the secrets of a section, and what proves who they
    are: of a mapping, what is called so or looks like an address."""
    for key in type(section).model_fields:
        value, rule = getattr(section, key), reach_of(type(section), key)
        if isinstance(value, Section):
            yield from addresses(value, (*path, key))
        elif rule is not None and rule.address and isinstance(value, dict):
            yield from (((*path, key, name), str(text)) for name, text in value.items() if is_address(name, str(text)))
        elif rule is not None and rule.address:
            yield (*path, key), str(value)


def is_address(name: str, text: str) -> bool:
    """Return whether a value within a mapping names a server or proves it, by what it is called and how it looks to a
    program that reads it as an address."""
    plain = unicodedata.normalize("NFKC", text).translate(_DOTS)
    plain = "".join(c for c in plain if not unicodedata.category(c).startswith("C"))
    return _CALLED.search(name) is not None or _LOOKS.search(plain) is not None
