"""Our records of a table: files beside its log, which the log names.

A commit that changes records writes them into one file first, and names its number in a `txn` action for each. Every
writer carries those from version to version and into checkpoints, and none has to know what they are for. A number is
never used twice, so that a file never changes. One whose commit was refused stays until maintenance finds that no
version names it: a store may refuse what it has made already.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping

from instep.destinations.delta.protocol.new_file import write_new
from instep.errors import DestinationError
from instep.stage.files.object_store import AnyPath, files_below

FOLDER = "_instep"
APP = "instep"
"""Beginning of the names of records, which are those of `txn` actions."""


def is_record(name: str) -> bool:
    """Return whether the `txn` action of this name is a record's."""
    return name == APP or name.startswith(f"{APP}.")


def write(table: AnyPath, texts: Mapping[str, str]) -> int:
    """Write records by name into a new file; return its number."""
    number, content = secrets.randbits(62), json.dumps(texts, separators=(",", ":"), ensure_ascii=False)
    write_new(_path(table, number), content.encode())
    return number


def read(table: AnyPath, number: int) -> Mapping[str, str]:
    """Return the records of one file. DestinationError if it is not there."""
    try:
        record: Mapping[str, str] = json.loads(_path(table, number).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError) as error:
        raise DestinationError(
            f"the record {_path(table, number)} of table {table} is not there",
            hint="restore the folder from a backup, or drop the table and load it again",
        ) from error
    return record


def unnamed(table: AnyPath, names: Iterable[int], before: float) -> Iterator[AnyPath]:
    """Yield the files of records that are none of these and older than a time (seconds since 1970)."""
    named = {str(_path(table, number)) for number in names}
    for path, stat in files_below(table / FOLDER):
        if str(path) not in named and stat.st_mtime < before:
            yield path


def _path(table: AnyPath, number: int) -> AnyPath:
    return table / FOLDER / f"{number:020}.json"
