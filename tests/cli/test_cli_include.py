"""An `include` that no table fits is an error with the nearest names: beside other tables the rest is done."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

LINE = "  shop: {source: db, destination: lake, policy: careful}\n"
SOURCE = "{type: sqlite, path: shop.db}"
OF_CONNECTION, OF_SOURCE = "`include` of connection shop", "`include` of source db"
SALT = "salt: '${env:SHOP_SALT}'"
CASES = [
    ("a name", "include: {tables: [main.custmer]}", "", 1, f"'main.custmer' in {OF_CONNECTION}", "main.customer"),
    ("a name beside others", "include: {tables: [main.order, main.custmer]}", "", 6, "'main.custmer'", "main.customer"),
    ("a glob", "include: {tables: ['mian.*']}", "", 1, f"'mian.*' in {OF_CONNECTION}", "main.*"),
    ("an expression", "include: {tables: ['re:x.*', main.order]}", "", 6, "'re:x.*'", "main.customer, main.order"),
    ("an expression of the file's own beside a glob", "include: {tables: ['re:main\\.custmer', 'main.*']}", "", 6,
     f"'re:main\\.custmer' in {OF_CONNECTION}", "did you mean main.customer or main.order?"),
    ("a table that is excluded", "include: {tables: [main.order]}, exclude: {tables: [main.order]}", "", 1,
     f"nothing is read by 'main.order' in {OF_CONNECTION}: connection shop excludes it by 'main.order'", ""),
    ("a table that is excluded, beside others", "include: {tables: [main.order, main.customer]}, "
     "exclude: {tables: ['*.order']}", "", 6, f"'main.order' in {OF_CONNECTION}: connection shop", "by '*.order'"),
    ("a table that the source excludes", "include: {tables: [main.order]}", "exclude: [order]", 1,
     f"nothing is read by 'main.order' in {OF_CONNECTION}: source db excludes it by 'order'", ""),
    ("a source's name that is excluded", "", "include: [order], exclude: [main.order]", 1,
     f"nothing is read by 'order' in {OF_SOURCE}: source db excludes it by 'main.order'", ""),
    ("a source's name that its connection excludes", "exclude: {tables: [main.order]}", "include: [main.order]", 1,
     f"nothing is read by 'main.order' in {OF_SOURCE}: connection shop excludes it by 'main.order'", ""),
    ("a source's name that its connection excludes, beside others", "exclude: {tables: [main.order]}",
     "include: [order, customer]", 0, "", ""),
    ("a glob of which all is excluded", "include: {tables: ['main.*']}, exclude: {tables: ['re:.*']}", "", 1,
     f"nothing is read by 'main.*' in {OF_CONNECTION}: connection shop excludes it by 're:.*'", ""),
    ("a source's glob of which all is excluded", "", "include: ['o*'], exclude: [order]", 1,
     f"nothing is read by 'o*' in {OF_SOURCE}: source db excludes it by 'order'", ""),
    ("a column to hash", f"hash: [main.customer.nmae], {SALT}", "", 6,
     "'main.customer.nmae' in `hash` of connection shop matches no column of the source", "mean main.customer.name or"),
    ("a column to exclude", "exclude: {columns: [main.customers.name]}", "", 6,
     "'main.customers.name' in `exclude`", "main.customer.name"),
    ("a pattern for columns to come", f"hash: ['*.ssn'], exclude: {{columns: ['re:.*\\.pin']}}, {SALT}",
     "", 0, "", ""),
    ("a column of a table that the source keeps out", f"hash: [main.customer.x], {SALT}",
     "exclude: [customer]", 0, "", ""),
    ("a table that is set on", "tables: {main.ordr: {enabled: true}}", "", 6, "'main.ordr'", "main.order"),
    ("a source's name", "", "include: [custmer]", 1, f"'custmer' in {OF_SOURCE}", "main.customer"),
    ("a source's name beside others", "", "include: [main.order, customers]", 6, "'customers'", "main.customer"),
    ("a source's glob that all tables are excluded of", "", "include: ['c*', order], exclude: [customer]", 0, "", ""),
    ("a source's name without its schema", "", "include: [customer]", 0, "", ""),
]  # fmt: skip


@pytest.fixture(autouse=True)
def salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SALT", "pepper")


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


def test_a_column_that_left_the_source_is_no_slip(shop: Shop) -> None:
    """It was there, whether it was read (`name` as a hash) or not (`city`)."""
    more = "hash: [main.customer.name], exclude: {columns: [main.customer.city]}, " + SALT
    shop.write(SOURCE, text=PROJECT.replace(LINE, LINE.replace("}", f", {more}}}")))
    shop.ok("sync")
    shop.sql("alter table customer drop column name; alter table customer drop column city")
    for _ in range(3):
        assert "no column of the source" not in " ".join(shop.run("sync").out.split())
        assert not any(t["mode"] == "pattern" for t in shop.json("status")["connections"][0]["tables"])


def test_patterns_that_fit_nothing_are_not_counted_as_tables(shop: Shop) -> None:
    tables = "include: {tables: [main.order, main.custmer, 'x.*']}"
    shop.write(SOURCE, text=PROJECT.replace(LINE, LINE.replace("}", f", {tables}}}")))
    assert shop.run("sync").code == 6
    out = " ".join(shop.ok("status").out.split())
    assert ("1 tables, last sync partial" in out, "main.custmer: failed" in out) == (True, True), out
