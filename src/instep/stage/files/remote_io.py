"""Files of object stores alone: for tables of catalogs whose word is not trusted with files of this machine."""

from __future__ import annotations

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from instep.egress.guard import BUCKETS
from instep.errors import DestinationError


def refuse_local(uri: str) -> None:
    """DestinationError for what is in no bucket."""
    _check(uri.partition("://")[0] if "://" in uri else "file")


def _check(scheme: str) -> None:
    if scheme not in BUCKETS:
        raise DestinationError(
            f"the catalog names a file of {scheme}://, and its destination comes from an API",
            hint="keep the table in a bucket, or describe the destination in instep.yml",
        )


class RemoteFileIO(PyArrowFileIO):
    """pyiceberg's own file system, which opens nothing of this machine."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        _check(scheme)
        return super()._initialize_fs(scheme, netloc)
