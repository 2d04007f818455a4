"""Catalog of a lake's tables: the shared SQLite file of a local lake, or any other pyiceberg catalog."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from instep.destinations.base import Ref
from instep.destinations.connection_test import check_writable, has_space, is_writable
from instep.destinations.iceberg.metadata.catalog_database import address, jdbc_properties
from instep.errors import ConnectError, DestinationError, InstepError, SetupError
from instep.project.sections.models import IcebergDestinationSection
from instep.spark.jars import ADLS_IO, S3_IO
from instep.sqlite_wal import use_wal
from instep.stage.files.buckets import AZURE, S3, account_of, azure_endpoint
from instep.stage.files.names import LOCAL_FILES
from instep.stage.files.object_store import ObjectPath, is_object

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from instep.spark.merge import MergeSettings


CATALOGS: Mapping[str, str] = {"rest": "pyiceberg", "sql": "sqlalchemy", "hive": "thrift", "glue": "boto3"}
"""The kinds of catalogs beside our own SQLite file, and the package that each needs."""


def for_java(warehouse: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return what Spark's catalog needs beside `properties`, login included; nothing for a folder. Tables in buckets
    are read and written by Iceberg's own file systems, without Hadoop's."""
    scheme, _, path = warehouse.partition("://")
    if scheme in AZURE:
        out = _azure_for_java(path.partition("/")[0], properties)
    elif scheme in S3 or "s3.endpoint" in properties:
        out = _s3_for_java(scheme in S3, properties)
    else:
        out = {}
    return {k: v for k, v in out.items() if k not in properties}


def _s3_for_java(whole: bool, properties: Mapping[str, str]) -> dict[str, str]:
    out = {"io-impl": S3_IO} if whole else {}
    if region := properties.get("s3.region") or properties.get("client.region"):
        out["client.region"] = region
    if "s3.endpoint" in properties:
        virtual = properties.get("s3.force-virtual-addressing", "").casefold() == "true"
        out["s3.path-style-access"] = "false" if virtual else "true"
    return out


def _azure_for_java(netloc: str, properties: Mapping[str, str]) -> dict[str, str]:
    if "@" not in netloc:
        return {}  # what Iceberg reads of a URI has the account's host
    _, account = account_of(netloc, properties)
    host, out = netloc.partition("@")[2], {"io-impl": ADLS_IO}
    if key := properties.get("adls.account-key"):
        out |= {"adls.auth.shared-key.account.name": account, "adls.auth.shared-key.account.key": key}
    if token := properties.get("adls.sas-token"):
        out[f"adls.sas-token.{host}"] = token
    if endpoint := azure_endpoint(account, properties):
        out[f"adls.connection-string.{host}"] = endpoint
    return out


def _names_s3(properties: Mapping[str, str]) -> bool:
    return any(name.startswith(("s3.", "client.")) for name in properties)


_BUSY_SECONDS = 60.0
Metadata = Mapping[str, Any]

FEW = 20
VIEW = "instep.view"
"""The property of a view that is ours: what it shows, as JSON."""
_SECRET = re.compile(r"secret|password|credential|token|key|connection-string|authorization|cookie", re.IGNORECASE)
LAYOUT = """
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL,
    property_value VARCHAR(1000) NOT NULL, PRIMARY KEY (catalog_name, namespace, property_key));
"""


class IcebergConfig(IcebergDestinationSection):
    """An Iceberg lake under the `name` that the project file has for it.

    Without `local_files` a catalog's server cannot lead to files of this machine.
    """

    type: Literal["iceberg"] = "iceberg"
    name: str
    local_files: bool = True


@dataclass
class DeferredCreates:
    """Tables that wait for their first rows while it is `open` (see commit/deferred_create.py).

    `abandoned`: names of folders by namespace that earlier processes left. `described`: the metadata of each as JSON.
    `namespaces`: those that are known to be there.
    """

    open: bool = False
    deferred: dict[Ref, Table] = field(default_factory=dict)
    described: dict[Ref, dict[str, Any]] = field(default_factory=dict)
    abandoned: dict[str, list[str]] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)

    def wait(self, ref: Ref, table: Table) -> None:
        self.deferred[ref] = table
        self.described[ref] = json.loads(table.metadata.model_dump_json())

    def leave(self, ref: Ref) -> None:
        self.deferred.pop(ref, None)
        self.described.pop(ref, None)

    def end(self) -> None:
        self.open = False
        for cache in (self.deferred, self.described, self.abandoned, self.namespaces):
            cache.clear()


