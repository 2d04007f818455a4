"""The scripts of a migration, in the order in which they run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from instep.errors import InstepError

MAX_BYTES = 16 << 20
_UNDO = re.compile(r"(^U\d.*__.*\.sql$)|(\.(down|undo|rollback)\.sql$)|(_down\.sql$)", re.I)


def scripts(given: Sequence[Path], base: str = "") -> list[tuple[str, str]]:
    """(name, text) of each script: of files in their order, of folders all `.sql` files by their numbers and names,
    and without the ones that take a migration back; `-` is standard input. With `base`: only what git has new or
    changed since. InstepError for what cannot be read."""
    if base:
        return [(name, _text(Path(name))) for name in _changed(given, base)]
    if not given:
        raise InstepError("which migration?", hint="name its files or folders, - for stdin, or --git-diff main")
    return [script for path in given for script in _scripts(path)]


def _scripts(path: Path) -> Iterator[tuple[str, str]]:
    if str(path) == "-":
        yield "stdin", sys.stdin.read()
    elif path.is_dir():
        found = sorted((p for p in path.rglob("*.sql") if not _UNDO.search(p.name)), key=_order)
        if not found:
            raise InstepError(f"{path} has no .sql files", hint="name the folder of the migration's scripts")
        yield from ((p.as_posix(), _text(p)) for p in found)
    else:
        yield path.as_posix(), _text(path)


def _order(path: Path) -> list[tuple[int, str]]:
    """V10 comes after V9."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InstepError(f"{path} is larger than {MAX_BYTES >> 20} MB", hint="a dump of data is no migration")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstepError(f"{path} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None


def _changed(given: Sequence[Path], base: str) -> list[str]:
    """The scripts that git finds added or modified between where `base` was left and the files as they are."""
    if base.startswith("-"):
        raise InstepError(f"{base!r} is no commit", hint="write --git-diff origin/main")
    start = _git("merge-base", base, "HEAD").strip()
    names = _git("diff", "--name-only", "--diff-filter=AMR", "--relative", "-z", start, "--", *map(str, given))
    found = [Path(n) for n in names.split("\0") if n.endswith(".sql") and not _UNDO.search(Path(n).name)]
    return [p.as_posix() for p in sorted(found, key=_order)]


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InstepError("git is not installed", hint="name the migration's files instead") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise InstepError(f"git {words[0]}: {said[-1] if said else 'failed'}", hint="fetch the base branch first")
    return done.stdout
