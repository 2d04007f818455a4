"""The options of a scheduled detector and other products' words, as rules, patterns and settings of ours."""

from __future__ import annotations

import pytest
from project_types import Loads

from instep.errors import ProjectError
from instep.project.sections.detector import SHORT, AppOptions, ColumnOptions
from instep.project.sections.names import column_regex, table_match, table_regex
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Int, String
from instep.schema.policy.policy import Rule, decide
from instep.schema.selection.selection import Pattern, is_on, select_columns

HEAD = """\
sources:
  db: {type: sqlite, path: shop.db}
destinations: {lake: {type: iceberg}}
"""
ON = """\
sources:
  db:
    type: sqlite
    path: shop.db
    app_options:
      detect_schema_changes_frequency_in_seconds: 21600
      propagate_table_creations_to_target_app: true
      auto_unsync_deleted_tables: true
    table_options:
      main.order: {propagate_column_creations_to_target_app: true, auto_unsync_deleted_columns: true}
destinations: {lake: {type: iceberg}}
connections:
  shop: {}
"""
OFF = HEAD + "connections: {shop: {app_options: {enable: false}}}"


def texts(rules: tuple[Rule, ...]) -> list[str]:
    return [f"{rule.option}: {rule}" for rule in rules]


def test_switched_on(loads: Loads) -> None:
    project = loads(ON)
    assert texts(project.policy("shop").rules) == [
        "table_options.main.order.propagate_column_creations_to_target_app: "
        "{on: [column.added], match: [main.order], decide: apply}",
        "table_options.main.order.auto_unsync_deleted_columns: "
        "{on: [column.removed], match: [main.order], decide: apply, removed: drop}",
        "table_options.propagate_column_creations_to_target_app: {on: [column.added], decide: ignore}",
        "table_options.auto_unsync_deleted_columns: {on: [column.removed], decide: pause_connection}",
        "app_options.propagate_table_creations_to_target_app: {on: [schema.added, table.added], decide: apply}",
        "app_options.auto_unsync_deleted_tables: {on: [schema.removed, table.removed], decide: apply, removed: retain}",
    ]
    assert (project.detect("shop").before_sync, project.detect("shop").min_interval) == (True, 21600)
    lines = [project.tree.line(rule.origin) for rule in project.policy("shop").rules]
    assert lines == [10, 10, 9, 9, 7, 8]


def test_the_defaults_are_off(loads: Loads) -> None:
    project = loads(OFF)
    assert [(rule.on, rule.decide) for rule in project.policy("shop").rules] == [
        (("column.added",), "ignore"),
        (("column.removed",), "pause_connection"),
        (("schema.added", "table.added"), "ignore"),
        (("schema.removed", "table.removed"), "pause_connection"),
    ]
    options = AppOptions()
    assert options.enable_detect_schema_changes
    assert options.create_detect_schema_changes_ping_on_each_error
    assert options.detect_schema_changes_frequency_in_seconds == 3600
    assert project.detect("shop").relied_on == float("inf")


def test_without_options_nothing_changes(loads: Loads) -> None:
    project = loads(HEAD + "connections: {shop: {}}")
    assert project.detector("shop") is None
    assert project.policy("shop").rules == ()
    assert project.detect("shop").relied_on == 0


def test_the_connection_has_the_last_word(loads: Loads) -> None:
    text = ON.replace("shop: {}", "shop: {app_options: {unsync_deleted_tables: false}, detect: {min_interval: 5}}")
    project = loads(text)
    found = {rule.option.rpartition(".")[2]: rule for rule in project.policy("shop").rules[-2:]}
    assert found["propagate_table_creations_to_target_app"].decide == "apply"
    last = found["auto_unsync_deleted_tables"]
    assert (last.decide, last.origin[-1]) == ("pause_connection", "unsync_deleted_tables")
    assert project.detect("shop").min_interval == 5


def test_a_policy_s_own_rules_come_first(loads: Loads) -> None:
    text = HEAD + (
        "policies: {p: {preset: block_all, rules: [{on: column.added, decide: review}]}}\n"
        "connections: {shop: {policy: p, app_options: {}}}"
    )
    policy = loads(text).policy("shop")
    assert (policy.preset, policy.rules[0].option, policy.rules[1].option[:14]) == ("block_all", "", "table_options.")


@pytest.mark.parametrize("model", [AppOptions, ColumnOptions])
def test_short_names_mean_the_same(model: type[AppOptions | ColumnOptions]) -> None:
    for name, field in model.model_fields.items():
        given: object = ["x"] if "excluded" in name else not field.default
        if "frequency" in name:
            given = 1800
        assert model.model_validate({name: given}) == model.model_validate({SHORT[name]: given}) != model()


