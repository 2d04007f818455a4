"""Options of a detector by both their names, and the patch of a document that sets them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.control.detector import option, patch
from instep.control.resources.resources import merged
from instep.errors import InstepError
from instep.project.sections.detector import SHORT, AppOptions, ColumnOptions


@pytest.mark.parametrize(("long", "short"), SHORT.items())
def test_both_names_are_known_where_they_belong(long: str, short: str) -> None:
    of_table = long in ColumnOptions.model_fields
    assert of_table != (long in AppOptions.model_fields)
    assert option(long, of_table=of_table) == option(short, of_table=of_table) == long
    with pytest.raises(InstepError, match="is an option of"):
        option(short, of_table=not of_table)


@pytest.mark.parametrize(
    ("name", "of_table", "hint"),
    [("frequenzy", False, "did you mean frequency"), ("zzzz", False, "one of: detect_on_error"),
     ("exclude_columns", True, "did you mean excluded_columns")],
)  # fmt: skip
def test_what_there_is_not(name: str, of_table: bool, hint: str) -> None:
    with pytest.raises(InstepError) as error:
        option(name, of_table=of_table)
    assert hint in error.value.hint


LONG = "detect_schema_changes_frequency_in_seconds"
PATCHES: list[tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]] = [
    ({}, {LONG: 1800}, "", {"app_options": {LONG: 1800}}),
    ({"app_options": {"frequency": 3600}}, {LONG: 1800}, "", {"app_options": {"frequency": 1800}}),
    ({"app_options": {LONG: 3600}}, {LONG: None}, "", {"app_options": {}}),
    ({"app_options": None, "tags": ["a"]}, {LONG: 1800}, "", {"app_options": {LONG: 1800}, "tags": ["a"]}),
    ({"table_options": {"m.a": {"excluded_columns": ["x"]}, "m.b": {}}}, {"excluded_external_column_names": ["y"]},
     "m.a", {"table_options": {"m.a": {"excluded_columns": ["y"]}, "m.b": {}}}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "options", "table", "after"), PATCHES)
def test_an_option_keeps_its_name(spec: Any, options: Any, table: str, after: Any) -> None:
    assert merged(spec, patch(spec, options, table)) == after


VALUES = st.dictionaries(st.sampled_from(sorted(AppOptions.model_fields)), st.integers() | st.none(), max_size=4)


@given(
    st.dictionaries(st.sampled_from([*AppOptions.model_fields, *map(SHORT.__getitem__, AppOptions.model_fields)]),
                    st.integers(), max_size=3),
    VALUES,
)  # fmt: skip
def test_setting_twice_is_setting_once(before: dict[str, Any], options: dict[str, Any]) -> None:
    once = merged({"app_options": before}, patch({"app_options": before}, options))
    assert merged(once, patch(once, options)) == once
    for name, value in options.items():
        said = {n: v for n, v in once["app_options"].items() if n in (name, SHORT[name])}
        assert value is None or value in said.values()
