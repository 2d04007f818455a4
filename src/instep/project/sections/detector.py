"""The options of a scheduled schema detector, under the names that its users know, as rules and patterns of ours.

They stand as `app_options` and `table_options` on a source or on a connection, which has the last word key by key.
Where neither has any, nothing here acts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, AliasGenerator, ConfigDict
from pydantic_core import PydanticCustomError

from instep.errors import SchemaError
from instep.project.sections.names import column_pattern, column_regex, table_match, table_pattern, table_regex
from instep.project.sections.values import Section, TablePattern, Words
from instep.schema.policy.policy import Action, Rule
from instep.schema.selection.selection import Pattern

Path = tuple[str, ...]
Frequency = Literal[1800, 3600, 21600, 43200, 86400]
SHORT: Mapping[str, str] = {
    "enable_detect_schema_changes": "enable",
    "detect_schema_changes_frequency_in_seconds": "frequency",
    "create_detect_schema_changes_ping_on_each_error": "detect_on_error",
    "propagate_table_creations_to_target_app": "propagate_table_creations",
    "auto_unsync_deleted_tables": "unsync_deleted_tables",
    "excluded_external_table_names": "excluded_tables",
    "excluded_external_table_names_regexes": "excluded_tables_regexes",
    "propagate_column_creations_to_target_app": "propagate_column_creations",
    "auto_unsync_deleted_columns": "unsync_deleted_columns",
    "excluded_external_column_names": "excluded_columns",
    "excluded_external_column_names_regexes": "excluded_columns_regexes",
}
"""Each option with its short name."""


def _table_expression(value: str) -> str:
    try:
        Pattern(table_regex(value))
    except SchemaError as error:
        raise _problem(error) from None
    return value


def _column_expression(value: str) -> str:
    try:
        Pattern(column_regex("a.b", value))
    except SchemaError as error:
        raise _problem(error) from None
    return value


def _problem(error: SchemaError, **context: str) -> PydanticCustomError:
    return PydanticCustomError("pattern", "{why}", {"why": f"{error.message}; {error.hint}", **context})


def _with_short_names(schema: dict[str, Any]) -> None:
    """Add the short names to the schema: editors know both."""
    properties = schema["properties"]
    properties |= {short: properties[name] for name, short in SHORT.items() if name in properties}


_NAMES = AliasGenerator(validation_alias=lambda name: AliasChoices(name, SHORT[name]))


class AppOptions(Section):
    """Detection options of a whole source."""

    model_config = ConfigDict(alias_generator=_NAMES, json_schema_extra=_with_short_names)
    enable_detect_schema_changes: bool = True
    detect_schema_changes_frequency_in_seconds: Frequency = 3600
    create_detect_schema_changes_ping_on_each_error: bool = True
    propagate_table_creations_to_target_app: bool = False
    auto_unsync_deleted_tables: bool = False
    excluded_external_table_names: Words = ()
    excluded_external_table_names_regexes: tuple[Annotated[str, AfterValidator(_table_expression)], ...] = ()


class ColumnOptions(Section):
    """Detection options of the tables that match a pattern."""

    model_config = ConfigDict(alias_generator=_NAMES, json_schema_extra=_with_short_names)
    propagate_column_creations_to_target_app: bool = False
    auto_unsync_deleted_columns: bool = False
    excluded_external_column_names: Words = ()
    excluded_external_column_names_regexes: tuple[Annotated[str, AfterValidator(_column_expression)], ...] = ()


def _checked(value: dict[str, ColumnOptions]) -> dict[str, ColumnOptions]:
    """Refuse a table pattern without a schema, and an expression for columns that would be slow beside the table's
    pattern."""
    for table, options in value.items():
        try:
            if "." not in table and not any(c in table for c in "*?["):
                raise SchemaError(f"{table!r} names no schema", hint=f"write schema.{table}, or '*.{table}' for all")
            for text in options.excluded_external_column_names_regexes:
                Pattern(column_regex(table, text))
        except SchemaError as error:
            raise _problem(error, name=table) from None
    return value


TableOptions = Annotated[dict[TablePattern, ColumnOptions], AfterValidator(_checked)]


@dataclass(frozen=True)
class Layer:
    """The options of one section; `path` is the place of the section (`sources`, its name)."""

    path: Path
    app: AppOptions | None
    tables: Mapping[str, ColumnOptions]


@dataclass(frozen=True)
class Detector:
    """The options of a connection's layers, the connection's first. `written`: the paths of the project file."""

    layers: tuple[Layer, ...]
    written: frozenset[Path]

    @property
    def enabled(self) -> bool:
        return bool(self.app("enable_detect_schema_changes"))

    @property
    def frequency(self) -> int:
        """Seconds from one detection to the next."""
        return int(self.app("detect_schema_changes_frequency_in_seconds"))

    def app(self, name: str) -> Any:
        """Return an option of the source as a whole: the first layer that sets it, else its default."""
        layer = self._setting(name)
        return getattr(layer.app, name) if layer else AppOptions.model_fields[name].default

    def source_options(self) -> dict[str, Any]:
        """Return the options of the source as a whole that a layer sets."""
        return {name: self.app(name) for name in AppOptions.model_fields if self._setting(name)}

    def table_options(self) -> dict[str, dict[str, Any]]:
        """Return those of tables by pattern; the connection's before its source's."""
        by_table: dict[str, dict[str, Any]] = {}
        for _, table, options in self._tables():
            values = {name: getattr(options, name) for name in options.model_fields_set}
            by_table[table] = {**values, **by_table.get(table, {})}
        return by_table

    def rules(self) -> tuple[Rule, ...]:
        """Return tables' options in the order of the file, then the options for all."""
        return (*self._of_tables(), *self._of_columns(), *self._of_app())

    def excluded_tables(self) -> Iterator[str]:
        """Yield patterns of tables that are not read."""
        yield from map(table_pattern, self.app("excluded_external_table_names"))
        yield from map(table_regex, self.app("excluded_external_table_names_regexes"))

    def excluded_columns(self) -> Iterator[str]:
        """Yield patterns of columns that are not read."""
        for _, table, options in self._tables():
            yield from (column_pattern(table, name) for name in options.excluded_external_column_names)
            yield from (column_regex(table, text) for text in options.excluded_external_column_names_regexes)

    def named(self) -> Iterator[tuple[Path, str]]:
        """Yield every table that is named, not described by a pattern, with the path where it stands."""
        layer = self._setting(name := "excluded_external_table_names")
        for text in self.app(name) if layer else ():
            yield self._written((*layer.path, "app_options"), name) if layer else (), text
        for place, table, _ in self._tables():
            if Pattern(table).is_exact:
                yield place, table

    def _setting(self, name: str) -> Layer | None:
        return next((layer for layer in self.layers if layer.app and name in layer.app.model_fields_set), None)

    def _tables(self) -> Iterator[tuple[Path, str, ColumnOptions]]:
        for layer in self.layers:
            for table, options in layer.tables.items():
                yield (*layer.path, "table_options", table), table, options

    def _written(self, base: Path, name: str) -> Path:
        """Return the option's path by the name that the file has for it."""
        short = (*base, SHORT[name])
        return short if short in self.written else (*base, name)

    def _of_tables(self) -> Iterator[Rule]:
        for place, table, options in self._tables():
            for name in ("propagate_column_creations_to_target_app", "auto_unsync_deleted_columns"):
                if name in options.model_fields_set:
                    option = f"table_options.{table}.{name}"
                    origin = self._written(place, name)
                    yield _rule(name, bool(getattr(options, name)), option, origin, table_match(table))

    def _of_columns(self) -> Iterator[Rule]:
        """Yield the defaults of every other table."""
        base = (*self.layers[0].path, "table_options")
        for name in ("propagate_column_creations_to_target_app", "auto_unsync_deleted_columns"):
            yield _rule(name, bool(ColumnOptions.model_fields[name].default), f"table_options.{name}", (*base, name))

    def _of_app(self) -> Iterator[Rule]:
        for name in ("propagate_table_creations_to_target_app", "auto_unsync_deleted_tables"):
            layer = self._setting(name) or self.layers[0]
            origin = self._written((*layer.path, "app_options"), name)
            yield _rule(name, bool(self.app(name)), f"app_options.{name}", origin)


_MEANS: Mapping[str, tuple[tuple[str, ...], Action, Mapping[str, str]]] = {
    "propagate_table_creations_to_target_app": (("schema.added", "table.added"), "ignore", {}),
    "auto_unsync_deleted_tables": (("schema.removed", "table.removed"), "pause_connection", {"removed": "retain"}),
    "propagate_column_creations_to_target_app": (("column.added",), "ignore", {}),
    "auto_unsync_deleted_columns": (("column.removed",), "pause_connection", {"removed": "drop"}),
}
"""Each switch: the kinds that it decides, what it decides while it is off, and the modifiers once it is on."""


def _rule(name: str, on: bool, option: str, origin: Path, match: tuple[str, ...] = ()) -> Rule:
    kinds, off, modifiers = _MEANS[name]
    return Rule(kinds, "apply" if on else off, match, (), modifiers if on else {}, option, origin)


def detector(layers: tuple[Layer, ...], written: Mapping[Any, int]) -> Detector | None:
    """Return the detector of these layers; None where none of them has options."""
    used = tuple(layer for layer in layers if layer.app is not None or layer.tables)
    return Detector(used, frozenset(written)) if used else None
