"""An `include` that no table fits is an error with the nearest names: beside other tables the rest is done."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

LINE = "  shop: {source: db, destination: lake, policy: careful}\n"
SOURCE = "{type: sqlite, path: shop.db}"
OF_CONNECTION, OF_SOURCE = "`include` of connection shop", "`include` of source db"
CASES = [
    ("a name", "include: {tables: [main.custmer]}", "", 1, f"'main.custmer' in {OF_CONNECTION}", "main.customer"),
    ("a name beside others", "include: {tables: [main.order, main.custmer]}", "", 6, "'main.custmer'", "main.customer"),
    ("a glob", "include: {tables: ['mian.*']}", "", 1, f"'mian.*' in {OF_CONNECTION}", "main.*"),
    ("an expression", "include: {tables: ['re:x.*', main.order]}", "", 6, "'re:x.*'", "main.customer, main.order"),
    ("a table that is set on", "tables: {main.ordr: {enabled: true}}", "", 6, "'main.ordr'", "main.order"),
    ("a source's name", "", "include: [custmer]", 1, f"'custmer' in {OF_SOURCE}", "main.customer"),
    ("a source's name beside others", "", "include: [main.order, customers]", 6, "'customers'", "main.customer"),
    ("a source's glob that all tables are excluded of", "", "include: ['c*', order], exclude: [customer]", 0, "", ""),
    ("a source's name without its schema", "", "include: [customer]", 0, "", ""),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("of", "at", "code", "told", "near"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_an_include_that_nothing_fits_is_an_error(
    shop: Shop, of: str, at: str, code: int, told: str, near: str
) -> None:
    text = PROJECT.replace(LINE, LINE.replace("}", f", {of}}}") if of else LINE)
    shop.write(SOURCE.replace("}", f", {at}}}") if at else SOURCE, text=text)
    for words in (["detect"], ["plan"], ["apply", "--yes"], ["sync"], ["sync"], ["plan"], ["apply"]):
        found = shop.run(*words)
        shown = " ".join((found.out + found.err).split())
        assert (found.code, shown) == (code, shown), words
        assert told in shown
        assert near in shown
        assert ("nothing to do" in shown) <= (code == 0), words
    if told:
        assert any(told.strip("'").split("'")[0] in t["error"] for t in shop.json("status")["connections"][0]["tables"])


def test_a_table_that_left_the_source_is_no_slip(shop: Shop) -> None:
    """It was there: its removal is a change, not a name that was mistyped."""
    shop.write(
        SOURCE, text=PROJECT.replace(LINE, LINE.replace("}", ", include: {tables: [main.order, main.customer]}}"))
    )
    shop.ok("sync")
    shop.sql("drop table customer")
    for _ in range(3):
        assert "no table of the source" not in shop.ok("sync").out
