"""Sections of the project file that stand alone: what a server keeps, each as a document of JSON.

The file's own checks tell which values are secrets: those that must not stand in the file in plain text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from instep.errors import ProjectError
from instep.logs import clean
from instep.operations.values import ObjectKind
from instep.project.sections.channels import Channel
from instep.project.sections.models import ConnectionSection, Destination
from instep.project.sections.policies import PolicySection
from instep.project.sections.sources import Source
from instep.project.sections.values import NAME, Section
from instep.project.text.problems import data_path, dotted, placed_problems
from instep.project.text.references import Reference, is_bare_reference, is_reference
from instep.project.text.tree import Path, Tree
from instep.redaction import names_secret

MASK = "******"
PLURALS: Mapping[ObjectKind, str] = {
    "source": "sources",
    "destination": "destinations",
    "policy": "policies",
    "channel": "channels",
    "connection": "connections",
}
"""The key of the project file for each kind, in the order in which they refer to one another."""
TYPES: Mapping[ObjectKind, Any] = {
    "source": Source,
    "destination": Destination,
    "policy": PolicySection,
    "channel": Channel,
    "connection": ConnectionSection,
}
NO_REFERENCE = (
    "a reference is not possible in the server's configuration: write the value itself; a secret is encrypted"
)
MOVED = "is sealed for another server: {} is not what it was. Write the secret's value again"
_SECRET = frozenset({"plain_secret", "property_secret", "url_secret"})
MOST_LEVELS = 200
"""Levels of a JSON document of another program that are read."""
_DEEP = 32
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_BEGIN, _END = "${secret:", "}"


MOST_VALUES, MOST_SECRETS, MOST_PROBLEMS = 20_000, 100, 100
"""The most values and secrets that a document may have, and the most problems that are listed."""


class InvalidDocument(ProjectError):
    """A document is not as it must be."""

    problems: tuple[tuple[Path, str], ...] = ()
    """Problems as (place, text); `below` is the document's place in a request."""
    below = ""


class InvalidObject(InvalidDocument):
    """A document is not as its section must be. `problems` are (place, text), the first MOST_PROBLEMS of them."""

    def __init__(self, kind: ObjectKind, name: str, problems: Sequence[tuple[Path, str]], untold: int = 0) -> None:
        more = [((), f"has {untold} more problems")] if untold > 0 else []
        self.below = "/spec"
        self.problems = tuple(dict.fromkeys([*problems[:MOST_PROBLEMS], *more]))
        lines = [
            f"{kind} {name}: {dotted(path) if path else 'the document'}: {message}" for path, message in self.problems
        ]
        super().__init__("\n".join(lines), hint="correct it and send it again; nothing was changed")


@cache
def _adapter(kind: ObjectKind) -> TypeAdapter[Section]:
    return TypeAdapter(TYPES[kind])


def check_name(kind: ObjectKind, name: str) -> None:
    """Raise InvalidObject for what cannot be a name in the project file."""
    if not NAME.fullmatch(name):
        message = "a name starts with a letter and has letters, digits, _ and - only (63 at most)"
        raise InvalidObject(kind, name[:63], [((), message)])


def check_storable(kind: ObjectKind, name: str, spec: Mapping[str, Any]) -> None:
    """Raise InvalidObject for what no database takes, or no file: numbers that are none, half characters, bottomless
    nesting, more than MOST_VALUES values."""
    try:
        problems = list(_unstorable(spec, ()))
        if not problems and (count := _count(spec)) > MOST_VALUES:
            problems = [((), f"holds {count} values, and may hold {MOST_VALUES}: name tables by patterns")]
    except RecursionError:
        problems = [((), "is nested too deeply")]
    if problems:
        raise InvalidObject(kind, name, problems)