NAMES = ["public.order", "public.tmp", "public.tmp_1", "public.x.y", "audit.log", "audit.order"]
# option | value | what is left out
EXCLUDED = [
    ("excluded_external_table_names", "[order]", ["public.order", "audit.order"]),
    ("excluded_external_table_names", "[public.order, tmp]", ["public.order", "public.tmp"]),
    ("excluded_external_table_names", '["tmp*"]', []),
    ("excluded_external_table_names_regexes", '["tmp.*"]', ["public.tmp", "public.tmp_1"]),
    ("excluded_external_table_names_regexes", "['^tmp$']", ["public.tmp"]),
    ("excluded_external_table_names_regexes", "['(?i)^TMP|LOG$']", ["public.tmp", "audit.log"]),
    ("excluded_external_table_names_regexes", r"['audit\..*']", ["audit.log", "audit.order"]),
    ("excluded_tables_regexes", "['mp']", []),
]


@pytest.mark.parametrize(("option", "value", "out"), EXCLUDED)
def test_excluded_tables(loads: Loads, option: str, value: str, out: list[str]) -> None:
    selection = loads(HEAD + f"connections: {{shop: {{app_options: {{{option}: {value}}}}}}}").selection("shop")
    parts = (name.split(".", 1) for name in NAMES)
    tables = [Table(schema, name, (Column("id", Int(32)),)) for schema, name in parts]
    assert [t.path for t in tables if not is_on(selection, t)[0]] == out


# table | option | value | columns of public.order that are left out
COLUMNS = [
    ("public.order", "excluded_columns", "[note]", ["note"]),
    ("public.order", "excluded_columns", '["a*"]', ["a*"]),
    ("public.ord?r", "excluded_external_column_names", "[note, c_1]", ["note", "c_1"]),
    ("re:public\\..*", "excluded_columns", '["a*"]', ["a*"]),
    ("audit.order", "excluded_columns", "[note]", []),
    ("public.order", "excluded_external_column_names_regexes", "['^c_[0-9]$']", ["c_1"]),
    ("'*.order'", "excluded_columns_regexes", "['c_.*']", ["c_1", "c_x"]),
    ("public.[no]rder", "excluded_columns_regexes", "['c_.*']", ["c_1", "c_x"]),
    ("public.[!no]rder", "excluded_columns_regexes", "['c_.*']", []),
    ("re:public\\..*", "excluded_columns_regexes", "['(?i)C_X']", ["c_x"]),
]


@pytest.mark.parametrize(("table", "option", "value", "out"), COLUMNS)
def test_excluded_columns(loads: Loads, table: str, option: str, value: str, out: list[str]) -> None:
    text = HEAD + f"connections:\n  shop:\n    table_options:\n      {table}: {{{option}: {value}}}\n"
    columns = tuple(Column(name, String()) for name in ("note", "a*", "ab", "c_1", "c_x"))
    order = Table("public", "order", (Column("id", Int(32), key=1), *columns))
    kept = {c.name for c in select_columns(loads(text).selection("shop"), order).columns}
    assert [c.name for c in order.columns if c.name not in kept] == out


# pattern of table_options | path | whether a rule for it is about a column of that path
MATCHES = [
    ("public.order", "public.order", True),
    ("public.order", "public.orders", False),
    ("*.note", "public.order.note", False),
    ("*.note", "public.note", True),
    ("public.*", "public.order", True),
    ("*", "public.order", True),
    ("public*", "public.order", True),
    ("re:public.o.*", "public.order", True),
    ("public.or[a-d]er", "public.order", True),
]


@pytest.mark.parametrize(("pattern", "path", "expected"), MATCHES)
def test_rules_are_about_tables(pattern: str, path: str, expected: bool) -> None:
    from instep.schema.changes.kinds import ColumnAdded
    from instep.schema.policy.policy import Policy

    schema, name, *column = path.split(".")
    rule = Rule(("column.added",), "review", table_match(pattern))
    change = ColumnAdded((schema, name), Column(column[0] if column else "z", String()), 1)
    assert (decide(change, Policy(rules=(rule,))).action == "review") == expected


