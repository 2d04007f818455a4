"""Settings of maintenance (when files are put together, when old snapshots go) and of automatic backfills of columns
(their window and budget). Values only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

DAY_MS = 86_400_000
SMALL = 0.75
"""A file below this part of the target size is small."""
TIER = 4
"""A small file that is larger than so many times all smaller ones together begins a tier of its own: a few small ones
do not have far larger ones rewritten, and each row is rewritten a few times in all, however often a table grows."""
WORN_ROWS = 10_000
"""Deleted rows of a file below which it is never rewritten for them alone."""


@dataclass(frozen=True)
class Maintenance:
    """Settings of maintenance."""

    target_file_size: int = 128 << 20
    """Size of files to aim at, in bytes."""
    min_files: int = 10
    """Number of small files from which on they are compacted."""
    delete_ratio: float = 0.2
    """Deleted rows of a file to its rows. A snapshot goes once it is older than `max_snapshot_age` (days) and not
    among the newest `keep_snapshots`."""
    keep_snapshots: int = 20
    max_snapshot_age: float = 7.0
    orphan_age: float = 3.0
    """Files that nothing names go after `orphan_age` (days)."""
    after_sync: bool = True
    """Syncs maintain the tables that they have loaded, for at most `max_minutes`."""
    max_minutes: float = 5.0


@dataclass(frozen=True)
class FileFacts:
    """A data file as its metadata tells: `deleted` of its `rows` are marked by delete files."""

    bytes: int
    rows: int
    deleted: int = 0

    @property
    def left(self) -> int:
        """About how many bytes its standing rows take."""
        return self.bytes - self.bytes * self.deleted // self.rows if self.rows else 0


def bins(files: Sequence[FileFacts], how: Maintenance) -> tuple[tuple[int, ...], ...]:
    """Return bins of files (positions in `files`) to rewrite, each bin into one; order is kept. Nothing for files
    that are as they should be."""
    small = _tiers([i for i, f in enumerate(files) if f.bytes < SMALL * how.target_file_size], files, how.min_files)
    worn = {i for i, f in enumerate(files) if is_worn(f.rows, f.deleted, how)}
    chosen = sorted(worn | set(small))
    bins_of_files: list[list[int]] = []
    for i in chosen:
        if not bins_of_files or sum(files[k].left for k in (*bins_of_files[-1], i)) > how.target_file_size:
            bins_of_files.append([])
        bins_of_files[-1].append(i)
    return tuple(tuple(bin_) for bin_ in bins_of_files if len(bin_) > 1 or bin_[0] in worn)


def is_worn(rows: int, deleted: int, how: Maintenance) -> bool:
    """Return whether so many rows are deleted that the others are worth being rewritten."""
    return deleted >= WORN_ROWS and deleted >= how.delete_ratio * rows


def _tiers(small: Sequence[int], files: Sequence[FileFacts], least: int) -> list[int]:
    """Return the small files up to the first tier that has `least` of them; none if there is no such tier."""
    numbers: list[int] = []
    total = tier = 0
    for i in sorted(small, key=lambda i: files[i].bytes):
        if numbers and files[i].bytes > TIER * total:
            if tier >= least:
                break
            tier = 0
        numbers.append(i)
        tier, total = tier + 1, total + files[i].bytes
    return numbers if tier >= least else []


def expirable_snapshots(
    snapshots: Sequence[tuple[int, int]], retained: Collection[int], how: Maintenance, now_ms: int
) -> tuple[int, ...]:
    """Return the ids of snapshots, (id, milliseconds since 1970) each, that may go; those in `retained` never do."""
    newest = sorted(snapshots, key=lambda s: s[1], reverse=True)
    old = now_ms - how.max_snapshot_age * DAY_MS
    return tuple(id for id, at in newest[how.keep_snapshots :] if at < old and id not in retained)


MINUTES = 24 * 60


@dataclass(frozen=True)
class BackfillLimits:
    """Limits of automatic column backfills."""

    max_bytes: int = 0
    """Bytes of files to write again above which a backfill waits for a person; 0: any."""
    max_minutes: float = 0.0
    """Minutes for which one run fills before the next goes on; 0: until they are done."""
    window: tuple[int, int] | None = None
    """Minutes of the day in `timezone` from when until when, past midnight where the second is the lower one; None:
    always."""
    timezone: str = "UTC"


def is_open(limits: BackfillLimits, now: datetime) -> bool:
    """Return whether `now` (aware) is within the window; without one it always is."""
    if limits.window is None:
        return True
    local = now.astimezone(ZoneInfo(limits.timezone))
    begin, end = limits.window
    return (local.hour * 60 + local.minute - begin) % MINUTES < ((end - begin) % MINUTES or MINUTES)


def waits(limits: BackfillLimits, now: datetime, bytes: int = 0) -> str:
    """Return why a backfill that writes so many bytes waits, "" if it does not."""
    if not is_open(limits, now):
        return f"it waits for its window, {window_text(limits)}"
    if limits.max_bytes and bytes > limits.max_bytes:
        return f"it writes about {bytes:,} bytes again, and the budget is {limits.max_bytes:,}"
    return ""


def window_text(limits: BackfillLimits) -> str:
    begin, end = limits.window or (0, 0)
    return f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02} {limits.timezone}"
