"""The cap on new columns, as the project file sets it."""

from __future__ import annotations

from cli_world import PROJECT, Shop


def test_new_columns_beyond_the_limit_wait(shop: Shop) -> None:
    shop.write(text=PROJECT.replace("policy: careful}", "policy: careful, max_new_columns: 1}"))
    shop.applied()
    shop.sql("alter table customer add column a text; alter table customer add column b text")
    out = shop.ok("plan").out
    assert "+ column main.customer.a added (string)" in out
    assert (
        "2 columns of this table are new, 1 are accepted at once: approve it, or raise max_new_columns (new column "
        "limit)" in out
    )
    shop.ok("apply", "--yes")
    assert list(shop.changes()) == ["column main.customer.b added (string)"]
    shop.ok("plan")
    shop.ok("changes", "approve", *shop.changes().values())
    shop.ok("apply", "--yes")
    assert {"a", "b"} <= set(shop.json("query", "select * from shop.customer")["columns"])
