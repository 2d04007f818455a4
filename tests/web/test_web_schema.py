"""The schema of a connection on the page: its tree with switches, patterns, versions, and one object's history."""

from __future__ import annotations

import re

import pytest
from web_world import Site, needs_browser, served, tab

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.server.web.screens.schema import switched_objects
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.catalogs.reviews import DetectedChange

SCHEMA = "/connections/eu/schema"


def paths(text: str) -> list[str]:
    """Return the tables that a page shows."""
    return re.findall(r'data-open href="[^"]+" id="([^"]+)"', text)


def discover(shop: Site, tables: int, columns: int) -> None:
    names = [Column(f"column_{at:02}", parse("string"), key=int(at == 0)) for at in range(columns)]
    found = Catalog.of(Table(f"s{at // 1000}", f"table_{at:04}", tuple(names)) for at in range(tables))
    shop.store.discoveries.save("us", CachedDiscovery(found, "f"))


def test_the_tree_shows_tables_and_the_columns_of_the_open_one(shop: Site) -> None:
    text = shop.get(SCHEMA)
    assert paths(text) == ["main.item", "main.place"]
    assert "main.item.colour" not in text
    text = shop.get(f"{SCHEMA}?open=main.item")
    for said in ("main.item.colour", "key 1", "cursor", "int32", "≠ source", "main.item.id is in the key of its table"):
        assert said in text, said
    assert re.search(r'name="on" value="main.item.id"[^>]* disabled', text)
    assert "no table 'main.nothing' is known" in shop.get(f"{SCHEMA}?open=main.nothing", status=404).replace(
        "&#39;", "'"
    )


def test_a_search_fits_tables_and_columns_as_text_or_expression(shop: Site) -> None:
    found = {"PLA": ["main.place"], "colour": ["main.item"], "re:main\\.p.*": ["main.place"], "x": []}
    for search, tables in found.items():
        assert paths(shop.get(f"{SCHEMA}?search={search}")) == tables, search
    assert "1 tables and 2 columns" in shop.get(f"{SCHEMA}?pattern=main.place*")
    assert "main.place.note" in shop.get(f"{SCHEMA}?pattern=re:.*note")
    for wrong in ("re:(", "re:(a%2B)%2B$", "re:"):
        assert 'role="alert"' in shop.get(f"{SCHEMA}?search={wrong}", status=422), wrong
    assert 'role="alert"' in shop.get(f"{SCHEMA}?pattern=re:(", status=422)


def test_switches_are_previewed_and_then_turned(shop: Site) -> None:
    form = {"was": ["main.item", "main.place"], "on": ["main.item"], "back": SCHEMA}
    text = shop.post(SCHEMA, "approver", **form, button="preview").text
    assert "Switch off" in text
    assert not shop.store.switches.of("eu")
    assert 'name="turn_off" value="main.place"' in text
    shop.post(SCHEMA, "approver", turn_off="main.place", back=SCHEMA, button="do")
    [switch] = shop.store.switches.of("eu")
    assert (switch.path, switch.enabled) == ("main.place", False)
    assert paths(shop.get(f"{SCHEMA}?state=disabled")) == ["main.place"]
    assert paths(shop.get(f"{SCHEMA}?state=switched")) == ["main.place"]
    assert paths(shop.get(f"{SCHEMA}?state=enabled")) == ["main.item"]
    assert "approver" in shop.get(f"{SCHEMA}?state=switched")


def tabs_with_counts(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r">([A-Z][a-z ]+) \((\d+)\)</a>", text)}


