"""pyiceberg without its way of loading code by name.

Properties of catalogs and tables, and answers of catalog servers, may name a class that pyiceberg imports and calls.
Here the classes of its own file systems are known, and any other name is refused: whoever opens a catalog or a file of
a table imports these functions, which stand in the place of pyiceberg's. So do those for containers of Azure, of whose
names pyiceberg knows one form. Nor do they send a login to a host that the destination itself does not name.

Files of object stores alone: for tables of catalogs whose word is not trusted with files of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pyiceberg.catalog
from pyarrow.fs import FileSystem
from pyiceberg.io import FileIO, load_file_io, pyarrow
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import locations
from pyiceberg.typedef import EMPTY_DICT

from instep.egress.guard import BUCKETS
from instep.errors import DestinationError
from instep.stage.files.buckets import AZURE, AZURE_HOSTS, azure_filesystem, container_path
from instep.stage.files.names import LOCAL_FILES

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


def refuse_local(uri: str) -> None:
    """Raise DestinationError for what is in no bucket."""
    _check(uri.partition("://")[0] if "://" in uri else "file")


def _check(scheme: str) -> None:
    if scheme not in BUCKETS:
        raise DestinationError(
            f"the catalog names a file of {scheme}://, and its destination comes from an API",
            hint="keep the table in a bucket, or describe the destination in instep.yml",
        )


class BucketFileIO(PyArrowFileIO):
    """pyiceberg's own file system, also of storage accounts that only the URI names."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme in AZURE:
            return azure_filesystem(netloc or "", self.properties)
        return super()._initialize_fs(scheme, netloc)


class RemoteFileIO(BucketFileIO):
    """The same, which opens nothing of this machine."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        _check(scheme)
        return super()._initialize_fs(scheme, netloc)


_OWN = frozenset({pyiceberg.io.ARROW_FILE_IO, pyiceberg.io.FSSPEC_FILE_IO})
_PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
_parse_own = PyArrowFileIO.parse_location
C = TypeVar("C", bound="Catalog")


def _import_file_io(io_impl: str, properties: dict[str, Any]) -> FileIO | None:
    if io_impl not in _OWN:
        raise _refused("py-io-impl", io_impl)
    return _arrow(properties)  # also of Azure, for which pyiceberg would import adlfs


def _arrow(properties: dict[str, str]) -> FileIO:
    remote = properties.get(LOCAL_FILES) == "false"
    return RemoteFileIO(properties) if remote else BucketFileIO(properties)


def _parse_location(location: str, properties: dict[str, Any] = EMPTY_DICT) -> tuple[str, str, str]:
    """Return scheme, bucket and path; pyiceberg's own leaves the account of `CONTAINER@ACCOUNT` in the path, where
    pyarrow expects the container."""
    scheme, netloc, path = _parse_own(location, properties)
    return (scheme, netloc, container_path(netloc) + path[len(netloc) :]) if scheme in AZURE else (scheme, netloc, path)


_HOSTS = ("gcs.service.host", *AZURE_HOSTS, "adls.account-host", "s3.proxy-uri")
"""Properties that lead a login elsewhere than to the store that it is for. A signature, as S3 has it, is of use to
nobody; a token is."""


def _refuse_retry(impl: str) -> Any:
    raise _refused("s3.retry-strategy-impl", impl)


def _refuse_locations(location_provider_impl: str, table_location: str, table_properties: dict[str, Any]) -> Any:
    raise _refused("write.py-location-provider.impl", location_provider_impl)


def _refuse_catalog(name: str, catalog_impl: str, properties: dict[str, Any]) -> Any:
    raise _refused("py-catalog-impl", catalog_impl)


def _refused(name: str, value: str) -> DestinationError:
    return DestinationError(
        f"the property {name} names code, {value[:100]!r}, which is not loaded",
        hint="take it off the destination, the table or the catalog's server, whichever sets it",
    )


pyiceberg.io._import_file_io = _import_file_io
PyArrowFileIO.parse_location = staticmethod(_parse_location)  # type: ignore[method-assign]
pyarrow._import_retry_strategy = _refuse_retry
locations._import_location_provider = _refuse_locations
pyiceberg.catalog._import_catalog = _refuse_catalog


def open_catalog(name: str, properties: dict[str, str], *, local_files: bool) -> Catalog:
    """Return pyiceberg's catalog of these properties. Without `local_files` no table of it is on this machine, whatever
    its server says."""
    if properties.get("type") == "rest":
        _known_logins_only()
    catalog: Any = pyiceberg.catalog.load_catalog(name, **properties)
    if properties.get("type") == "sql":
        from sqlalchemy import NullPool, create_engine

        catalog.engine.dispose()  # its pool would hold connections of the database for as long as this process runs
        catalog.engine = create_engine(properties["uri"], poolclass=NullPool)
    opened: Catalog = guarded(catalog, properties, local_files=local_files)
    return opened


def guarded(catalog: C, own: Mapping[str, str], *, local_files: bool) -> C:
    """Return the catalog of a destination with the properties `own`, which keeps to what those say."""
    return _with_own_hosts(catalog if local_files else confined(catalog), own)


def _with_own_hosts(catalog: C, own: Mapping[str, str]) -> C:
    """Return the catalog, which from now on opens no file by a host that its server or a table names, and `own`, the
    properties of the destination, do not."""
    load = catalog._load_file_io

    def checked(properties: Any = EMPTY_DICT, location: str | None = None) -> FileIO:
        merged = {**catalog.properties, **properties}
        for name in _HOSTS:
            if (host := merged.get(name)) and host != own.get(name):
                raise DestinationError(
                    f"the catalog's server, or a table, sets {name} to {str(host)[:100]!r}: a login would go there",
                    hint=f"set {name} on the destination in instep.yml if that is right, or take it off the server",
                )
        return load(properties, location)

    catalog._load_file_io = checked  # type: ignore[method-assign]
    return catalog


def confined(catalog: C) -> C:
    """Return the catalog, which from now on opens no file of this machine, and no table that says it lies there."""
    load, load_table = catalog._load_file_io, catalog.load_table

    def remote(properties: Any = EMPTY_DICT, location: str | None = None) -> FileIO:
        return load({**properties, LOCAL_FILES: "false"}, location)

    def elsewhere(identifier: Any) -> Table:
        table = load_table(identifier)
        places = [table.metadata_location, table.location()]
        places += [table.properties[name] for name in _PLACES if name in table.properties]
        for place in places:
            refuse_local(place)
        return table

    catalog._load_file_io = remote  # type: ignore[method-assign]
    catalog.load_table = elsewhere  # type: ignore[method-assign]
    return catalog


def _known_logins_only() -> None:
    from pyiceberg.catalog.rest.auth import AuthManagerFactory

    create = AuthManagerFactory.create.__func__  # type: ignore[attr-defined]

    def known(cls: Any, name: str, config: dict[str, Any]) -> Any:
        if name not in cls._registry:
            raise _refused("auth.impl", name)
        return create(cls, name, config)

    if create.__module__ != __name__:
        AuthManagerFactory.create = classmethod(known)  # type: ignore[assignment,method-assign]


__all__ = ["confined", "guarded", "load_file_io", "open_catalog"]
