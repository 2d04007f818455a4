"""What a schema config says is what the next sync does, whatever policies were set before and after births."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_world import Compat, compatible

SCHEMAS = "/connections/shop/schemas"
ROWS = "create table {0} (id integer primary key, name text); insert into {0} values (1, 'a')"
WORDS = ("ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Compat]:
    with compatible(tmp_path) as opened:
        opened.sql(ROWS.format("item"))
        yield opened


def handle(compat: Compat, word: str) -> Any:
    return compat.data("PATCH", SCHEMAS, {"schema_change_handling": word})


def flags(compat: Compat) -> dict[str, bool]:
    """Return what the config says of each object that it lists."""
    found: dict[str, bool] = {}
    for name, schema in compat.data("GET", SCHEMAS)["schemas"].items():
        found[name] = schema["enabled"]
        for table, said in schema["tables"].items():
            found[table] = said["enabled"] and schema["enabled"]
            found |= {f"{table}.{c}": one["enabled"] and found[table] for c, one in said["columns"].items()}
    return found


def copied(compat: Compat, *tables: str) -> dict[str, list[str]]:
    destination, found = compat.app.destination("lake"), {}
    for table in tables:
        if destination.schema.inspect([("shop", table)]).tables:
            names = destination.write.read(("shop", table)).read_all().column_names
            found[table] = [name for name in names if not name.startswith("_instep_")]
    return found


def born(compat: Compat, number: int) -> None:
    compat.sql(f"{ROWS.format(f'late_{number}')}; alter table item add column c_{number} text")


@pytest.mark.sampled
@pytest.mark.parametrize("word", WORDS)
def test_what_is_born_before_the_first_sync_is_decided_by_the_policy(shop: Compat, word: str) -> None:
    shop.ask("POST", f"{SCHEMAS}/reload")
    handle(shop, word)
    born(shop, 1)
    shop.sync()
    expected = ["id", "name", *(["c_1"] if word != "BLOCK_ALL" else [])]
    late = {"late_1": ["id", "name"]} if word == "ALLOW_ALL" else {}
    assert copied(shop, "item", "late_1") == {"item": expected, **late}
    said = flags(shop)
    assert (said["item"], said["late_1"]) == (True, word == "ALLOW_ALL")
    assert said.get("item.c_1", True) == (word != "BLOCK_ALL")


PAIRS = [(first, second) for first in WORDS for second in WORDS]
SOON = [("BLOCK_ALL", "ALLOW_ALL"), ("ALLOW_ALL", "BLOCK_ALL")]
"""What runs each time; all of the others when there is time."""


@pytest.mark.drawn(3)
@pytest.mark.sampled
@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(*p, marks=() if p in SOON else pytest.mark.slow) for p in PAIRS]
)
def test_what_is_said_is_what_is_done(shop: Compat, first: str, second: str, synced: bool, looked: bool) -> None:
    """Two policies one after the other, before and after the first sync; `looked`: what was born was found between."""
    shop.sync() if synced else shop.ask("POST", f"{SCHEMAS}/reload")
    handle(shop, first)
    born(shop, 1)
    if looked:
        shop.ask("POST", f"{SCHEMAS}/reload")
    before = flags(shop)
    handle(shop, second)
    said = flags(shop)
    assert {name for name, on in before.items() if not on} <= {name for name, on in said.items() if not on}
    shop.sync()
    done = copied(shop, "item", "late_1")
    if looked:
        assert flags(shop) == said
        assert ("late_1" in done, "c_1" in done["item"]) == (said["late_1"], said.get("item.c_1", True))
    else:
        assert ("late_1" in done) == (second == "ALLOW_ALL")
        assert ("c_1" in done["item"]) == (second != "BLOCK_ALL")
    shop.sync()
    assert copied(shop, "item", "late_1") == done


def test_what_was_listed_off_stays_off_until_somebody_switches_it_on(shop: Compat) -> None:
    shop.sync()
    handle(shop, "BLOCK_ALL")
    born(shop, 1)
    shop.sync()
    handle(shop, "ALLOW_ALL")
    shop.sql("alter table late_1 add column more text")
    shop.sync()
    assert copied(shop, "item", "late_1") == {"item": ["id", "name"]}
    shop.ask("PATCH", f"{SCHEMAS}/main/tables/late_1", {"enabled": True})
    shop.ask("PATCH", f"{SCHEMAS}/main/tables/item/columns/c_1", {"enabled": True})
    shop.sync()
    assert copied(shop, "item", "late_1") == {"item": ["id", "name", "c_1"], "late_1": ["id", "name", "more"]}
    handle(shop, "BLOCK_ALL")
    shop.sync()
    assert flags(shop) | {"": True} == {"main": True, "item": True, "late_1": True, "item.c_1": True, "": True}


def test_what_is_born_under_a_schema_that_is_off_is_listed_too(shop: Compat) -> None:
    shop.sync()
    handle(shop, "BLOCK_ALL")
    shop.ask("PATCH", f"{SCHEMAS}/main", {"enabled": False})
    born(shop, 1)
    shop.ask("POST", f"{SCHEMAS}/reload")
    handle(shop, "ALLOW_ALL")
    main = shop.data("PATCH", f"{SCHEMAS}/main", {"enabled": True})["schemas"]["main"]
    assert (main["tables"]["item"]["enabled"], main["tables"]["late_1"]["enabled"]) == (True, False)
    assert main["tables"]["item"]["columns"]["c_1"]["enabled"] is False
    shop.sync()
    assert copied(shop, "item", "late_1") == {"item": ["id", "name"]}


@pytest.mark.parametrize("word", WORDS)
def test_a_config_made_first_leaves_the_rest_to_its_policy(shop: Compat, word: str) -> None:
    shop.sql(ROWS.format("other"))
    body = {
        "schema_change_handling": word,
        "schemas": {"main": {"enabled": True, "tables": {"item": {"enabled": True}}}},
    }
    assert shop.data("POST", SCHEMAS, body) == body
    said = flags(shop)
    assert (said["item"], said["other"]) == (True, word == "ALLOW_ALL")
    born(shop, 1)
    shop.sync()
    columns = ["id", "name", *(["c_1"] if word != "BLOCK_ALL" else [])]
    more = {"other": ["id", "name"], "late_1": ["id", "name"]} if word == "ALLOW_ALL" else {}
    assert copied(shop, "item", "other", "late_1") == {"item": columns, **more}


def test_a_policy_alone_decides_about_everything(shop: Compat) -> None:
    shop.ask("POST", SCHEMAS, {"schema_change_handling": "BLOCK_ALL", "schemas": {}})
    shop.sync()
    assert copied(shop, "item") == {}
    assert flags(shop)["item"] is False
    shop.ask("PATCH", f"{SCHEMAS}/main", {"enabled": True, "tables": {"item": {"enabled": True}}})
    shop.sync()
    assert copied(shop, "item") == {"item": ["id", "name"]}


def test_flags_are_kept_as_they_were_set_under_a_schema_that_is_off(shop: Compat) -> None:
    shop.sql(ROWS.format("other"))
    shop.ask("POST", f"{SCHEMAS}/reload")
    tables = {"item": {"enabled": True}, "other": {"enabled": False}}
    main = shop.data("PATCH", f"{SCHEMAS}/main", {"enabled": False, "tables": tables})["schemas"]["main"]
    assert main["enabled"] is False
    assert {name: t["enabled"] for name, t in main["tables"].items()} == {"item": True, "other": False}
    shop.sync()
    assert copied(shop, "item", "other") == {}
    handle(shop, "BLOCK_ALL")
    shop.ask("PATCH", f"{SCHEMAS}/main", {"enabled": True})
    shop.sync()
    assert copied(shop, "item", "other") == {"item": ["id", "name"]}
