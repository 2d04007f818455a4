"""How a table lies at its destination, as the project file says it: properties, sort order, partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from instep.project.sections.values import SECRET_NAME, URL_PASSWORD, Words, read_with
from instep.schema.catalog.layout import sort_term
from instep.schema.catalog.partition import partition_term
from instep.schema.selection.selection import Pattern


def _open_to_all(value: dict[str, str | bool | int | float]) -> dict[str, str | bool | int | float]:
    """Whoever may read a table reads its properties."""
    for name, text in value.items():
        if SECRET_NAME.search(name) or URL_PASSWORD.search(str(text)):
            why = f"{name} looks like a secret, and every reader of a table sees its properties"
            raise PydanticCustomError("pattern", "{why}", {"why": why})
    return value


def _sorted(value: tuple[str, ...]) -> tuple[str, ...]:
    for term in value:
        read_with(sort_term, term)
    return value


def _partitioned(value: tuple[str, ...]) -> tuple[str, ...]:
    terms = [read_with(partition_term, term) for term in value]
    if twice := [t.text for n, t in enumerate(terms) if t in terms[:n]]:
        raise PydanticCustomError("pattern", "{why}", {"why": f"{twice[0]} is there twice"})
    return value


TableProperties = Annotated[dict[str, str | bool | int | float], AfterValidator(_open_to_all)]
SortTerms = Annotated[Words, AfterValidator(_sorted)]
PartitionTerms = Annotated[Words, AfterValidator(_partitioned)]


class TableKeys:
    """A section may name thousands of tables, and each column of a table asks."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._order = {key: at for at, key in enumerate(keys)}
        self._patterns = [pattern for pattern in map(Pattern, self._order) if not pattern.is_exact]

    def fitting(self, path: str) -> list[str]:
        """Return the keys that match a table, in their order."""
        found = {pattern.text for pattern in self._patterns if pattern.matches(path)}
        if path in self._order:
            found.add(path)
        return sorted(found, key=self._order.__getitem__)