# what is written for the connection `shop` | where and what is said
WRONG = [
    ("app_options: {frequency: 7200}", "5: connections.shop.app_options.frequency: must be one of 1800, 3600, 21600"),
    ("app_options: {detect_schema_changes_frequency_in_seconds: 60}", "app_options.detect_schema_changes_frequency_in"),
    ("app_options: {propagate_tables: true}", "unknown key, did you mean 'propagate_table_creations_to_target_app'?"),
    ("app_options: {auto_unsync_deleted_columns: true}", "app_options.auto_unsync_deleted_columns: unknown key"),
    ("app_options: {internal_disabled_detect_schema_changes: true}", "unknown key"),
    ("app_options: {enable: 7}", "connections.shop.app_options.enable: must be true or false"),
    ("app_options: {enable: true, enable_detect_schema_changes: true}", "unknown key"),
    (
        "app_options: {excluded_tables_regexes: ['(a+)+']}",
        "app_options.excluded_tables_regexes.0: the regular expressi",
    ),
    ("app_options: {excluded_tables_regexes: ['a(']}", "is not valid"),
    ("app_options: {excluded_tables_regexes: ['a|^b']}", "has ^ inside; the whole name is compared: leave it out"),
    ("table_options: {order: {}}", "table_options.order: 'order' names no schema; write schema.order, or '*.order'"),
    ("table_options: {a.b: {excluded_columns_regexes: ['.*.*.*.*.*']}}", "table_options.a.b.excluded_columns_regexes"),
    ("table_options: {'a.*.*': {excluded_columns_regexes: ['.*.*.*']}}", "has more than 4 repeats of variable length"),
    ("table_options: {a.b: {frequency: 1800}}", "table_options.a.b.frequency: unknown key"),
    ("schema_change_handling: ALLOW", "must be one of 'ALLOW_ALL', 'ALLOW_COLUMNS' or 'BLOCK_ALL'"),
    ("detect_and_propagate_schema_changes: allow_all", "must be one of 'Propagate field changes only'"),
    ("policy: stop, schema_change_handling: BLOCK_ALL", "schema_change_handling: policy already decides what happens"),
    ("backfill: sometimes", "connections.shop.backfill: must be one of 'none', 'column' or 'table'"),
]


@pytest.mark.parametrize(("written", "said"), WRONG, ids=[w for w, _ in WRONG])
def test_what_is_wrong_is_said_with_its_line(loads: Loads, written: str, said: str) -> None:
    with pytest.raises(ProjectError) as error:
        loads(HEAD + f"connections:\n  shop: {{{written}}}")
    assert "instep.yml:5: connections.shop." in error.value.message
    assert said in error.value.message


def test_expressions_that_are_quick_become_patterns() -> None:
    for text in ("tmp_.*", r"a\.b", "(?i)^x$", r"cost\$"):
        assert Pattern(table_regex(text)).is_regex
        assert Pattern(column_regex("public.*", text)).is_regex


# what is written | preset | modifiers | seconds that a detection is relied on
WORDS = [
    ("schema_change_handling: ALLOW_ALL", "allow_all", {}, 0),
    ("schema_change_handling: ALLOW_COLUMNS", "allow_columns", {}, 0),
    ("schema_change_handling: BLOCK_ALL", "block_all", {}, 0),
    ("detect_and_propagate_schema_changes: Propagate field changes only", "propagate_columns", {}, 86400),
    ("detect_and_propagate_schema_changes: Propagate all field and stream changes", "propagate_all", {}, 86400),
    ("detect_and_propagate_schema_changes: Approve all changes myself", "approve", {}, 86400),
    ("detect_and_propagate_schema_changes: Stop future syncs", "stop", {}, 86400),
    ("detect_and_propagate_schema_changes: ignore", "approve", {}, 86400),
    ("detect_and_propagate_schema_changes: disable", "stop", {}, 86400),
    ("detect_and_propagate_schema_changes: disable_connection", "stop", {}, 86400),
    ("detect_and_propagate_schema_changes: propagate_columns", "propagate_columns", {}, 86400),
    ("detect_and_propagate_schema_changes: propagate_fully", "propagate_all", {}, 86400),
    ("detect_and_propagate_schema_changes: ignore, detect: {min_interval: 2h}", "approve", {}, 7200),
    ("policy: Approve all changes myself", "approve", {}, 0),
    ("policy: ignore", "approve", {}, 0),
    ("policy: disable_connection", "stop", {}, 0),
    ("policy: propagate_fully, backfill: enabled", "propagate_all", {"backfill": "column"}, 0),
    ("backfill: disabled", "allow_all", {"backfill": "none"}, 0),
    ("backfill: table", "allow_all", {"backfill": "table"}, 0),
]


@pytest.mark.parametrize(("written", "preset", "modifiers", "seconds"), WORDS, ids=[w[0] for w in WORDS])
def test_words_of_other_products(
    loads: Loads, written: str, preset: str, modifiers: dict[str, str], seconds: float
) -> None:
    project = loads(HEAD + f"connections:\n  shop: {{{written}}}")
    policy = project.policy("shop")
    assert (policy.name, policy.preset, policy.modifiers) == ("", preset, modifiers)
    assert project.detect("shop").relied_on == seconds


def test_a_policy_of_that_name_comes_before_a_word(loads: Loads) -> None:
    project = loads(HEAD + "policies: {ignore: {preset: block_all}}\nconnections: {shop: {policy: ignore}}")
    assert (project.policy("shop").name, project.policy("shop").preset) == ("ignore", "block_all")
