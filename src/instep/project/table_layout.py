"""How a table lies at its destination, as the project file says it: properties, sort order, partitions."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from instep.project.values import SECRET_NAME, URL_PASSWORD, Words, read_with
from instep.schema.layout import sort_term
from instep.schema.partition import partition_term


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
