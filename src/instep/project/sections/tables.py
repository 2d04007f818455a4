"""The settings of tables: how they are loaded, and how they lie at their destination."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError

from instep.model import Deletes, Mode
from instep.project.sections.policies import OverrideSection
from instep.project.sections.values import ColumnTypes, Seconds, Words, is_secret, read_with
from instep.schema.catalog.layout import partition_term, sort_term
from instep.schema.policy.policy import InvalidValue
from instep.schema.selection.selection import Pattern


def _open_to_all(value: dict[str, str | bool | int | float]) -> dict[str, str | bool | int | float]:
    """Refuse secrets: whoever may read a table reads its properties."""
    for name, text in value.items():
        if is_secret(name, str(text)):
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


WrittenMode = Literal["auto", "full_refresh", "append", "upsert", "cdc"]


class _Written:
    """A file says any mode but `stream`, which the tables of a connector have by themselves."""

    def __get_pydantic_core_schema__(self, source: Any, follow: GetCoreSchemaHandler) -> CoreSchema:
        return follow.generate_schema(WrittenMode)


class TableSettings(OverrideSection):
    """Settings of a table: its load, its own policy settings, and its layout at the destination.

    `mode` auto: chosen by key and cursor. `lookback`: seconds for a time cursor, units for a number. `key`: columns to
    use where the source has no primary key. `keep_old_names`: for how many seconds readers can use what the table and
    its columns were called before a rename. `freshness`: the age that its rows may reach before the table is late, 0
    for no target; None: as for the connection. `filter`: which rows are read, as SQL of the source; None if nothing is
    said, "" for all. `name` and `columns`: what they are called at the destination. `history`: every version of a row
    is kept. `types`: chosen types by column name or source type. `enabled`: whether the table is read.
    """

    mode: Annotated[Mode | Literal["auto"], _Written()] = "auto"
    cursor: str = ""
    lookback: Seconds = 0
    deletes: Deletes = "soft"
    key: Words = ()
    keep_old_names: Seconds | None = None
    freshness: Seconds | None = None
    filter: str | None = None
    name: str = ""
    columns: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    properties: TableProperties = Field(default_factory=dict)
    sort: SortTerms = ()
    partition: PartitionTerms = ()
    history: bool = False
    types: ColumnTypes = Field(default_factory=dict)
    enabled: bool = True

    def handling_of_invalid_values(self, decided: InvalidValue = "quarantine") -> InvalidValue:
        """Return the table's own setting, unless that is the default: then what was decided."""
        chosen = self.on_invalid_value or "quarantine"
        return chosen if chosen != "quarantine" else decided


class TableKeys:
    """A section may name thousands of tables, and each column of a table asks."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._order = {key: at for at, key in enumerate(keys)}
        self._patterns = [pattern for pattern in map(Pattern, self._order) if not pattern.is_exact]

    def fitting(self, path: str) -> list[str]:
        """Return the keys that match a table, in their order."""
        fitting = {pattern.text for pattern in self._patterns if pattern.matches(path)}
        if path in self._order:
            fitting.add(path)
        return sorted(fitting, key=self._order.__getitem__)