def test_tabs_show_what_is_new_excluded_and_unsupported(shop: Site) -> None:
    """One table of each kind: accepted with a new column, new, rejected, excluded, with an excluded column, a view, one
    that may not be read, one with a name that no destination holds; one that is switched off is in none of these."""

    def table(name: str, *columns: str, kind: str = "table") -> Table:
        return Table("s", name, tuple(Column(one, parse("string"), key=int(one == "id")) for one in columns), kind=kind)

    spec = {"source": "db", "destination": "lake", "exclude": {"tables": ["s.tmp_*"], "columns": ["*.secret", "*.id"]}}
    shop.app.objects.put("connection", "us", spec, who="ann")
    old = [table("grown", "id", "a"), table("plain", "id")]
    shop.store.accepted.add("us", Catalog.of(old), who="ann", why="baseline", base="")
    now = [
        table("grown", "id", "a", "b"), table("plain", "id"), table("fresh", "id"), table("tmp_1", "id"),
        table("half", "id", "secret"), table("seen", "id", kind="view"), table("odd", "id", " "), table("off", "id"),
        table("no", "id"),
    ]  # fmt: skip
    denied = {("s", "closed"): "permission denied for table closed", ("s", "plain", "id"): "no right to select it"}
    shop.store.discoveries.save("us", CachedDiscovery(Catalog.of(now), "f", denied=denied))
    added = {"kind": "table.added", "table": ["s", "no"], "after": {"schema": "s", "name": "no", "columns": []}}
    found = DetectedChange("no", "table.added", ("s", "no"), "", "new", added, "review", "preset approve", "waits")
    [review] = shop.store.reviews.record("us", [found], "f")
    shop.store.reviews.decide(review.id, "rejected", "ann")
    address = "/connections/us/schema"
    shop.post(address, turn_off="s.off", back=SCHEMA, button="do")
    text = shop.get(address)
    assert tabs_with_counts(text) == {
        "All": 10, "Enabled": 6, "Disabled": 4, "New": 4, "Excluded": 3, "Unsupported": 3, "Switched": 1,
    }  # fmt: skip
    expected = {
        "new": ["s.fresh", "s.grown", "s.half", "s.odd"],
        "excluded": ["s.half", "s.seen", "s.tmp_1"],
        "unsupported": ["s.closed", "s.odd", "s.plain"],
        "switched": ["s.off"],
    }
    for state, tables in expected.items():
        assert paths(shop.get(f"{address}?state={state}")) == tables, state
    assert "permission denied for table closed" in shop.get(f"{address}?state=unsupported")
    assert "No table of eu is here" in shop.get(f"{SCHEMA}?state=unsupported")
    assert tabs_with_counts(shop.get(f"{address}?search=s.g"))["New"] == 1
    opened = shop.get(f"{address}?state=unsupported&open=s.odd")
    assert "Unsupported:" in opened
    assert "it has a name without a visible character" in opened
    assert shop.get(f"{address}?open=s.closed")


def test_a_mixed_table_says_so(shop: Site) -> None:
    shop.post(SCHEMA, turn_off="main.item.colour", back=SCHEMA, button="do")
    text = shop.get(SCHEMA)
    assert "3 of 4 columns on" in re.sub(r"\s+", " ", text)
    assert re.search(r'value="main.item" aria-label="[^"]*some of its columns are off[^"]*" checked data-some', text)


def test_switching_needs_its_role_and_a_key_stays(shop: Site) -> None:
    assert "Switching needs the role approver" in shop.get(SCHEMA, "operator")
    assert shop.post(SCHEMA, "operator", turn_off="main.place", button="do").status_code == 403
    answer = shop.post(SCHEMA, turn_off="main.item.id", back=SCHEMA, button="do")
    assert answer.status_code == 409
    assert not shop.store.switches.of("eu")


def test_only_what_is_set_otherwise_is_switched() -> None:
    assert switched_objects({"was": ["a", "b"], "on": ["b", "c"]}) == (["c"], ["a"])
    assert switched_objects({"was": ["a"], "on": ["a"]}) == ([], [])
    assert switched_objects({"turn_on": ["x"], "was": ["a"]}) == (["x"], [])


