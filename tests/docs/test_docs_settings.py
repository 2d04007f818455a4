"""docs/guides/other-products.md against the models: every option is there, and the examples do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from instep.project.load import load
from instep.project.project import Project
from instep.project.sections.detector import SHORT, AppOptions, ColumnOptions
from instep.project.sections.policies import API_WORDS, CHOOSERS, PROPAGATION
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Int
from instep.schema.selection.selection import is_on

TEXT = (Path(__file__).parents[2] / "docs" / "guides" / "other-products.md").read_text(encoding="utf-8")
HEAD = "sources: {db: {type: sqlite, path: shop.db}}\ndestinations: {lake: {type: iceberg}}\n"


def example(tmp_path: Path, title: str, kind: str = "yaml") -> Project:
    """The project of a section's block."""
    [block] = re.findall(rf"```{kind}\n(.*?)```", TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0], re.DOTALL)
    tmp_path.joinpath("instep.yml").write_text(HEAD + block)
    return load(tmp_path, {"INSTEP_SALT": "x"})


def test_every_option_is_in_the_table_with_its_short_name() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|")]
    for name in (*AppOptions.model_fields, *ColumnOptions.model_fields):
        [row] = [line for line in rows if f"| `{name}` |" in line]
        assert f"or `{SHORT[name]}` |" in row


@pytest.mark.parametrize("word", [*PROPAGATION, *API_WORDS, *CHOOSERS[1:]])
def test_every_word_is_in_the_table(word: str) -> None:
    table = "\n".join(line for line in TEXT.splitlines() if line.startswith("|"))
    assert f'"{word}"' in table or f"`{word}`" in table or f"`{word}:" in table


def test_four_words(tmp_path: Path) -> None:
    project = example(tmp_path, "Four words for a connection")
    policy = project.policy("shop")
    assert (policy.preset, policy.modifiers) == ("approve", {"backfill": "column"})
    assert project.detect("shop").min_interval == 86_400


def test_a_scheduled_detector(tmp_path: Path) -> None:
    project = example(tmp_path, "A scheduled detector")
    assert [(rule.on[-1], rule.match, rule.decide, dict(rule.modifiers)) for rule in project.policy("shop").rules] == [
        ("column.added", ("main.orders",), "apply", {}),
        ("column.removed", (r"re:^main\.[^.]*$",), "apply", {"removed": "drop"}),
        ("column.added", (), "ignore", {}),
        ("column.removed", (), "pause_connection", {}),
        ("table.added", (), "apply", {}),
        ("table.removed", (), "apply", {"removed": "retain"}),
    ]
    assert project.detect("shop").min_interval == 21_600
    selection = project.selection("shop")
    tables = [Table("main", name, (Column("id", Int(32)),)) for name in ("audit_log", "scratch", "tmp_1", "orders")]
    assert [t.name for t in tables if is_on(selection, t)[0]] == ["orders"]
    assert [p.text for p in selection.exclude_columns] == ["main.orders.internal_note"]


def test_a_tree(tmp_path: Path) -> None:
    from instep.project.files.imported import imported_keys
    from instep.project.files.policy_files import read_config

    title = "A tree of schemas, tables and columns"
    project = example(tmp_path, title)
    [document] = re.findall(r"```json\n(.*?)```", TEXT.partition(f"## {title}")[2].partition("\n## ")[0], re.DOTALL)
    file = tmp_path / "schema.json"
    file.write_text(document)
    assert imported_keys(read_config(file), {}).keys == project.tree.data["connections"]["shop"] | {
        "salt": "${env:INSTEP_SALT}"
    }
    assert project.policy("shop").preset == "allow_columns"