def is_too_deep(value: Any) -> bool:
    """Return whether a JSON document nests more than MOST_LEVELS levels: what walks through it would fail."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        children = (v.values() if isinstance(v, Mapping) else v for v in level if isinstance(v, Mapping | list))
        level = [part for parts in children for part in parts]
        if not level:
            return False
    return True


def _count(value: Any) -> int:
    """Return the number of scalars in a document, and of its empty lists and mappings."""
    if isinstance(value, Mapping | list | tuple) and value:
        return sum(map(_count, value.values() if isinstance(value, Mapping) else value))
    return 1


def _unstorable(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if len(path) > _DEEP:
        raise RecursionError
    if isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(key, str) and _UNSTORABLE.search(key):
                yield path, "has a key with characters that cannot be kept"
                continue
            yield from _unstorable(item, (*path, key))
    elif isinstance(value, str) and _UNSTORABLE.search(value):
        yield path, "has characters that cannot be kept: NUL, or half of a surrogate pair"
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, "must be a number"


def section_of(kind: ObjectKind, name: str, spec: Mapping[str, Any]) -> Section:
    """Return the document as the section that it is, references unresolved. InvalidObject lists everything that is
    wrong."""
    return _validated(kind, name, referenced(dict(spec)), {})


def plain_section_of(kind: ObjectKind, name: str, spec: Mapping[str, Any]) -> Section:
    """Return a document whose secrets stand in it in plain text as the section that it is; InvalidObject as above."""
    return _validated(kind, name, _copied(spec), {"resolved": True})


def _validated(kind: ObjectKind, name: str, data: dict[str, Any], seen: dict[Any, Any]) -> Section:
    try:
        return _adapter(kind).validate_python(data, context=seen)
    except ValidationError as error:
        problems = placed_problems(error, Tree(data), seen, MOST_PROBLEMS)
        raise InvalidObject(kind, name, problems, error.error_count() - MOST_PROBLEMS) from None


def plain_secrets(kind: ObjectKind, name: str, spec: Mapping[str, Any]) -> tuple[Path, ...]:
    """Return where values stand that the project file would refuse as secrets in plain text; `referenced` ones are
    none. What else is wrong with the document is not looked at.

    Raise InvalidObject for a document with more than MOST_SECRETS of them: a section tells of one property at a time,
    and each look takes as long as the document is.
    """
    data, places = _copied(spec), dict[Path, None]()
    while new := [path for path in _refused(kind, data) if path not in places and value_at(data, path) is not None]:
        places |= dict.fromkeys(new)
        if len(places) > MOST_SECRETS:
            raise InvalidObject(kind, name, [((), f"may hold {MOST_SECRETS} secrets, and has more")])
        for path in new:
            parent_of(data, path)[path[-1]] = secret("0")
    return tuple(places)


def _refused(kind: ObjectKind, data: dict[str, Any]) -> list[Path]:
    try:
        _adapter(kind).validate_python(data, context={})
    except ValidationError as error:
        return [data_path(data, detail) for detail in error.errors(include_url=False) if detail["type"] in _SECRET]
    return []


def secret(id: str) -> Reference:
    return Reference(f"{_BEGIN}{id}{_END}")


def secret_id(value: Any) -> str:
    """Return the id of a value that is the reference of a sealed secret and nothing else, "" for others."""
    text = str(value) if isinstance(value, str | Reference) else ""
    inside = text.removeprefix(_BEGIN).removesuffix(_END)
    return inside if text == f"{_BEGIN}{inside}{_END}" and inside.isalnum() else ""


def referenced(value: Any) -> Any:
    """Return a document with its references as such, as the project file's reader makes them."""
    if isinstance(value, dict):
        return {str(key): referenced(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [referenced(item) for item in value]
    return Reference(value) if isinstance(value, str) and is_reference(value) else value


def written(value: Any) -> Any:
    """Return the reverse of `referenced`: a document that JSON and YAML can take."""
    if isinstance(value, dict):
        return {key: written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [written(item) for item in value]
    return value.text if isinstance(value, Reference) else value


def texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield (place, text) of every text in a document, references included, keys left out."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from texts(item, (*path, key))
    elif isinstance(value, str | Reference):
        yield path, str(value)


def secrets_in(spec: Mapping[str, Any]) -> dict[Path, str]:
    """Return the ids of sealed secrets by place."""
    return {path: id for path, text in texts(spec) if (id := secret_id(text))}


def masked(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document for reading: stars in the place of secrets."""
    document: dict[str, Any] = _masked(spec, lambda value, _path: isinstance(value, str) and bool(secret_id(value)))
    return document


def masked_but(document: Mapping[str, Any], shown: Collection[Path]) -> Any:
    """Return a document for reading, with stars in the place of every value but those in `shown` (items of a list have
    its place), truth values, and references without text of their own."""

    def is_secret(value: Any, path: Path) -> bool:
        is_bare = isinstance(value, str) and is_bare_reference(value) and not secret_id(value)
        return not (value is None or isinstance(value, bool) or is_bare or path in shown)

    return _masked(document, is_secret)


def _masked(value: Any, is_secret: Callable[[Any, Path], bool], path: Path = ()) -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(item, is_secret, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, is_secret, path) for item in value]
    return MASK if is_secret(value, path) else value


def masked_arguments(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments of a program for reading, with stars in the place of each that looks like a secret, or that
    stands behind an option called like one."""
    before = ["", *map(str, arguments)]
    return [
        MASK if not is_bare_reference(str(one)) and (_names_value(option) or clean(str(one)) != str(one)) else one
        for option, one in zip(before, arguments, strict=False)
    ]


def _names_value(option: str) -> bool:
    return option.startswith("-") and not set("=: ") & set(option) and names_secret(option)


def replaced(spec: Mapping[str, Any], values: Mapping[Path, Any]) -> dict[str, Any]:
    """Return a copy with other values at these places."""
    data: dict[str, Any] = _copied(spec)
    for path, value in values.items():
        parent_of(data, path)[path[-1]] = value
    return data


def _copied(value: Any) -> Any:
    """Return a copy of a document, of its mappings and lists alone: a page of a list copies hundreds."""
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


def parent_of(data: Any, path: Path) -> Any:
    """Return the mapping or list in which the last part of a path stands."""
    for part in path[:-1]:
        data = data[part]
    return data


def value_at(data: Any, path: Path) -> Any:
    """Return the value at a path, None for nothing."""
    for part in path:
        try:
            data = data[part]
        except (LookupError, TypeError):
            return None
    return data


def pointer(path: Path) -> str:
    """Return the JSON pointer (RFC 6901) of a place."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
