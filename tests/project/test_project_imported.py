"""A tree of schemas, tables and columns, and back: what it switches on, off and hashes is so in the project file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from instep.project.files.imported import SchemaConfigDocument, imported_keys
from instep.project.load import load
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import String
from instep.schema.selection.selection import column_is_on, hashed, is_on

HEAD = "sources: {db: {type: sqlite, path: shop.db}}\ndestinations: {lake: {type: iceberg}}\n"
WORDS = st.sampled_from(["a", "b", "A", "a*b", "ab", "x[1]", "é"])
FLAG = st.booleans()
COLUMNS = st.dictionaries(WORDS, st.fixed_dictionaries({"enabled": FLAG, "hashed": FLAG}), max_size=3)
TABLES = st.dictionaries(WORDS, st.fixed_dictionaries({"enabled": FLAG, "columns": COLUMNS}), max_size=3)
TREES = st.fixed_dictionaries({
    "schema_change_handling": st.sampled_from(["ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL"]),
    "schemas": st.dictionaries(WORDS, st.fixed_dictionaries({"enabled": FLAG, "tables": TABLES}), max_size=3),
})  # fmt: skip


def back(keys: dict[str, Any], tree: dict[str, Any]) -> dict[str, Any]:
    """The tree that a connection with these keys stands for, asked about the same objects."""
    with tempfile.TemporaryDirectory() as folder:
        text = HEAD + yaml.safe_dump({"connections": {"shop": keys}}, allow_unicode=True)
        Path(folder, "instep.yml").write_text(text, encoding="utf-8")
        project = load(Path(folder), {"INSTEP_SALT": "x"})
        selection, preset = project.selection("shop"), project.policy("shop").preset
    schemas: dict[str, Any] = {}
    for schema, below in tree["schemas"].items():
        tables = schemas.setdefault(schema, {})
        for name, said in below["tables"].items():
            columns = tuple(Column(column, String()) for column in said["columns"])
            table = Table(schema, name, columns)
            on = {c.name: column_is_on(selection, table, c)[0] for c in columns}
            hash = {c.name: on[c.name] and hashed(selection, table.ref, c.name) for c in columns}
            tables[name] = (is_on(selection, table)[0], on, hash)
    return {"preset": preset, "schemas": schemas}


def meant(tree: dict[str, Any]) -> dict[str, Any]:
    """What the tree itself says; columns count in schemas that are on."""
    schemas: dict[str, Any] = {}
    for schema, below in tree["schemas"].items():
        tables = schemas.setdefault(schema, {})
        for name, said in below["tables"].items():
            on = {n: c["enabled"] or not below["enabled"] for n, c in said["columns"].items()}
            hash = {n: below["enabled"] and c["enabled"] and c["hashed"] for n, c in said["columns"].items()}
            tables[name] = (below["enabled"] and said["enabled"], on, hash)
    return {"preset": tree["schema_change_handling"].lower(), "schemas": schemas}


@given(TREES)
def test_a_tree_and_back(tree: dict[str, Any]) -> None:
    assert back(imported_keys(SchemaConfigDocument.model_validate(tree), {}).keys, tree) == meant(tree)


def test_notes() -> None:
    tree = {
        "schema_change_handling": "ALLOW_COLUMNS",
        "schemas": {
            "s": {"tables": {"t": {"columns": {"id": {"enabled": False}, "x": {"enabled": False}}}}},
            "off": {"enabled": False, "tables": {"u": {}}},
        },
    }
    found = imported_keys(SchemaConfigDocument.model_validate(tree), {"s.t": ("id",)})
    assert [note.partition(":")[0] for note in found.notes] == [
        "`include` excludes tables that were added since the export",
        "s.t.id is in the primary key and cannot be switched off",
        "set INSTEP_SALT in .env, to a long random text that never changes",
        "off.u is on in a schema that is off",
    ]
    assert found.keys["salt"] == "${env:INSTEP_SALT}"
