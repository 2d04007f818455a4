"""Sampled values of both columns of a suspected rename: by key, by value, never what is hashed or personal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import instep
from instep.errors import Blocked
from instep.operations.decide.sample_rename import SHOWN, RenameSample
from instep.schema.policy.similarity import PROPOSAL

PROJECT = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
policies: {strict: {preset: approve}}
connections:
  shop: {source: db, destination: lake, policy: strict, salt: "${env:SALT}", %s}
"""


def sql(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
        for one in statements:
            connection.execute(one)


def sampled(folder: Path, *, columns: str, rows: str, old: str, new: str, settings: str = "tags: []") -> RenameSample:
    """Sync a table, rename a column of it, and sample the rename that is suspected. Protection comes last: under it a
    new column that looks personal is a question of its own."""
    before = "tags: []" if settings.startswith("protect: on") else settings
    folder.joinpath("instep.yml").write_text(PROJECT % before)
    folder.joinpath(".env").write_text(f"SALT={'s' * 40}\n")
    folder.joinpath(".env").chmod(0o600)
    sql(folder, f"create table item ({columns})", f"insert into item {rows}")
    with instep.open(folder) as project:
        project.connection("shop").sync()
        sql(folder, f"alter table item rename column {old} to {new}")
        project.connection("shop").detect()
        [one] = [r for r in project.changes() if r.rule == PROPOSAL]
    folder.joinpath("instep.yml").write_text(PROJECT % settings)
    with instep.open(folder) as project:
        return project.connection("shop").sample_rename(one.id)


HUNDRED = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 100) select "


def test_values_stand_side_by_side_by_key(tmp_path: Path) -> None:
    found = sampled(
        tmp_path, columns="id integer primary key, note text, n int", rows=HUNDRED + "i, 'v' || i, i from n",
        old="note", new="remark",
    )  # fmt: skip
    assert (found.old, found.new, found.key) == ("main.item.note", "main.item.remark", ("id",))
    assert (found.compared, found.same, len(found.pairs)) == (100, 100, SHOWN)
    assert all(one.old == one.new == f"v{one.key[0]}" and one.same for one in found.pairs)


def test_rows_that_differ_come_first_and_bytes_are_hexadecimal(tmp_path: Path) -> None:
    tmp_path.joinpath("instep.yml").write_text(PROJECT % "tags: []")
    tmp_path.joinpath(".env").write_text(f"SALT={'s' * 40}\n")
    tmp_path.joinpath(".env").chmod(0o600)
    columns = "id integer primary key, body blob, n int"
    sql(tmp_path, f"create table item ({columns})", f"insert into item {HUNDRED} i, cast('b' || i as blob), i from n")
    with instep.open(tmp_path) as project:
        shop = project.connection("shop")
        shop.sync()
        sql(tmp_path, "alter table item rename column body to content", "update item set content = null where id = 50")
        shop.detect()
        [one] = [r for r in project.changes() if r.rule == PROPOSAL]
        found = shop.sample_rename(one)
        assert (found.compared, found.same) == (100, 99)
        first = found.pairs[0]
        assert (first.key, first.old, first.new, first.same) == (("50",), b"b50".hex(), None, False)
        others = [r for r in project.changes() if r.rule != PROPOSAL]
        with pytest.raises(Blocked, match="not a suspected rename of a column"):
            shop.sample_rename(others[0])
        shop.declare_rename("main.item.body", "main.item.content")
        with pytest.raises(Blocked, match="there is nothing to compare"):
            shop.sample_rename(one)


def test_without_a_key_each_value_is_looked_for_on_the_other_side(tmp_path: Path) -> None:
    found = sampled(tmp_path, columns="note text, n int", rows=HUNDRED + "'v' || (i % 5), i from n",
                    old="note", new="remark")  # fmt: skip
    assert found.key == ()
    assert sorted((one.old, one.new) for one in found.pairs) == [(f"v{i}", f"v{i}") for i in range(5)]
    assert found.same == found.compared == 100


HIDDEN = [
    ("hashed", "note", "remark", "'v' || i", 'hash: ["*.item.note"]', "column note is hashed"),
    ("hashed now", "note", "remark", "'v' || i", 'hash: ["*.item.remark"]', "column remark is hashed"),
    ("personal name", "phone", "mobile", "'v' || i", "protect: on", "looks like personal data"),
    ("personal values", "note", "remark", "'a' || i || '@example.org'", "protect: on", "looks personal"),
    ("secret", "password", "pass_phrase", "'v' || i", "protect: off", "looks like a secret"),
    ("secret values", "note", "remark",
     "'$2b$12$' || substr(hex(zeroblob(30)) || i, -53)", "protect: off", "like secrets"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "value", "settings", "why"), [case[1:] for case in HIDDEN], ids=[c[0] for c in HIDDEN]
)
def test_values_that_nobody_may_see_are_not_shown(
    tmp_path: Path, old: str, new: str, value: str, settings: str, why: str
) -> None:
    found = sampled(
        tmp_path, columns=f"id integer primary key, {old} text, n int", rows=f"{HUNDRED} i, {value}, i from n",
        old=old, new=new, settings=settings,
    )  # fmt: skip
    assert not found.pairs
    assert why in found.note


def test_what_is_allowed_by_name_is_shown(tmp_path: Path) -> None:
    settings = 'protect: {allow: ["*.item.phone", "*.item.mobile"]}'
    found = sampled(
        tmp_path, columns="id integer primary key, phone text, n int",
        rows=HUNDRED + "i, '+49 170 ' || (100000 + i), i from n",
        old="phone", new="mobile", settings=settings,
    )  # fmt: skip
    assert len(found.pairs) == SHOWN


def test_a_key_that_looks_personal_is_not_shown(tmp_path: Path) -> None:
    found = sampled(
        tmp_path, columns="email text primary key, note text, n int", rows=HUNDRED + "'k' || i, 'v' || i, i from n",
        old="note", new="remark", settings="protect: on",
    )  # fmt: skip
    assert {one.key for one in found.pairs} == {("not shown",)}