def test_a_large_schema_comes_in_pages(shop: Site) -> None:
    discover(shop, 230, 140)
    address, seen = "/connections/us/schema", list[str]()
    while address:
        text = shop.get(address)
        assert text.count("<tr") <= 200
        seen += paths(text)
        address = next(iter(re.findall(r'rel="next" href="([^"]+)"', text)), "").replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 230
    text = shop.get("/connections/us/schema?open=s0.table_0000")
    assert 100 < text.count("<tr") <= 200
    [more] = re.findall(r'href="([^"]+)">Next columns', text)
    assert "column_139" in shop.get(more.replace("&amp;", "&"))


def test_a_later_detection_is_seen_at_once(shop: Site) -> None:
    discover(shop, 2, 2)
    assert len(paths(shop.get("/connections/us/schema"))) == 2
    discover(shop, 3, 2)
    assert len(paths(shop.get("/connections/us/schema"))) == 3


def test_two_versions_are_compared(shop: Site) -> None:
    text = shop.get(f"{SCHEMA}/history?before=1&after=2")
    assert "column main.item.colour added" in text
    assert "1 change" in text
    assert "Back to version 1" in text
    assert re.search(r'href="/do/undo\?connection=eu&amp;what=p-', text)
    backwards = shop.get(f"{SCHEMA}/history?before=2&after=1")
    assert "column main.item.colour removed" in backwards
    assert "breaking" in backwards
    assert "table main.place added" in shop.get(f"{SCHEMA}/history?before=0&after=1")
    assert "These two versions are the same" in shop.get(f"{SCHEMA}/history?before=1&after=1")
    assert "colour" in shop.get(f"{SCHEMA}/history?side=source")
    shop.get(f"{SCHEMA}/history?before=1&after=99", status=404)
    shop.get(f"{SCHEMA}/history?before=x&after=1", status=422)
    assert "No accepted schema is known yet" in shop.get("/connections/us/schema/history")


def test_a_version_is_exported(shop: Site) -> None:
    for form, said in (("json", '"catalog"'), ("sql", 'CREATE TABLE "main"."item"'), ("markdown", "## main.item")):
        assert said in shop.get(f"{SCHEMA}/export?version=2&format={form}"), form
    shop.get(f"{SCHEMA}/export?version=2&format=xml", status=422)
    shop.get(f"{SCHEMA}/export?version=9", status=404)


def test_an_object_says_since_which_version_and_by_whom(shop: Site) -> None:
    text = shop.get(f"{SCHEMA}/object?of=main.item")
    assert re.search(r"colour</a></th>.*?<td>1\.1</td>", text, re.DOTALL)
    assert "column main.item.colour added" in text
    shop.get(f"{SCHEMA}/object", status=422)


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("scripts", [True, False])
def test_a_table_is_switched_off_in_a_browser(shop: Site, browser: object, scripts: bool) -> None:
    with served(shop.app) as base, tab(browser, base, shop.token("approver"), scripts=scripts) as opened:
        shown = opened.open(SCHEMA)
        shown.uncheck("input[value='main.place'][name=on]")
        shown.click("text=Preview the switches")
        shown.click("button:has-text('Switch 1 objects')")
        shown.wait_for_selector("text=Done: 1 switches")
    [switch] = shop.store.switches.of("eu")
    assert (switch.path, switch.enabled) == ("main.place", False)


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_schemas_are_accessible(shop: Site, browser: object, theme: str) -> None:
    shop.post(SCHEMA, turn_off="main.item.colour", back=SCHEMA, button="do")
    with served(shop.app) as base, tab(browser, base, shop.token("admin"), theme=theme) as opened:
        shown = opened.open(f"{SCHEMA}?open=main.item&pattern=main.*")
        assert shown.evaluate("document.querySelector('[data-some]').indeterminate")
        assert not opened.violations()
        for path in (f"{SCHEMA}/history?before=1&after=2", f"{SCHEMA}/object?of=main.item"):
            opened.open(path)
            assert not opened.violations(), path
        shown = opened.open(SCHEMA)
        shown.fill("#search", "place")
        shown.wait_for_selector("text=1 of 2 tables")
