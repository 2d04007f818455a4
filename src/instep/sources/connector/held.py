"""Operations on tables that do not run now: they cannot be read again, so they are kept as a segment of their own.

Its manifest is readable, its files are sealed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from instep.sources.connector.sealed import seal, unseal
from instep.sources.connector.segment import Segment, SegmentTable, read_manifest, write_manifest


def keep(segment: Segment, table: SegmentTable, place: Path, key: bytes) -> None:
    """The table's part of a segment in a folder of its own, that only its owner can read."""
    place.mkdir(parents=True, mode=0o700)
    for path in table.paths:
        seal(Path(segment.folder) / path, place / path, key)
    write_manifest(replace(segment, folder=str(place), state=None, ends=False, tables=(table,), warnings=()))


def kept_table(place: str) -> SegmentTable:
    """What `keep` has kept; StageError if it is not there any more."""
    (table,) = read_manifest(place).tables
    return table


def opened(place: str, key: bytes, folder: Path) -> None:
    """Its files as they were, for as long as a run reads them."""
    folder.mkdir(parents=True, mode=0o700)
    for path in kept_table(place).paths:
        unseal(Path(place) / path, folder / path, key)
