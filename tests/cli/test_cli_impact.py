"""`impact`: what changes do to those who read the lake, from a folder of SQL and from dbt's manifest."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from cli_world import CHANGED, PROJECT, REMOVED, Shop

VIEWS = {
    "cities.sql": "select id, city from shop.customer",
    "everything.sql": "select * from shop.`order`",
    "names.sql": "select name from shop.customer",
    "towns.sql": "select city as town from cities",
}
DROPS = PROJECT.replace("decide: review}", "decide: review, removed: drop}")


def with_downstream(text: str) -> str:
    return DROPS.replace("policy: careful}", f"policy: careful, downstream: {text}}}")


@pytest.fixture
def views(shop: Shop) -> Shop:
    """A lake with views over it, and a source where a column went and another came."""
    shop.write(text=DROPS)
    folder = shop.folder / "views"
    folder.mkdir()
    for name, text in VIEWS.items():
        (folder / name).write_text(text)
    shop.applied()
    shop.sql(CHANGED)
    return shop


def verdicts(document: Any) -> dict[str, str]:
    return {m["name"]: m["verdict"] for m in document["models"]}


def test_a_folder_of_views(views: Shop) -> None:
    found = views.json("impact", "--sql", str(views.folder / "views"))
    assert verdicts(found) == {"cities": "breaks", "towns": "breaks", "everything": "silent", "names": "safe"}
    removed = next(c for c in found["changes"] if c["summary"] == REMOVED)
    assert (removed["breaks"], removed["planned"], found["breaks"]) == (["cities", "towns"], False, True)
    finding = next(m for m in found["models"] if m["name"] == "cities")["findings"][0]
    assert finding == {
        "change": removed["id"], "level": "breaks", "line": 1, "output": "city",
        "why": "it names city: shop.customer.city is dropped",
    }  # fmt: skip


def test_as_text(views: Shop) -> None:
    out = views.ok("impact", "shop", "--sql", str(views.folder / "views")).out
    assert f"{REMOVED}: breaks 2 models: cities, towns\n" in out
    assert "note added (string): silently changes 1 model: everything\n" in out
    assert "cities.sql:1" in out
    assert out.endswith("4 models, 1 safe\n")


def test_what_is_kept_breaks_nobody(views: Shop) -> None:
    """A removed column that policy retains is still there: whoever reads it gets NULL for new rows."""
    views.write()
    found = views.json("impact", "--sql", str(views.folder / "views"))
    assert verdicts(found)["cities"] == "silent"
    assert "stays and gets no new values" in found["models"][0]["findings"][0]["why"]


def test_one_change_alone(views: Shop) -> None:
    views.ok("plan")
    id = views.changes()[REMOVED]
    found = views.json("impact", "--sql", str(views.folder / "views"), "--change", id)
    assert [c["id"] for c in found["changes"]] == [id]
    assert verdicts(found)["everything"] == "safe"
    views.ok("changes", "reject", id)
    assert verdicts(views.json("impact", "--sql", str(views.folder / "views")))["cities"] == "safe"
    again = views.json("impact", "--sql", str(views.folder / "views"), "--change", id)
    assert verdicts(again)["cities"] != "safe"
    said = views.run("impact", "--sql", str(views.folder / "views"), "--change", "c-nothing")
    assert (said.code, "instep changes list" in said.err) == (1, True)


def test_exit_code(views: Shop) -> None:
    folder = str(views.folder / "views")
    assert views.run("impact", "--sql", folder, "--exit-code").code == 2
    assert views.run("impact", "--sql", f"{folder}/names.sql", "--exit-code").code == 0
    assert views.run("impact", "--sql", folder).code == 0


def test_what_does_not_parse_is_unknown_and_named(views: Shop) -> None:
    (views.folder / "views" / "bad.sql").write_text("select id\nfrom shop.customer where (")
    found = views.json("impact", "--sql", str(views.folder / "views"))
    assert verdicts(found)["bad.sql"] == "unknown"
    problem = next(m["problem"] for m in found["models"] if m["name"] == "bad.sql")
    assert problem.startswith("line 2, column ")
    out = views.ok("impact", "--sql", str(views.folder / "views")).out
    assert "cannot be judged 1 model: bad.sql" in out
    assert out.endswith("5 models, 1 safe\n")


def manifest(nodes: Mapping[str, str], adapter: str = "spark") -> str:
    """A dbt manifest of models over one source."""
    made = {
        f"model.p.{name}": {
            "unique_id": f"model.p.{name}", "resource_type": "model", "name": name, "alias": name, "database": None,
            "schema": "mart", "original_file_path": f"models/{name}.sql", "language": "sql",
            "raw_code": raw, "compiled_code": None, "depends_on": {"nodes": ["source.p.shop.customer"]},
        }
        for name, raw in nodes.items()
    }  # fmt: skip
    source = {"source_name": "shop", "name": "customer", "identifier": "customer", "schema": "shop", "database": None}
    return json.dumps(
        {
            "metadata": {"adapter_type": adapter}, "nodes": made, "exposures": {},
            "sources": {"source.p.shop.customer": {"unique_id": "source.p.shop.customer", **source}},
        }
    )  # fmt: skip


def test_settings_make_plan_tell_it(views: Shop) -> None:
    file = views.folder / "target" / "manifest.json"
    file.parent.mkdir()
    file.write_text(manifest({"dim_city": "select city from {{ source('shop', 'customer') }}"}))
    views.write(text=with_downstream("{manifest: target/manifest.json, sql: views}"))
    out = views.ok("plan").out
    id = views.changes()[REMOVED]
    assert "Downstream\n" in out
    assert f"  {id} {REMOVED}: breaks 3 models: cities, dim_city, towns\n" in out
    assert verdicts(views.json("impact"))["dim_city"] == "breaks"
    assert f"{REMOVED}: breaks 3 models" in views.run("apply").err


def test_wrong_settings_do_not_stop_a_plan(views: Shop) -> None:
    views.write(text=with_downstream("{manifest: target/none.json}"))
    assert "downstream models were not evaluated: " in views.ok("plan").out
    said = views.run("impact")
    assert (said.code, "dbt compile" in said.err) == (1, True)


def test_without_models_or_sqlglot(views: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    said = views.run("impact")
    assert (said.code, "--manifest FILE or --sql FOLDER" in said.err) == (1, True)
    real = builtins.__import__

    def no_sqlglot(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "sqlglot":
            raise ModuleNotFoundError("No module named 'sqlglot'", name="sqlglot")
        return real(name, *rest, **named)

    for name in [n for n in sys.modules if n.startswith(("instep.lineage", "instep.sync.operations.impact"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", no_sqlglot)
    said = views.run("impact", "--sql", str(views.folder / "views"))
    assert (said.code, "pip install 'instep[lineage]'" in said.err) == (1, True), said
    views.write(text=with_downstream("{sql: views}"))
    assert "downstream models were not evaluated: reading SQL needs the package sqlglot" in views.ok("plan").out


WRONG = [
    ("no such folder", ("--sql", "nowhere"), "there is no folder or file nowhere"),
    ("no SQL in it", ("--sql", "lake"), "has no .sql files"),
    ("no such manifest", ("--manifest", "none.json"), "none.json: No such file"),
    ("no manifest", ("--manifest", "instep.yml"), "instep.yml is not a dbt manifest"),
    ("no such dialect", ("--sql", "views", "--dialect", "klingon"), "unknown SQL dialect 'klingon'"),
]


@pytest.mark.parametrize(("words", "said"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_options(views: Shop, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str) -> None:
    monkeypatch.chdir(views.folder)
    answer = views.run("impact", *words)
    assert (answer.code, said in answer.err) == (1, True), answer
