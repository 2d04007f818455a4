"""The connections of a rollout, and the wave of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from instep.errors import InstepError
from instep.project.project import Project
from instep.schema.selection.selection import patterns


@dataclass(frozen=True)
class ConnectionGroup:
    """Connections by name, destination, tag and pattern (a glob or re:REGEX): of one sort any, of different sorts
    all must fit."""

    names: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    matching: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {name: list(values) for name, values in asdict(self).items() if values}

    @property
    def text(self) -> str:
        """Return the text for people."""
        return "; ".join(f"{_WORDS[sort]} {', '.join(values)}" for sort, values in self.to_dict().items())


_WORDS = {
    "names": "named",
    "destinations": "into destination",
    "tags": "with tag",
    "matching": "matching",
}


def group_of(data: Mapping[str, Any]) -> ConnectionGroup:
    """Return the group that `ConnectionGroup.to_dict` wrote."""
    return ConnectionGroup(**{name: tuple(values) for name, values in data.items()})


def chosen(project: Project, group: ConnectionGroup, scope: Collection[str] | None = None) -> list[str]:
    """Return the connections of the group, by name; InstepError if it names or holds none, ProjectError for a name that
    there is not. `scope`: only these connections count, None for all."""
    for name in group.names:
        project.connection(name)
    connections = [name for name in project.connections if scope is None or name in scope]
    return members_of(
        group, [(name, project.destination_of(name), project.connection(name).tags) for name in connections]
    )


def members_of(group: ConnectionGroup, connections: Iterable[tuple[str, str, Iterable[str]]]) -> list[str]:
    """Return the connections (name, destination, tags) that are in the group, by name; raises InstepError if it
    names or holds none."""
    if not group.to_dict():
        raise InstepError("which connections?", hint="name --destination, --tag, --match or --connection")
    matching = sorted(name for name, destination, tags in connections if _fits(group, name, destination, set(tags)))
    if not matching:
        raise InstepError(f"no connection fits: {group.text}", hint="see `instep status` for the connections")
    return matching


def _fits(group: ConnectionGroup, name: str, destination: str, tags: set[str]) -> bool:
    return (
        (not group.names or name in group.names)
        and (not group.destinations or destination in group.destinations)
        and (not group.tags or bool(tags & set(group.tags)))
        and (not group.matching or any(p.matches(name) for p in patterns(group.matching)))
    )


def sizes(text: str) -> tuple[str, ...]:
    """Return the waves as they are written: `1,10%,rest`. Numbers of connections, or shares of all; `rest` ends them
    and may be left out. InstepError for anything else."""
    words = tuple(filter(None, (word.strip() for word in text.split(","))))
    words = words if words[-1:] == ("rest",) else (*words, "rest")
    for word in words[:-1]:
        if not re.fullmatch(r"[1-9]\d{0,4}|([1-9]\d?|100)%", word):
            raise InstepError(
                f"{word!r} is not a size of a wave", hint="write numbers or shares, such as --waves 1,10%,rest"
            )
    return words


def cut(names: Sequence[str], how: Sequence[str]) -> dict[str, int]:
    """Return connection -> number of its wave, from 1 on, in the order given. A share is one of all, rounded up;
    empty waves are left out, and the rest is the last one."""
    out: dict[str, int] = {}
    rest, wave = list(names), 0
    for size in (*how, "rest"):
        taken, rest = rest[: _size(size, len(names))], rest[_size(size, len(names)) :]
        wave += bool(taken)
        out |= dict.fromkeys(taken, wave)
    return out


def _size(size: str, of: int) -> int:
    if size == "rest":
        return of
    return ceil(of * int(size[:-1]) / 100) if size.endswith("%") else int(size)
