"""Paths in object stores, with those methods of pathlib's paths that tables in folders need.

Every write is whole or not there at all, and `create` makes an object only where there is none, whoever else tries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from instep.errors import ConnectError, StageError
from instep.stage.files.buckets import SCHEMES, bucket_hint, open_bucket
from instep.stage.files.place import StorageFolder, local


@dataclass(frozen=True)
class Stat:
    """Bytes, and the time of the last change in seconds since 1970."""

    st_size: int
    st_mtime: float


@dataclass(frozen=True)
class ObjectPath:
    """`uri` names a bucket and a key in it, an object's or what keys begin with; `io` may hold credentials."""

    uri: str
    io: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.uri.rstrip('/')}/{name}", self.io)

    def as_uri(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        return self.uri.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.uri.rstrip("/").rpartition("/")[0], self.io)

    @property
    def key(self) -> str:
        """The object's key within the bucket."""
        return self.uri.partition("://")[2].partition("/")[2].strip("/")

    @property
    def _bucket(self) -> str:
        scheme, _, path = self.uri.partition("://")
        return f"{scheme}://{path.partition('/')[0]}"

    @property
    def _store(self) -> Any:
        scheme, _, netloc = self._bucket.partition("://")
        return open_bucket(scheme, netloc, frozenset(self.io.items()))

    def is_relative_to(self, other: Any) -> bool:
        return f"{self.uri}/".startswith(f"{str(other).rstrip('/')}/")

    def relative_to(self, other: Any) -> PurePosixPath:
        """Raise ValueError if this is not below `other`."""
        if not self.is_relative_to(other):
            raise ValueError(f"{self.uri} is not below {other}")
        return PurePosixPath(self.uri[len(str(other).rstrip("/")) + 1 :])

    def read_bytes(self) -> bytes:
        """Raise FileNotFoundError if there is no such object."""
        import obstore

        with _reached(self.uri):
            return bytes(obstore.get(self._store, self.key).bytes())

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def read_once(self, mark: str) -> bytes:
        """Return the content that a listing marks so (see `names_from`), which this process then asks for no more."""
        return _cached_bytes(self.uri, mark, frozenset(self.io.items()))

    def write_bytes(self, content: bytes) -> None:
        """Replace the object's content."""
        import obstore

        with _reached(self.uri, writing=True):
            obstore.put(self._store, self.key, content)

    def create(self, content: bytes) -> bool:
        """False, and nothing changed, if there is an object already, unless it is this very one: the answer to an
        earlier try may have been lost on its way."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            with _reached(self.uri, writing=True):
                obstore.put(self._store, self.key, content, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return self.read_bytes() == content
        return True

    def copy_to(self, target: ObjectPath) -> None:
        """Copy the object within the bucket, by the store itself."""
        import obstore

        with _reached(target.uri):
            obstore.copy(self._store, self.key, target.key)

    def stat(self) -> Stat:
        """Raise FileNotFoundError if there is no such object."""
        import obstore

        with _reached(self.uri):
            head = obstore.head(self._store, self.key)
        return Stat(head["size"], head["last_modified"].timestamp())

    def exists(self) -> bool:
        """Return whether there is such an object."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether keys begin with this."""
        return next(self.below(), None) is not None

    def below(self) -> Iterator[tuple[ObjectPath, Stat]]:
        """Yield every object whose key begins with this; a thousand a request."""
        import obstore

        with _reached(self.uri):
            for batch in obstore.list(self._store, self.key or None):
                for entry in batch:
                    path = ObjectPath(f"{self._bucket}/{entry['path']}", self.io)
                    yield path, Stat(entry["size"], entry["last_modified"].timestamp())

    def folders(self) -> list[ObjectPath]:
        """Return the folders below, up to the next slash of keys."""
        import obstore

        with _reached(self.uri):
            listing = obstore.list_with_delimiter(self._store, self.key or None)
        return [self / prefix.rstrip("/").rpartition("/")[2] for prefix in sorted(listing["common_prefixes"])]

    def names(self) -> list[str]:
        """Return the objects directly below."""
        import obstore

        with _reached(self.uri):
            listing = obstore.list_with_delimiter(self._store, self.key or None)
        return [o["path"].rpartition("/")[2] for o in listing["objects"]]

    def names_from(self, start: str) -> Iterator[tuple[str, str]]:
        """Yield the objects directly below whose names are not less than this, and what tells the content of each from
        another one."""
        import obstore

        before = start[:-1] + chr(ord(start[-1]) - 1) + "~" if start else ""
        with _reached(self.uri):
            for batch in obstore.list(self._store, self.key, offset=f"{self.key}/{before}"):
                for entry in batch:
                    name = entry["path"][len(self.key) + 1 :]
                    if "/" not in name and name >= start:
                        yield name, entry["e_tag"] or str(entry["last_modified"])

    def unlink(self, missing_ok: bool = False) -> None:
        import obstore

        try:
            with _reached(self.uri):
                obstore.delete(self._store, self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """No-op: an object store has no folders."""

    def open(self) -> Any:
        """Return a pyarrow file to read from; FileNotFoundError if there is none."""
        filesystem, path = StorageFolder(self.parent.uri, self.io).resolve(self.name)
        return filesystem.open_input_file(path)


AnyPath = Path | ObjectPath


def path_at(uri: str, io: Mapping[str, str]) -> AnyPath:
    """Return a place in an object store, or on a disk of this machine."""
    return ObjectPath(uri, io) if is_object(uri) else local(uri)


def opened(path: AnyPath) -> Any:
    """Return an object from which pyarrow reads a file."""
    return path.open() if isinstance(path, ObjectPath) else path


def files_below(folder: AnyPath) -> Iterator[tuple[AnyPath, Stat]]:
    """Yield every file below a folder; none if it is not there. Empty objects stand for folders: pyarrow leaves
    them."""
    if isinstance(folder, ObjectPath):
        yield from ((path, stat) for path, stat in folder.below() if stat.st_size)
        return
    for path in folder.rglob("*"):
        if path.is_file():
            file_stat = path.stat()
            yield path, Stat(file_stat.st_size, file_stat.st_mtime)


def is_object(uri: str) -> bool:
    """Return whether a URI names a place in an object store."""
    return uri.partition("://")[0] in SCHEMES and "://" in uri


@lru_cache(1_000)
def _cached_bytes(uri: str, mark: str, io: frozenset[tuple[str, str]]) -> bytes:
    return ObjectPath(uri, dict(io)).read_bytes()


@contextmanager
def _reached(uri: str, *, writing: bool = False) -> Iterator[None]:
    """Raise ConnectError for a store that does not let us in, StageError for one that does not answer as it should."""
    from obstore import exceptions as exceptions

    try:
        yield
    except (exceptions.UnauthenticatedError, exceptions.PermissionDeniedError) as error:
        hint = "check the keys among the properties, and what their policy allows"
        raise ConnectError(f"{uri}: the store refuses: {_first(error)}", hint=hint) from None
    except FileNotFoundError as error:
        if not writing and not _no_bucket(error):
            raise
        raise _missing(uri) from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise
    except exceptions.BaseError as error:
        if _no_bucket(error):
            raise _missing(uri) from None
        hint = bucket_hint(uri.partition("://")[0])
        raise StageError(f"{uri}: the store does not do what was asked: {_first(error)}", hint=hint) from None


def _no_bucket(error: BaseException) -> bool:
    """Return whether the store says that the bucket itself is missing."""
    return any(code in str(error) for code in ("NoSuchBucket", "ContainerNotFound"))


def _missing(uri: str) -> ConnectError:
    return ConnectError(f"{uri}: there is no such bucket", hint=bucket_hint(uri.partition("://")[0]))


def _first(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300]
