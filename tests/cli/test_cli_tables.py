"""What the project file says of single tables, from the file to the destination, through the commands."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

SAID = """\
    tables:
      main.customer:
        filter: "city = 'Oslo'"
        name: clients
        columns: {name: full_name}
        properties: {owner: sales, write.metadata.previous-versions-max: 9}
        sort: [name desc]
"""


def said(shop: Shop, text: str = SAID) -> None:
    connection = "  shop: {source: db, destination: lake, policy: careful}\n"
    block = f"  shop:\n    source: db\n    destination: lake\n    policy: careful\n{text}"
    shop.write(text=PROJECT.replace(connection, block))


def test_a_loaded_table_follows_the_file(shop: Shop) -> None:
    shop.ok("sync")
    said(shop)
    plan = " ".join(shop.ok("plan").out.split())
    for line in (
        "main.customer: its filter is another one, so a sync reads the whole table",
        "table shop.customer renamed to shop.clients",
        "column shop.clients.name renamed to full_name",
        "set owner = sales; set write.metadata.previous-versions-max = 9; sort rows by full_name desc",
    ):
        assert line in plan, plan
    assert "ALTER TABLE `shop`.`clients` WRITE LOCALLY ORDERED BY" in shop.ok("plan", "--ddl").out
    shop.ok("sync")
    assert shop.json("query", "select id, full_name from clients where not _instep_deleted")["rows"] == [
        {"id": 1, "full_name": "Ann"}
    ]
    assert shop.ok("verify").code == 0
    assert shop.json("plan")["costs"]["steps"] == []


def test_a_filter_that_is_wrong_is_said_before_it_fails(shop: Shop) -> None:
    said(shop, '    tables: {main.customer: {filter: "town = 1"}}\n')
    assert "the filter of table main.customer cannot be used: there is no column town" in _flat(shop.ok("plan").out)
    done = shop.run("sync")
    assert (done.code != 0, "there is no column town" in _flat(done.out + done.err)) == (True, True)
    said(shop, '    tables: {main.customer: {filter: "city IS NULL"}}\n')
    shop.ok("sync")
    assert shop.json("query", "select id from customer")["rows"] == [{"id": 2}]


REFUSED = [
    ("a name for many", "{'main.*': {name: x}}", "`name` is for one table"),
    ("a secret", "{main.customer: {properties: {api_key: x}}}", "api_key looks like a secret"),
    ("no column", "{main.customer: {sort: [' desc']}}", "is not a column to sort by"),
]


@pytest.mark.parametrize(("name", "tables", "why"), REFUSED)
def test_what_the_file_cannot_say(shop: Shop, name: str, tables: str, why: str) -> None:
    said(shop, f"    tables: {tables}\n")
    done = shop.run("validate")
    assert (done.code, why in _flat(done.out + done.err)) == (1, True), done


def _flat(text: str) -> str:
    return " ".join(text.split())
