"""What the project file says of single tables and the source has no place for is told, and stops nobody."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

CUSTOMER = "main.customer"
CASES = [
    ("a cursor there is", CUSTOMER, "cursor: id", ""),
    ("a cursor that is no column", CUSTOMER, "cursor: nme",
     f"{CUSTOMER}: `cursor: nme` is not a column of it (did you mean name?)"),
    ("a pattern whose tables may lack it", "main.*", "cursor: zz", ""),
    ("a table that is not there", "main.custmer", "mode: upsert",
     f"the project file sets up a table main.custmer, which the source does not have (did you mean {CUSTOMER}?)"),
    ("a key beside the source's", CUSTOMER, "key: [name]",
     f"{CUSTOMER}: `key` is not used, the source has a primary key: id"),
    ("the source's key once more", CUSTOMER, "key: [id]", ""),
    ("a key that is no column", "main.note", "key: [at, zz]", "main.note: `key` names zz, which is not a column of it"),
    ("a name for a column that is not there", CUSTOMER, "columns: {zz: y}",
     f"{CUSTOMER}: `columns` names zz, which the table does not have"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "said", "told"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_is_said_in_vain_is_told(shop: Shop, pattern: str, said: str, told: str) -> None:
    shop.sql("create table note (at int, text varchar(9))")
    line = "  shop: {source: db, destination: lake, policy: careful}\n"
    assert line in PROJECT
    tables = line.replace("}", f', tables: {{"{pattern}": {{{said}}}}}}}')
    shop.write(text=PROJECT.replace(line, tables))
    found = shop.ok("plan")
    text = " ".join((found.out + found.err).split())
    if told:
        assert told in text
    else:
        assert "is not a column" not in text
        assert "not used" not in text
        assert "does not have" not in text
