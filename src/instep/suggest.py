"""Suggest similar names in messages about an unknown name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from instep.errors import InstepError, argument

LIKE = 0.6
"""The least similarity of two names, from 0 to 1."""


def first_of(names: Sequence[str], most: int = 10) -> str:
    """Return the first names as one text, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def closest(name: str, known: Iterable[str], most: int = 1, *, like: float = LIKE) -> list[str]:
    """Return up to `most` of the known names that are like `name`, the closest first."""
    return get_close_matches(name, list(known), most, like)


def did_you_mean(
    name: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    form: str = "did you mean {}?",
    most: int = 1,
    like: float = LIKE,
) -> str:
    """Return the question with the closest known names in place of `{}`; if no name is close, return `otherwise`."""
    near = closest(name, known, most, like=like)
    return form.format(" or ".join(near)) if near else otherwise


def closest_tables(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return up to `most` of the known tables (`schema.table`) that may be meant: the same name in another schema or
    case or without a schema, else the most similar path, else the most similar name."""
    paths, names = dict[str, list[str]](), dict[str, list[str]]()
    for path in known:
        paths.setdefault(path.casefold(), []).append(path)
        names.setdefault(path.casefold().rpartition(".")[2], []).append(path)
    path = name.casefold()
    own = path.rpartition(".")[2]
    for key, pool in ((path, paths), (own, names)):
        if key in pool:
            return pool[key][:most]
    for key, pool in ((path, paths), (own, names)):
        if near := closest(key, pool):
            return pool[near[0]][:most]
    return []


def unknown_table(
    message: str,
    name: str,
    known: Collection[str],
    otherwise: str = "see `instep status` for the tables that are synced",
    *,
    kind: type[InstepError] = InstepError,
) -> InstepError:
    """Return the error for a table that is not among the known ones. Its hint names the table that is probably meant,
    else it is `otherwise`."""
    near = closest_tables(name, known)
    return kind(message, hint=f"did you mean {' or '.join(near)}?" if near else otherwise)


def stays_in_clear(connection: str, path: str) -> str:
    """Return what becomes of a hashed column that the source no longer has, and the command that drops its values."""
    command = f"instep sync {argument(connection)} --drop-column {argument(path)}"
    return f"the source no longer has it, so its loaded values stay in clear; to drop them run `{command}`"
