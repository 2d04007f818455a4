"""Operations on tables that do not run now: they cannot be read again, so they are kept as a segment of their own."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from instep.sources.connector.segment import Segment, SegmentTable, read_manifest, write_manifest


def keep(segment: Segment, table: SegmentTable, place: Path) -> None:
    """The table's part of a segment in a folder of its own, that only its owner can read."""
    place.mkdir(parents=True, mode=0o700)
    for file in table.files:
        source, copy = Path(segment.folder) / file.path, place / file.path
        try:
            os.link(source, copy)
        except OSError:  # another disk, or one without links
            shutil.copyfile(source, copy)
    write_manifest(replace(segment, folder=str(place), state=None, ends=False, tables=(table,), warnings=()))


def kept_table(place: str) -> SegmentTable:
    """What `keep` has kept; StageError if it is not there any more."""
    (table,) = read_manifest(place).tables
    return table
