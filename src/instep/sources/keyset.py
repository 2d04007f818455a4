"""The distinct keys of one table's changed rows: in memory, and on disk beyond that."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from instep.errors import ReadError
from instep.sources.log import Key
from instep.temporary import TemporaryFolder

IN_MEMORY = 200_000
"""Keys that are in memory at a time."""
KEYS = 1_000_000
"""Changed rows of one table that are looked for by key; with more of them the whole table is read, unless they are
less than a part of it."""
_PART = 4
MOST_LETTERS = 64 << 20
"""The most bytes of the keys of one table: all queries that ask for them are in memory together."""
LENGTH = 1 << 20
"""Letters of keys that one query asks for."""


def most_keys(limit: int, rows: int) -> int:
    """Return how many keys of a table with about so many rows are looked for."""
    return max(limit, rows // _PART)


def portions(keys: Iterable[Key], most: int) -> Iterator[list[Key]]:
    """Yield the keys as queries ask for them, in their order."""
    part: list[Key] = []
    length = 0
    for key in keys:
        if part and (len(part) == most or length > LENGTH):
            yield part
            part, length = [], 0
        part.append(key)
        length += sum(map(len, key))
    if part:
        yield part


_SETTINGS = ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE", "cache_size = -65536")


@dataclass
class KeySet(Collection[Key]):
    """`letters`: how long the texts of the keys are, about. They come in the order of their texts. The file is in a
    folder of this process, and goes with the object. Raises ReadError if there is no room for it."""

    letters: int = 0
    _fresh: dict[Key, None] = field(default_factory=dict, repr=False)
    _stored: int = 0
    _file: sqlite3.Connection | None = None
    _folder: TemporaryFolder | None = field(default=None, repr=False)

    def update(self, keys: Iterable[Key]) -> None:
        before = len(self._fresh)
        self._fresh.update(dict.fromkeys(keys))
        if added := len(self._fresh) - before:
            last = next(reversed(self._fresh))
            self.letters += added * sum(map(len, last))
        if len(self._fresh) > IN_MEMORY:
            self._spill()

    def clear(self) -> None:
        self._fresh, self._stored, self.letters = {}, 0, 0
        if self._file is not None:
            self._file.close()
        if self._folder is not None:
            self._folder.close()
        self._file = self._folder = None

    def exceeds(self, limit: int) -> bool:
        """Return whether there are more than so many, or more than queries may ask for."""
        if self._file is not None and self._fresh and self._are_many(limit):
            self._spill()  # some may have counted twice
        return self._are_many(limit)

    def _are_many(self, limit: int) -> bool:
        return len(self) > limit or self.letters > MOST_LETTERS

    def _spill(self) -> sqlite3.Connection:
        with _translated():
            return self._spilled()

    def _spilled(self) -> sqlite3.Connection:
        width = len(next(iter(self._fresh), ()))
        if self._file is None:
            self._folder = TemporaryFolder("keys")
            path = f"{self._folder.path}/keys"
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self._file = sqlite3.connect(path, check_same_thread=False)
            for setting in _SETTINGS:
                self._file.execute(f"PRAGMA {setting}")
            names = ", ".join(f"k{n}" for n in range(width))
            self._file.execute(f"CREATE TABLE keys ({names}, PRIMARY KEY ({names})) WITHOUT ROWID")
        if self._fresh:
            before = self._file.total_changes
            marks = ", ".join("?" * width)
            self._file.executemany(f"INSERT OR IGNORE INTO keys VALUES ({marks})", sorted(self._fresh))  # noqa: S608
            added = self._file.total_changes - before
            self.letters -= (len(self._fresh) - added) * (self.letters // (self._stored + len(self._fresh)))
            self._stored += added
            self._fresh = {}
        return self._file

    def __len__(self) -> int:
        """Return how many there are; some that are on disk already may count twice while others are in memory."""
        return self._stored + len(self._fresh)

    def __contains__(self, key: object) -> bool:
        return key in self._fresh or any(key == one for one in self)

    def __iter__(self) -> Iterator[Key]:
        if self._file is None:
            yield from sorted(self._fresh)
            return
        file = self._spill()
        with _translated():
            columns = [row[1] for row in file.execute("PRAGMA table_info(keys)")]
            yield from file.execute(f"SELECT * FROM keys ORDER BY {', '.join(columns)}")  # noqa: S608

    def __del__(self) -> None:
        if self._file is not None:
            with suppress(sqlite3.Error):
                self._file.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        where = f"keys of changed rows cannot be written below {tempfile.gettempdir()}"
        raise ReadError(f"{where}: {error}", hint="make room there, or set TMPDIR, then sync again") from None
