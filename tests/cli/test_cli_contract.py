"""`contract`: a document that the standard's own schema accepts, what breaks it, and the settings that hold to it."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.resources import files
from typing import Any

import pytest
import yaml
from cli_world import CHANGED, PROJECT, REMOVED, Shop

HASHED = PROJECT.replace("policy: careful}", "policy: careful, hash: [main.customer.name], salt: '${env:SALT}'}")


@pytest.fixture
def loaded(shop: Shop) -> Shop:
    shop.applied()
    return shop


def write(shop: Shop, document: Any) -> str:
    path = shop.folder / "contract.yml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def properties(document: Any, table: str) -> dict[str, Any]:
    found = next(o for o in document["schema"] if o["name"] == table)
    return {p["name"]: p for p in found["properties"]}


def test_the_document_is_one_of_the_standards(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON schema comes from the package that the standard's authors publish."""
    jsonschema: Any = import_module("jsonschema")
    monkeypatch.setenv("SALT", "a long random text")
    shop.write(text=HASHED)
    shop.applied()
    document = yaml.safe_load(shop.ok("contract", "export").out)
    schema = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text())
    assert [e.message for e in jsonschema.Draft201909Validator(schema).iter_errors(document)] == []
    assert (document["id"], document["version"], document["apiVersion"]) == ("shop-shop", "1.0", "v3.1.0")
    found = properties(document, "customer")
    assert found["id"]["primaryKeyPosition"] == 1
    assert found["name"]["classification"] == "restricted"
    assert {"property": "hashed", "value": True} in found["name"]["customProperties"]
    assert (found["id"]["required"], found["city"]["required"]) == (True, False)


def test_it_is_the_same_again_and_changes_with_the_schema(loaded: Shop) -> None:
    file = loaded.folder / "shop.odcs.yaml"
    loaded.ok("contract", "export", "-o", str(file))
    text = file.read_text()
    assert loaded.ok("contract", "export").out == text
    loaded.sql(CHANGED)
    loaded.applied()
    now = loaded.json("contract", "export", "--table", "main.order")["contract"]
    assert [o["name"] for o in now["schema"]] == ["order"]
    assert (now["version"], "note" in properties(now, "order")) == ("1.1", True)


def test_what_the_source_has_now_and_what_is_accepted(loaded: Shop) -> None:
    file = str(loaded.folder / "shop.odcs.yaml")
    loaded.ok("contract", "export", "-o", file)
    assert loaded.ok("contract", "check", file).out == "the contract is satisfied\n"
    loaded.sql(CHANGED)
    said = loaded.run("contract", "check", file, "--output", "json")
    assert (said.code, said.json["within"], said.json["compared"]) == (2, False, "source")
    assert [b["code"] for b in said.json["breaches"]] == ["column.missing"]
    assert [n["text"] for n in said.json["notes"]] == ["column main.order.note is not in the contract"]
    out = loaded.run("contract", "check", file).out
    assert "column main.customer.city is missing" in out
    assert out.endswith("1 violation\n")
    assert loaded.ok("contract", "check", file, "--recorded").out == "the contract is satisfied\n"


def test_what_is_told_of_a_column_names_the_line_of_the_column(loaded: Shop) -> None:
    """What has no line of its own, such as a column that the file does not have, is told at its table's."""
    file = loaded.folder / "contract.yml"
    file.write_text(
        yaml.safe_dump({"apiVersion": "v3.1.0", "kind": "DataContract", "id": "shop", "version": "1.0"})
        + """schema:
  - name: customer
    properties:
      - name: name
        logicalType: date
      - name: city
        required: true
      - {name: fax, logicalType: string}
"""
    )
    head = file.read_text().splitlines().index("schema:") + 1
    found = loaded.run("contract", "check", str(file), "--output", "json").json
    lines = {b["text"].split()[1].rpartition(".")[2]: b["line"] - head for b in found["breaches"]}
    assert lines == {"name": 3, "city": 5, "fax": 7}
    assert {n["line"] - head for n in found["notes"]} == {1}