@dataclass(frozen=True)
class Lake:
    """The catalog of an `IcebergConfig`; opened when it is first needed, made when it is first written to."""

    config: IcebergConfig
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _namespaces: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _parsed: dict[str, Metadata] = field(default_factory=dict, repr=False, compare=False)
    deferred_creates: DeferredCreates = field(default_factory=DeferredCreates, repr=False, compare=False)

    @cached_property
    def warehouse(self) -> str:
        """The warehouse as a URI without a slash at its end."""
        if "://" in self.config.warehouse:
            return self.config.warehouse.rstrip("/")
        folder = str(Path(self.config.warehouse).expanduser().resolve())
        if set("%?#") & set(folder):
            raise DestinationError(
                f"lake {self.config.name}: the warehouse folder {folder} has one of % ? # in its path, which file "
                "URIs cannot carry unchanged from Python to Spark",
                hint="choose another folder",
            )
        return f"file://{folder}"

    @property
    def is_sqlite(self) -> bool:
        return self.config.catalog_type == "sqlite"

    @property
    def holds_views(self) -> bool:
        """True if the catalog and its files are local: see iceberg/evolve/views.py."""
        return self.is_sqlite and self.warehouse.startswith("file://")

    @cached_property
    def database(self) -> Path:
        """The SQLite file of a sqlite catalog."""
        if uri := self.config.catalog_properties.get("uri"):
            return Path(uri.removeprefix("sqlite:///").split("?")[0])
        if not self.warehouse.startswith("file://"):
            raise DestinationError(
                f"lake {self.config.name}: a sqlite catalog needs a place beside the warehouse {self.warehouse}",
                hint="set the property uri to a local file, or use a REST catalog",
            )
        return local_path(self.warehouse) / "catalog.db"

    @cached_property
    def name(self) -> str:
        """The name that the catalog's rows are under: that of the lake, or of the one that made the file."""
        if not self.is_sqlite:
            return self.config.name
        self._make()
        with self.open_database() as db:
            names = [row[0] for row in db.execute("SELECT DISTINCT catalog_name FROM iceberg_tables")]
        return names[0] if len(names) == 1 else self.config.name

    @property
    def staging(self) -> str:
        """The namespace of staging tables."""
        return f"{self.config.prefix}staging"

    @property
    def dropped(self) -> str:
        """The namespace where dropped tables wait."""
        return f"{self.config.prefix}dropped"

    @property
    def catalog(self) -> Catalog:
        with self._lock:
            return self._catalog

    @cached_property
    def _catalog(self) -> Catalog:
        from instep.stage.files.pyiceberg_code import guarded, open_catalog

        if self.is_sqlite:
            from instep.destinations.iceberg.metadata.sqlite_catalog import SqliteCatalog

            place = f"{self._read_only_uri}&uri=true&" if self._is_read_only else f"{self.database}?"
            uri = f"sqlite:///{place}timeout=60"
            options = {k: v for k, v in self.config.catalog_properties.items() if k != "uri"}
            catalog = SqliteCatalog(self.name, **{**options, **self._reach, "uri": uri, "warehouse": self.warehouse})
            return guarded(catalog, options, local_files=self.config.local_files)

        kind, properties = self.config.catalog_type, self.config.catalog_properties
        check_library(self.config.name, kind)
        if kind == "sql":
            address(self.config.name, properties.get("uri", ""))
        try:
            properties = {**properties, "type": kind, "warehouse": self.config.warehouse}
            return open_catalog(self.config.name, properties, local_files=self.config.local_files)
        except InstepError:
            raise
        except Exception as error:
            raise ConnectError(
                f"lake {self.config.name}: the {kind} catalog does not answer: {type(error).__name__}",
                hint="check the catalog's uri and credentials with `instep destination test`",
            ) from error

    def _make(self) -> None:
        """Make the SQLite catalog where there is nothing; refuses a folder that holds something else. One that may
        not be written stays as it is: it can be read."""
        exists = self.exists()
        if exists and self._is_read_only:
            return
        self.check_writable()
        if not exists:
            self.database.parent.mkdir(parents=True, exist_ok=True)
        with self.open_database() as db, db:
            use_wal(db.execute, _BUSY_SECONDS)
            db.executescript(LAYOUT)
            if not any(row[1] == "iceberg_type" for row in db.execute("PRAGMA table_info(iceberg_tables)")):
                db.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)")

    def check_writable(self) -> None:
        """Raise ConnectError if the catalog's file or the tables' folder may not be written; of another catalog its
        server knows."""
        if self.is_sqlite:
            tables = (local_path(self.warehouse),) if self.warehouse.startswith("file://") else ()
            check_writable(self.config.name, self.database.parent, self.database, *tables)

    def has_space(self) -> bool:
        """Return whether the catalog's file and the tables' folder can grow, as far as they are on this machine."""
        tables = (local_path(self.warehouse),) if self.warehouse.startswith("file://") else ()
        return has_space(*tables, *((self.database.parent,) if self.is_sqlite else ()))

    @property
    def _is_read_only(self) -> bool:
        """Return True if the catalog's file is there and may not be written."""
        return self.database.exists() and not (is_writable(self.database) and is_writable(self.database.parent))

    @property
    def _read_only_uri(self) -> str:
        """Return the catalog's file as SQLite opens it to read. One without a write-ahead log is read as what nobody
        changes, because SQLite has no place for the index of a log then."""
        log = self.database.with_name(f"{self.database.name}-wal")
        return f"file:{quote(str(self.database))}?mode=ro{'' if log.exists() else '&immutable=1'}"

    @contextmanager
    def open_database(self) -> Iterator[sqlite3.Connection]:
        """Open the catalog's file; raises ConnectError if it cannot be opened, read or written. Where pyiceberg's
        catalog is open, one of its connections is taken, which knows the file already."""
        try:
            if (catalog := self.__dict__.get("_catalog")) is not None:
                with catalog.database() as db:
                    yield db
                return
            read_only = self._is_read_only
            place = self._read_only_uri if read_only else self.database
            with closing(sqlite3.connect(place, timeout=_BUSY_SECONDS, uri=read_only)) as db:
                yield db
        except sqlite3.Error as error:
            raise ConnectError(
                f"lake {self.config.name}: the catalog {self.database} cannot be used: {error}",
                hint="check the disk, and that this user may write to the file and its folder",
            ) from error

    def exists(self) -> bool:
        """Return whether the catalog is there; DestinationError if something that is not ours is in its place."""
        if not self.is_sqlite or "_catalog" in self.__dict__:
            return True
        if not self.database.exists():
            problem = self._foreign_content()
            if problem is not None and not self.database.exists():  # another process may have made it meanwhile
                raise problem
            if problem is None:
                return False
        if not self._is_read_only and not _is_catalog(self.database):
            raise DestinationError(
                f"lake {self.config.name}: {self.database} is not an Iceberg catalog",
                hint="choose another folder for the warehouse",
            )
        return True

    def _foreign_content(self) -> DestinationError | None:
        """Return the error that the warehouse holds something, if it does; without its catalog that is not ours."""
        folder = local_path(self.warehouse)
        if self.warehouse.startswith("file://") and folder.exists() and not _is_empty_folder(folder):
            return DestinationError(
                f"lake {self.config.name}: {folder} is not empty and holds no catalog of ours",
                hint="choose an empty folder, or the folder that an earlier lake was made in",
            )
        if is_object(self.warehouse) and ObjectPath(self.warehouse, self.io()).is_dir():
            return DestinationError(
                f"lake {self.config.name}: {self.warehouse} is not empty, and its catalog {self.database} is not here",
                hint="move the catalog's file to that path (property uri), or choose an empty place",
            )
        return None

    def ensure_namespace(self, namespace: str) -> None:
        """Create the namespace if it is missing. Threads of this process take turns; another process may have
        created it first. While tables wait for their rows, each namespace is looked up once."""
        with self._namespaces:
            if namespace in self.deferred_creates.namespaces:
                return
            self._ensure_namespace(namespace)
            if self.deferred_creates.open:
                self.deferred_creates.namespaces.add(namespace)

    def _ensure_namespace(self, namespace: str) -> None:
        from pyiceberg.exceptions import NamespaceAlreadyExistsError

        if self.catalog.namespace_exists((namespace,)):
            return
        self.check_writable()
        try:
            self.catalog.create_namespace((namespace,))
        except NamespaceAlreadyExistsError:
            return
        except Exception:
            if not self.catalog.namespace_exists((namespace,)):
                raise

    def load(self, ref: Ref) -> Table | None:
        """Return the table with its newest metadata; None if there is none."""
        from pyiceberg.exceptions import NoSuchTableError

        if ref in self.deferred_creates.deferred:
            return self.deferred_creates.deferred[ref]
        if not self.exists():
            return None
        try:
            return self.catalog.load_table(ref)
        except NoSuchTableError:
            return None

    def drop_table(self, ref: Ref) -> None:
        """Drop a table of ours with its metadata; its data files go with it. One that is gone already is fine."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            location = self.catalog.load_table(ref).location()
            self.catalog.purge_table(ref)
        except NoSuchTableError:
            return
        self.remove_folder(location)

    def remove_folder(self, location: str) -> None:
        """Delete a folder of a table or view below the warehouse, if that is local. Another writer of the catalog, or
        its server, may have named any other place: nothing is deleted there."""
        if not (location.startswith("file:") and self.warehouse.startswith("file:")):
            return
        folder, warehouse = local_path(location).resolve(), local_path(self.warehouse).resolve()
        if warehouse in folder.parent.parents:  # it is in the folder of a namespace
            shutil.rmtree(folder, ignore_errors=True)

    def metadata(self, refs: Iterable[Ref]) -> dict[Ref, Metadata]:
        """Return the newest metadata of those of `refs` that exist, as JSON; no pyiceberg for a local lake. Views of
        ours are none of them, those of others are."""
        requested = list(refs)
        deferred: dict[Ref, Metadata] = {
            ref: self.deferred_creates.described[ref] for ref in requested if ref in self.deferred_creates.described
        }
        return deferred | self._recorded([ref for ref in requested if ref not in deferred])

    def _recorded(self, requested: Sequence[Ref]) -> dict[Ref, Metadata]:
        """Return the metadata of those tables that the catalog has."""
        if not self.exists():
            return {}
        if not (self.is_sqlite and self.warehouse.startswith("file://")):
            with ThreadPoolExecutor(8) as pool:
                tables = pool.map(self.load, requested)
            return {r: json.loads(t.metadata.model_dump_json()) for r, t in zip(requested, tables, strict=True) if t}
        pointers = self._pointers(requested)
        parsed = {ref: self.parse(pointers[ref]) for ref in requested if ref in pointers}
        return {ref: metadata for ref, metadata in parsed.items() if VIEW not in metadata.get("properties", {})}

    def _pointers(self, refs: Sequence[Ref] = ()) -> dict[Ref, str]:
        """Return where the metadata of each table is; of a few `refs` only those are looked up, of many all are
        read."""
        sql = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?"
        named = refs if len(refs) <= FEW else ()
        with self.open_database() as db:
            parts = [db.execute(f"{sql} AND table_namespace = ? AND table_name = ?", (self.name, *r)) for r in named]
            rows = [row for part in parts for row in part] if named else db.execute(sql, (self.name,)).fetchall()
        return {(row[0], row[1]): row[2] for row in rows}

    def parse(self, location: str) -> Metadata:
        """Parse a metadata file; they never change, so results are cached."""
        if location not in self._parsed:
            if len(self._parsed) > 2000:
                self._parsed.clear()
            self._parsed[location] = json.loads(local_path(location).read_bytes())
        return self._parsed[location]

    def names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's tables; none for a namespace that does not exist."""
        from pyiceberg.exceptions import NoSuchNamespaceError

        from instep.destinations.iceberg.metadata.sqlite_catalog import SqliteCatalog

        if isinstance(self.catalog, SqliteCatalog):
            return self.catalog.table_names(namespace)
        with _ignored(NoSuchNamespaceError):
            return [identifier[-1] for identifier in self.catalog.list_tables((namespace,))]
        return []

    def refs(self) -> list[Ref]:
        """Return every table that the catalog lists."""
        if not self.exists():
            return []
        if self.is_sqlite:
            return list(self._pointers())
        return [(ns[0], name) for ns in self.catalog.list_namespaces() for name in self.names(ns[0])]

    def io(self) -> dict[str, str]:
        """Return the properties by which tasks reach the warehouse; nothing for a local folder."""
        if self.warehouse.startswith("file://"):
            return {}
        catalog = ("uri", "credential", "token", "warehouse", "type")
        return {k: v for k, v in self.config.catalog_properties.items() if k not in catalog} | self._reach

    @property
    def _reach(self) -> dict[str, str]:
        return {} if self.config.local_files else {LOCAL_FILES: "false"}

    def place_of(self, namespace: str) -> str:
        """Return where the folders of a namespace's tables are."""
        return f"{self.warehouse}/{_plain(namespace)}"

    def new_location(self, ref: Ref) -> str:
        """Return a new folder for every table ever made: names come back, folders do not."""
        return f"{self.place_of(ref[0])}/{_plain(ref[1])}-{uuid.uuid4().hex[:12]}"

    def redacted(self, message: str) -> str:
        """Return the message of a foreign library without the values of secret properties."""
        for value in (v for k, v in self.config.catalog_properties.items() if v and _SECRET.search(k)):
            message = message.replace(value, "***")
        return message

    @property
    def is_for_spark(self) -> bool:
        """Return whether Spark may open the catalog. In Spark, what a REST catalog's server answers names files,
        classes and hosts, which nothing checks there."""
        return self.config.local_files or self.config.catalog_type != "rest"

    @property
    def spark_settings(self) -> MergeSettings:
        """Return the settings by which a session of Spark opens the same catalog."""
        from instep.spark.merge import MergeSettings

        return MergeSettings(self.spark_conf(), self.spark_secrets(), str(self.database) if self.is_sqlite else "")

    def spark_conf(self) -> dict[str, str]:
        """Return Spark's settings for the same catalog, without secrets."""
        if not self.is_for_spark:
            raise DestinationError(
                f"lake {self.config.name}: Spark does not open a REST catalog that an API has set: its server could "
                "name code and files",
                hint="describe the destination in instep.yml",
            )
        conf = {"": "org.apache.iceberg.spark.SparkCatalog", ".cache-enabled": "false"}
        if self.is_sqlite:
            conf |= {
                ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
                ".uri": f"jdbc:sqlite:{self.database}?busy_timeout=60000&synchronous=NORMAL",
                ".jdbc.schema-version": "V1",
                ".warehouse": self.warehouse,
            }
        else:
            kind = "jdbc" if self.config.catalog_type == "sql" else self.config.catalog_type
            conf |= {".type": kind, ".warehouse": self.config.warehouse}
        plain = {k: v for k, v in self._spark_properties.items() if not _SECRET.search(k)}
        if self.is_sqlite:
            plain.pop("uri", None)
        conf |= {f".{k}": v for k, v in plain.items()}
        return {f"spark.sql.catalog.{self.name}{k}": v for k, v in conf.items()}

    def spark_file_code(self) -> dict[str, str]:
        """Return the setting by which a session gets the jar for files in S3, if some may be there: the place of a
        table may be known to the catalog's server alone."""
        near = self.warehouse if "://" in self.config.warehouse else "s3://" if _names_s3(self.io()) else ""
        if (code := for_java(near, {}).get("io-impl")) != S3_IO:
            return {}
        return {f"spark.sql.catalog.{self.name}.io-impl": code}

    def spark_files(self, catalog: str, location: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the settings by which another catalog of Spark reaches the files at a location: plain ones, and
        secret ones."""
        own = {k: v for k, v in self.io().items() if k != LOCAL_FILES}
        own |= for_java(location, own)
        names = {k: f"spark.sql.catalog.{catalog}.{k}" for k in own}
        secret = {names[k]: v for k, v in own.items() if _SECRET.search(k)}
        return {names[k]: v for k, v in own.items() if names[k] not in secret}, secret

    def spark_secrets(self) -> dict[str, str]:
        """Return the secret part, for the one Spark session of a merge (`newSession`), while it opens its
        catalog, and never for the context: so it is in no environment page and no event log."""
        secret = {k: v for k, v in self._spark_properties.items() if _SECRET.search(k)}
        return {f"spark.sql.catalog.{self.name}.{k}": v for k, v in secret.items()}

    @property
    def _spark_properties(self) -> Mapping[str, str]:
        """Return the properties as Spark's catalog calls them: the login of a database is not a part of its URI."""
        properties = {**self.config.catalog_properties}
        properties |= for_java(self.warehouse, properties)
        if self.config.catalog_type != "sql" or "uri" not in properties:
            return properties
        return {**properties, **jdbc_properties(self.config.name, properties["uri"])}


def check_library(lake: str, catalog: str) -> None:
    """Raise SetupError for a kind of catalog that is not known, or whose library is not installed."""
    if catalog not in CATALOGS:
        raise SetupError(
            f"lake {lake}: {catalog} is not a kind of catalog",
            hint=f"catalog is one of sqlite, {', '.join(CATALOGS)}, or the URI of a REST catalog",
        )
    if find_spec(CATALOGS[catalog]) is None:
        raise SetupError(
            f"lake {lake}: the {catalog} catalog needs the package {CATALOGS[catalog]}",
            hint=f"pip install 'instep[{catalog}]'",
        )


class LakeFacet:
    """Base of the destination's facets: the lake as a connection has it."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake


def local_path(uri: str) -> Path:
    """Return the path of a file URI, whose two spellings (pyiceberg's and Hadoop's) both occur in one table."""
    return Path(uri.removeprefix("file:").removeprefix("//"))


def _plain(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", part)[:60]


def _is_empty_folder(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _is_catalog(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(file, timeout=60)) as db:
            names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError:
        return False
    return not names or "iceberg_tables" in names


@contextmanager
def _ignored(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error:
        return
