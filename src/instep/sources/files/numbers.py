"""Which files a cursor over `_file_number` reads: new ones, and those that were changed since they were read."""

from __future__ import annotations

from dataclasses import dataclass

from instep.schema.table import Table
from instep.sources.base import CursorBounds
from instep.sources.files.config import NUMBER, FilesConfig
from instep.sources.files.listing import FileState, table_of
from instep.sources.files.seen import File, Seen


@dataclass(frozen=True)
class _Past:
    """What was read before: the number of the version of each file, for those that are there as another version by now
    (`replaced`) and for those that are there no more (`gone`)."""

    replaced: dict[str, int]
    gone: dict[str, int]


def number_bounds(
    config: FilesConfig, seen: Seen, table: Table, after: str | None, lookback: float
) -> tuple[str | None, CursorBounds]:
    """From the number behind `after` on, or from that of the earliest version that was read and is another one by now:
    rows from there on are replaced. The rows of files that are gone stay, and those that came after them are not
    replaced then: that would take them along."""
    files = seen.tables.get(table.name, ())
    newest = max((f.number for f in files), default=None)
    if after is None:
        return None, CursorBounds(None if newest is None else str(newest), 0)
    reached = int(after)
    if not any(v.number == reached for versions in seen.history.values() for v in versions):
        lost = f"the store does not know which files were read up to {NUMBER} {after}"
        return None, CursorBounds(str(newest), 0, lost=lost)
    past = _past(config, seen, table.name, files, reached)
    lower, notes = reached + 1, []
    if past.gone:
        notes.append(f"{len(past.gone):,} files that were read are gone ({min(past.gone)}, ...): their rows stay")
    if past.replaced:
        first = min(past.replaced.values())
        kept = [name for name, number in past.gone.items() if number >= first]
        if kept and not table.key:
            notes.append(
                f"{', '.join(sorted(past.replaced))} changed: read again beside the rows that are there, for replacing"
                f" them would take those of {', '.join(sorted(kept))} along"
            )
        else:
            lower = first
    lower = min(lower, reached + 1 - int(lookback)) if lookback else lower
    upper = str(max(reached, newest or 0))
    return str(lower), CursorBounds(upper, 0, notes=tuple(notes), fresh=lower > reached)


def _past(config: FilesConfig, seen: Seen, table: str, files: tuple[File, ...], reached: int) -> _Past:
    now = {f.state.name: f for f in files}
    replaced: dict[str, int] = {}
    gone: dict[str, int] = {}
    for name, versions in seen.history.items():
        read = max((v.number for v in versions if v.number <= reached), default=None)
        if read is None:
            continue
        if name in now:
            if now[name].number > reached:
                replaced[name] = read
        elif table_of(config, FileState(name, 0, "")) == table:
            gone[name] = read
    return _Past(replaced, gone)