def test_a_contract_that_others_wrote(loaded: Shop) -> None:
    said = {"name": "id", "logicalType": "integer", "required": True, "primaryKey": True}
    amount = {"name": "amount", "logicalType": "date", "quality": [{"metric": "nullValues", "mustBe": 0}]}
    document = {
        "apiVersion": "v3.0.2", "kind": "DataContract", "id": "x", "version": "1.0.0", "status": "draft",
        "team": {"name": "sales"}, "schema": [{"name": "order", "properties": [said, amount]}],
    }  # fmt: skip
    answer = loaded.run("contract", "check", write(loaded, document), "--output", "json")
    assert [b["path"] for b in answer.json["breaches"]] == ["main.order.amount"]
    assert [n["path"] for n in answer.json["notes"]] == ["main.order.customer_id"]


def test_import_gives_settings_that_hold_the_contract(loaded: Shop) -> None:
    """The keys are put into the project file, and what breaks the contract waits."""
    file = str(loaded.folder / "shop.odcs.yaml")
    loaded.ok("contract", "export", "-o", file)
    keys = yaml.safe_load(loaded.ok("contract", "import", file).out)["connections"]["shop"]
    assert keys["include"] == {"tables": ["main.customer", "main.order"]}
    project = yaml.safe_load(PROJECT.replace("SOURCE", "{type: sqlite, path: shop.db}").replace("PRESET", "allow_all"))
    project["policies"]["careful"]["rules"] = []
    project["connections"]["shop"] |= keys
    loaded.write(text=yaml.safe_dump(project))
    loaded.ok("validate")
    loaded.sql(CHANGED)
    loaded.sql("create table other (id integer primary key)")
    assert REMOVED in loaded.ok("detect").out
    assert list(loaded.changes()) == [REMOVED]
    assert "has include, tables already" in loaded.ok("contract", "import", file).err


def test_import_says_what_it_cannot(loaded: Shop) -> None:
    hidden = {"name": "name", "customProperties": [{"property": "hashed", "value": True}]}
    tables = [{"name": "customer", "properties": [hidden]}, {"name": "nowhere"}]
    document = {"apiVersion": "v3.1.0", "kind": "DataContract", "id": "x", "version": "1", "schema": tables}
    said = loaded.ok("contract", "import", write(loaded, document), "--action", "pause_table")
    keys = yaml.safe_load(said.out)["connections"]["shop"]
    assert (keys["hash"], keys["salt"]) == (["main.customer.name"], "${env:INSTEP_SALT}")
    assert "key.changed" in keys["tables"]["main.customer"]["rules"][0]["on"]
    for note in ("nowhere is not among the tables", "nowhere names no schema", "set INSTEP_SALT"):
        assert note in said.err


WRONG = [
    ("no file", None, "contract export -o FILE"),
    ("no mapping", "- a", "is not a data contract"),
    ("no YAML", "a: [", "contract.yml:1"),
    ("another version", "apiVersion: v2.2.2\nid: x\nversion: '1'\nschema: [{name: a}]", "contract.yml:1: apiVersion"),
    ("no schema", "apiVersion: v3.1.0\nid: x\nversion: '1'", "schema"),
    ("a type of nobody's", "apiVersion: v3.1.0\nid: x\nversion: '1'\nschema:\n- name: a\n  properties:\n  - name: b\n"
     "    customProperties: [{property: instepType, value: int7}]", "contract.yml:7: b: unknown type"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_files_are_named_with_their_lines(shop: Shop, text: str | None, said: str) -> None:
    path = shop.folder / "contract.yml"
    if text is not None:
        path.write_text(text)
    answer = shop.run("contract", "check", str(path))
    assert (answer.code, said in answer.err) == (1, True), answer


def test_before_anything_is_accepted(shop: Shop) -> None:
    for words in (("export",), ("check", write(shop, {}), "--recorded")):
        said = shop.run("contract", *words)
        assert (said.code, "has accepted nothing yet" in said.err) == (1, True)
    shop.applied()
    said = shop.run("contract", "export", "--table", "main.custmer")
    assert (said.code, "no accepted table of shop is called main.custmer" in said.err) == (1, True)
    assert shop.run("contract", "import", "x.yml", "--action", "never").code == 64
