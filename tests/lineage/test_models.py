"""Many models: what reads what, from folders and from dbt's manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lineage_world import LAKE, judged, model

from events.shows import shows
from instep.errors import ProjectError
from instep.lineage.assess import assess
from instep.lineage.load import read_manifest, read_sql
from instep.lineage.parse import UnreadableSql, parse

STAGING = model("mart.stg", "select * from shop.customer")
CHAINS: list[tuple[str, str, str]] = [
    ("of a * that is passed on", "select city from mart.stg", "breaks"),
    ("of what is passed on and unused", "select id from mart.stg", "safe"),
    ("passed on again", "select * from mart.stg", "silent"),
    ("by its last name", "select city from stg", "breaks"),
    ("by its full name", "select city from lake.mart.stg", "breaks"),
    ("of another namespace", "select city from crm.stg", "safe"),
    ("of a value that stays behind", "select fax from mart.stg", "silent"),
]


@pytest.mark.parametrize(("sql", "level"), [case[1:] for case in CHAINS], ids=[case[0] for case in CHAINS])
def test_a_view_of_a_view(sql: str, level: str) -> None:
    assert judged(model("m", sql), STAGING)["m"].level == level


@shows(event=69)
def test_what_breaks_a_model_breaks_its_readers() -> None:
    found = judged(
        model("a", "select city from shop.customer"),
        model("b", "select 1 as one from a"),
        model("c", "select * from b"),
    )
    assert {name: v.level for name, v in found.items()} == dict.fromkeys("abc", "breaks")
    assert [f.why for f in found["c"].findings] == ["it reads b, which breaks"]
    assert found["c"].of("gone") == "breaks"
    assert found["c"].of("renamed") == "safe"


def test_rows_that_shift_shift_those_of_readers() -> None:
    first = model("a", "select id from shop.customer where fax is null")
    assert judged(first, model("b", "select count(*) n from a"))["b"].level == "silent"
    named = model("a", "select id, fax from shop.customer")
    assert judged(named, model("b", "select count(*) n from a"))["b"].level == "safe"


def test_models_in_a_circle_end() -> None:
    found = judged(model("a", "select * from b"), model("b", "select a.id, c.city from a, shop.customer c"))
    assert found["b"].level == "breaks"


def test_a_view_that_is_called_like_its_table_reads_the_table() -> None:
    assert judged(model("customer", "select city from customer"))["customer"].level == "breaks"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "a/mart.one.sql": "select city from shop.customer;",
        "b/two.SQL": "-- two views\nuse mart; create view mart.x as select * from shop.`order`;\n"
        "create or replace temporary view y as select id from x",
        "broken.sql": "select id\nfrom (",
        "other.sql": "vacuum shop.customer",
        "empty.sql": "-- nothing",
        "readme.md": "select",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (tmp_path / "bytes.sql").write_bytes(b"select '\xff'")
    return tmp_path


def test_a_folder(folder: Path) -> None:
    found = {v.model.name: v for v in assess(read_sql([folder], "spark"), LAKE)}
    assert {name: v.level for name, v in found.items()} == {
        "mart.one": "breaks", "mart.x": "silent", "y": "safe",
        "broken.sql": "unknown", "other.sql": "unknown", "empty.sql": "unknown", "bytes.sql": "unknown",
    }  # fmt: skip
    assert found["broken.sql"].findings[0].why.startswith("line 2, column ")
    assert found["mart.x"].model.file == "b/two.SQL"
    assert "UTF-8" in found["bytes.sql"].model.problem


def test_a_reader_of_what_does_not_parse_is_unknown(folder: Path) -> None:
    models = [*read_sql([folder / "broken.sql"], "spark"), model("m", "select id from broken")]
    assert [v.level for v in assess(models, LAKE)] == ["unknown", "unknown"]


UNREADABLE = [
    ("another language", "def f(): return 1", "spark"),
    ("a merge", "merge into a using b on a.id = b.id when matched then delete", "spark"),
    ("a function", "create function f() returns int return select max(city) from shop.customer", "spark"),
    ("deep nesting", "select " + "(" * 5000 + "1" + ")" * 5000, "spark"),
    ("a bad character", "select 'a", "spark"),
]


@pytest.mark.parametrize(("text", "dialect"), [case[1:] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE])
def test_what_cannot_be_read_says_so(text: str, dialect: str) -> None:
    with pytest.raises(UnreadableSql):
        parse(text, dialect)


def node(name: str, sql: str | None = None, raw: str = "", **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "unique_id": f"model.p.{name}", "resource_type": "model", "name": name, "alias": name, "database": "lake",
        "schema": "mart", "original_file_path": f"models/{name}.sql", "language": "sql", "compiled_code": sql,
        "raw_code": raw, "depends_on": {"nodes": []}, "config": {"enabled": True},
    }  # fmt: skip
    return {**made, **more}


SOURCE = {"unique_id": "source.p.raw.people", "source_name": "raw", "name": "people", "identifier": "customer",
          "schema": "shop", "database": None, "relation_name": "shop.customer"}  # fmt: skip
ON_SOURCE = {"nodes": ["source.p.raw.people"]}
NODES = [
    node("compiled", 'select "city" from "shop"."customer"'),
    node("resolved", raw="{{ config(materialized='table') }}\nselect city from {{ source('raw', 'people') }}",
         depends_on=ON_SOURCE),
    node("after", raw="select * from {{ ref('p', 'renamed') }}", depends_on={"nodes": ["model.p.renamed"]}),
    node("renamed", 'select id, "fax" as f from shop.customer', alias="other"),
    node("jinja", raw="{% for c in x %}select 1 from {{ source('raw', 'people') }}{% endfor %}", depends_on=ON_SOURCE),
    node("python", raw="def model(dbt, s): ...", language="python", depends_on=ON_SOURCE),
    node("calm", "select id from shop.customer"),
    node("not_null_city", "select 1 from shop.customer where city is null", resource_type="test"),
    node("rows", resource_type="seed"),
]  # fmt: skip


def manifest(path: Path, *nodes: dict[str, Any], adapter: str | None = "postgres") -> Path:
    board = {"unique_id": "exposure.p.board", "name": "board", "depends_on": {"nodes": ["model.p.compiled"]}}
    data = {
        "metadata": {"adapter_type": adapter}, "nodes": {n["unique_id"]: n for n in nodes},
        "sources": {"source.p.raw.people": SOURCE}, "exposures": {"exposure.p.board": board},
    }  # fmt: skip
    path.write_text(json.dumps(data))
    return path


def test_a_manifest(tmp_path: Path) -> None:
    models = read_manifest(manifest(tmp_path / "manifest.json", *NODES))
    found = {v.model.name: v for v in assess(models, LAKE)}
    assert {name: v.level for name, v in found.items()} == {
        "compiled": "breaks", "resolved": "breaks", "not_null_city": "breaks", "board": "breaks",
        "jinja": "unknown", "python": "unknown", "renamed": "silent", "after": "silent", "calm": "safe",
    }  # fmt: skip
    assert "run `dbt compile`" in found["jinja"].findings[0].why
    assert "it is python" in found["python"].findings[0].why
    assert found["resolved"].findings[0].line == 2
    assert found["compiled"].model.file == "models/compiled.sql"
    assert found["renamed"].model.relation == ("lake", "mart", "other")


ADAPTERS = [("postgres", "", "postgres"), ("athena", "", "athena"), ("madeup", "", "spark"), (None, "", "spark"),
            ("postgres", "trino", "trino")]  # fmt: skip


@pytest.mark.parametrize(("adapter", "given", "dialect"), ADAPTERS)
def test_the_dialect_is_that_of_the_adapter(tmp_path: Path, adapter: str | None, given: str, dialect: str) -> None:
    models = read_manifest(manifest(tmp_path / "manifest.json", node("a", "select 1 as x"), adapter=adapter), given)
    assert models[0].dialect == dialect


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": {"a": {}}, "metadata": {}}'])
def test_what_is_no_manifest(tmp_path: Path, text: str) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(text)
    with pytest.raises(ProjectError, match="is not a dbt manifest"):
        read_manifest(file)
