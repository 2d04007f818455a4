# ruff: noqa: S608 - statements of this file
"""A retype that changes how values are written reads the table again where a sync reads some of its rows only."""

from __future__ import annotations

import pytest

from sync_world import MakeWorld, World, counts, cursor, preset

CASES = {
    "bytes to text": ("bytea", r"'\x616263'", "text USING v::text", r"\x616263"),
    "list to text": ("int[]", "'{1,2}'", "text USING v::text", "{1,2}"),
    "interval to text": ("interval", "'1 day'", "text USING v::text", "1 day"),
    "json to jsonb": ("json", """'{"b":1,  "a":2}'""", "jsonb", '{"a": 2, "b": 1}'),
    "moment to text": ("timestamp", "'2024-02-29 10:00'", "text USING v::text", "2024-02-29 10:00:00"),
    "double to text": ("double precision", "1e-7", "text USING v::text", "1e-07"),
    "boolean to text": ("boolean", "true", "text USING v::int::text", "1"),
    "uuid to text": ("uuid", "'00000000-0000-0000-0000-0000000000ff'", "text USING upper(v::text)", None),
    "numeric of any scale": ("numeric(40,1)", "1.5", "numeric(42,3)", "1.500"),
    "shorter fraction": ("timestamp", "'2024-02-29 10:00:00.6'", "timestamp(0)", None),
    "padded": ("varchar(4)", "'a'", "char(4)", None),
}


def loaded(make_world: MakeWorld, native: str, value: str) -> World:
    world = make_world("postgres", policy=preset("allow_all"), settings={"t": cursor("at")})
    world.run(f"CREATE TABLE t (id int PRIMARY KEY, at int, v {native})", f"INSERT INTO t VALUES (1, 1, {value})")
    world.sync()
    return world


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_whole_table_is_read_again(make_world: MakeWorld, case: tuple[str, str, str, str | None]) -> None:
    native, value, new, text = case
    world = loaded(make_world, native, value)
    world.run(f"ALTER TABLE t ALTER v TYPE {new}", "INSERT INTO t VALUES (2, 2, NULL)")
    world.sync()
    world.answer("approved")
    world.sync()
    assert world.differing() == {}
    if text is not None:
        assert world.rows("t", "v") == [(text,), (None,)] or world.rows("t", "v") == [(None,), (text,)]
    assert counts(world.sync(), "t")[0] <= 1, "only what the cursor finds from then on"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("native", "new"),
    [("int", "bigint"), ("varchar(9)", "text"), ("numeric(9,2)", "numeric(12,2)")],
)
def test_what_is_written_as_before_is_not_read_again(make_world: MakeWorld, native: str, new: str) -> None:
    world = loaded(make_world, native, "'7'")
    world.run(f"ALTER TABLE t ALTER v TYPE {new}", "INSERT INTO t VALUES (2, 2, NULL)")
    assert counts(world.sync(), "t")[0] == 2, "from the last cursor value on"
    assert world.differing() == {}


def test_what_waits_is_read_as_the_accepted_type_writes_it(make_world: MakeWorld) -> None:
    world = loaded(make_world, "text", "'1.5'")
    world.policy = preset("approve")
    world.run("INSERT INTO t VALUES (2, 2, '7')")
    world.sync()
    world.run("ALTER TABLE t ALTER v TYPE numeric(9,2) USING v::numeric")
    world.sync()
    assert world.rows("t", "v") == [("1.50",), ("7.00",)]


def test_a_value_that_was_held_comes_once_its_type_is_let_in(make_world: MakeWorld) -> None:
    world = loaded(make_world, "int", "1")
    world.policy = preset("approve")
    world.run(
        "ALTER TABLE t ALTER v TYPE bigint", "INSERT INTO t VALUES (2, 2, 5000000000)", "INSERT INTO t VALUES (3, 3, 1)"
    )
    world.sync()
    assert world.rows("t", "id", "v") == [(1, 1), (2, None), (3, 1)]
    world.answer("approved")
    world.sync()
    assert world.rows("t", "id", "v") == [(1, 1), (2, 5000000000), (3, 1)]
