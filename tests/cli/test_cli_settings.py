"""Settings of other products as the commands show them, refuse them and import them."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

OPTIONS = PROJECT.replace(
    "  shop: {source: db, destination: lake, policy: careful}\n",
    """\
  shop:
    source: db
    destination: lake
    policy: careful
    app_options:
      unsync_deleted_tables: true
      excluded_tables: [logs]
    table_options:
      main.order:
        propagate_column_creations_to_target_app: true
""",
)


@pytest.fixture
def optioned(shop: Shop) -> Shop:
    shop.write(text=OPTIONS)
    return shop


def test_show_names_options_with_their_lines(optioned: Shop) -> None:
    lines = optioned.ok("policy", "show").out.splitlines()
    assert lines[1:7] == [
        "  rule 1 {on: [column.removed], decide: review}  instep.yml:11",
        "  option table_options.main.order.propagate_column_creations_to_target_app "
        "{on: [column.added], match: [main.order], decide: apply}  instep.yml:22",
        "  option table_options.propagate_column_creations_to_target_app "
        "{on: [column.added], decide: ignore}  instep.yml:20 (default)",
        "  option table_options.auto_unsync_deleted_columns "
        "{on: [column.removed], decide: pause_connection}  instep.yml:20 (default)",
        "  option app_options.propagate_table_creations_to_target_app "
        "{on: [schema.added, table.added], decide: ignore}  instep.yml:17 (default)",
        "  option app_options.auto_unsync_deleted_tables "
        "{on: [schema.removed, table.removed], decide: apply, removed: retain}  instep.yml:18",
    ]
    rules = optioned.json("policy", "show")["rules"]
    assert rules[-1]["option"] == "app_options.auto_unsync_deleted_tables"
    assert rules[-1]["origin"] == ["connections", "shop", "app_options", "unsync_deleted_tables"]


# table and column | kind | who decides, what, where
EXPLAINED = [
    ("main.order.x", "column.added",
     "apply: applied", "option table_options.main.order.propagate_column_creations_to_target_app", "instep.yml:22"),
    ("main.customer.x", "column.added",
     "ignore: not applied", "option table_options.propagate_column_creations_to_target_app", "instep.yml:20 (default)"),
    ("main.customer.x", "column.removed", "review: waits for a review", "rule 1 of policy careful", "instep.yml:11"),
    ("main.customer", "table.removed", "apply: applied", "option app_options.auto_unsync_deleted_tables",
     "instep.yml:18"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "kind", "what", "who", "where"), EXPLAINED)
def test_explain_names_the_option(optioned: Shop, path: str, kind: str, what: str, who: str, where: str) -> None:
    lines = optioned.ok("policy", "explain", path, kind).out.splitlines()
    assert lines[1].startswith(f"  {what}")
    assert lines[2].startswith(f"  by {who} ")
    assert lines[2].endswith(where)


def test_explain_finds_the_word_that_chose_a_preset(shop: Shop) -> None:
    shop.write(text=PROJECT.replace("policy: careful", "schema_change_handling: BLOCK_ALL"))
    found = shop.json("policy", "explain", "main.order.x", "column.added")
    assert (found["decision"]["rule"], found["evaluations"][-1]["where"]) == ("preset block_all", "instep.yml:13")


def test_tables_that_never_were_are_refused_once_the_source_is_known(optioned: Shop) -> None:
    optioned.ok("validate")
    optioned.ok("plan")
    said = optioned.run("validate")
    assert (said.code, said.out) == (1, "")
    assert "instep.yml:19: connections.shop.app_options.excluded_tables: the source has no table 'logs'" in said.err
    assert optioned.run("detect").code == 1
    optioned.write(text=OPTIONS.replace("[logs]", "[custmer]").replace("main.order:", "main.orders:"))
    err = optioned.run("validate").err
    assert "excluded_tables: the source has no table 'custmer', did you mean 'customer'?" in err
    assert "connections.shop.table_options.main.orders: the source has no table 'main.orders', did you mean" in err


def test_tables_that_are_gone_or_that_a_pattern_describes_are_not_refused(optioned: Shop) -> None:
    optioned.sql("create table logs (id integer primary key)")
    optioned.ok("plan")
    optioned.ok("validate")
    optioned.sql("drop table logs")
    optioned.ok("detect")
    optioned.ok("validate")
    optioned.write(text=OPTIONS.replace("main.order:", "main.new_*:"))
    optioned.ok("validate")


def test_detect_counts(shop: Shop) -> None:
    shop.applied()
    shop.sql('alter table "order" add column note text; create table new (id integer primary key);')
    assert shop.json("detect")["counts"] == {
        "schemas": {"new": 0, "deleted": 0, "updated": 1, "unchanged": 0},
        "tables": {"new": 1, "deleted": 0, "updated": 1, "unchanged": 1},
        "columns": {"new": 2, "deleted": 0, "updated": 0, "unchanged": 6},
    }
    assert "tables: 1 new, 0 deleted, 1 updated, 1 unchanged\n" in shop.ok("detect").out


TREE = """\
{
\t"code": "Success",
\t"data": {
\t\t"schema_change_handling": "BLOCK_ALL",
\t\t"schemas": {"main": {"enabled": true, "tables": {
\t\t\t"customer": {"columns": {"id": {"enabled": false}, "city": {"enabled": true, "hashed": true}}},
\t\t\t"order": {"enabled": false}
\t\t}}}
\t}
}
"""


def test_import_prints_keys_that_load(shop: Shop) -> None:
    file = shop.folder / "tree.json"
    file.write_text(TREE)
    shop.ok("plan")
    said = shop.ok("policy", "import", str(file))
    assert "main.customer.id is in the primary key and cannot be switched off: it stays, as a salted hash" in said.err
    assert "connection shop has policy already" in said.err
    head = PROJECT.partition("policies:")[0].replace("SOURCE", "{type: sqlite, path: shop.db}")
    shop.folder.joinpath("instep.yml").write_text(head + said.out)
    shop.folder.joinpath(".env").write_text("INSTEP_SALT=x\n")
    shop.ok("validate")
    shop.applied()
    assert shop.json("query", "select * from shop.customer")["columns"][:2] == ["id", "name"]
    assert shop.run("query", 'select * from shop."order"').code == 1
    found = shop.json("policy", "import", str(file))
    assert found["keys"]["tables"]["main.customer"]["rules"][0]["match"] == ["main.customer.city"]


def test_import_writes_a_new_file_only(shop: Shop) -> None:
    file, out = shop.folder / "tree.json", shop.folder / "keys.yml"
    file.write_text(TREE)
    said = shop.ok("policy", "import", str(file), "--out", str(out))
    assert (said.out, out.read_text().partition("\n")[0]) == ("", "connections:")
    again = shop.run("policy", "import", str(file), "--out", str(out))
    assert (again.code, "keys.yml: File exists" in again.err) == (1, True)


def test_import_refuses_what_it_does_not_know(shop: Shop) -> None:
    file = shop.folder / "tree.yml"
    file.write_text("schema_change_handling: ALLOW_ALL\nschemas:\n  main:\n    tables: {t: {enabld: true}}\n")
    err = shop.run("policy", "import", str(file)).err
    assert "tree.yml:4: schemas.main.tables.t.enabld: unknown key, did you mean 'enabled'?" in err
