"""Old names from the setting to the command that ends them; a rename that a person maps counts like any other."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop


@pytest.fixture
def renamed(shop: Shop) -> Shop:
    """A column that a person has mapped to its old one, in a connection that keeps old names."""
    shop.write(text=PROJECT.replace("policy: careful}", "policy: careful, keep_old_names: 30d}"))
    shop.applied()
    shop.sql("alter table customer rename column city to town")
    shop.ok("detect")
    shop.ok("changes", "map", "main.customer.city", "main.customer.town")
    return shop


def test_where_they_are_said(renamed: Shop) -> None:
    [found] = renamed.json("table", "old-names", "main.customer")["old_names"]
    told = {"table": "shop.customer", "name": "city", "column": "town", "view": "shop.customer__compat"}
    assert {**told, "until": found["until"], "trouble": None} == found
    line = "old name city for shop.customer.town, in shop.customer__compat, until 20"
    said = [renamed.ok(*c).out for c in (("status",), ("table", "show", "main.customer"))]
    assert [line in " ".join(s.split()) for s in said] == [True, True]
    assert renamed.json("table", "show", "main.customer")["old_names"] == [found]
    assert renamed.json("status")["connections"][0]["old_names"] == [found]
    assert renamed.json("query", "select city, town from customer__compat")["columns"] == ["city", "town"]
    [event] = [e for e in renamed.json("history")["events"] if e["type"] == "old_name.retained"]
    assert (event["data"]["name"], event["data"]["view"]) == ("city", "shop.customer__compat")


def test_they_are_extended_and_ended(renamed: Shop) -> None:
    names = ("table", "old-names", "main.customer")
    [before] = renamed.json(*names)["old_names"]
    [after] = renamed.json(*names, "city", "--keep", "8w")["old_names"]
    assert after["until"] > before["until"]
    assert renamed.json(*names, "--drop")["old_names"] == []
    assert "no old names" in renamed.ok(*names).out
    assert renamed.run("query", "select city from customer__compat").code == 1
    [event] = [e for e in renamed.json("history")["events"] if e["type"] == "old_name.ended"]
    assert event["data"]["why"].startswith("ended by ")


REFUSED = [
    ("no such table", ("main.custmer",), "did you mean main.customer?"),
    ("no such name", ("main.customer", "town"), "its old names: city"),
    ("both", ("main.customer", "--drop", "--keep", "1d"), "cannot be combined"),
    ("no duration", ("main.customer", "--keep", "long"), "'long' is not a duration"),
]


def test_what_is_refused(renamed: Shop) -> None:
    for name, arguments, message in REFUSED:
        done = renamed.run("table", "old-names", *arguments)
        assert (done.code, message in " ".join(done.err.split())) == (1, True), name
