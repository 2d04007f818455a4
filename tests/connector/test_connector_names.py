"""Names that are ours, names that nobody sees, and what a connector writes that would never run."""

from __future__ import annotations

import pytest
from sdk_world import World

from connector_world import CHECKPOINT, MakeConnector, upserts

KEYED = [{"table": "t", "primary_key": ["id"]}]
OURS = ("_instep_id", "_instep_synced", "_instep_deleted", "_instep_meta", "_instep_extra", "_instep_valid_from")


@pytest.mark.sampled
@pytest.mark.parametrize("schema", [KEYED, []], ids=["keyed", "keyless"])
def test_a_column_of_a_system_name_is_prefixed_and_reported(make_connector: MakeConnector, schema: list) -> None:  # type: ignore[type-arg]
    world = make_connector()
    world.declared = schema
    report = world.play(["upsert", "t", {"id": 1, **dict.fromkeys(OURS, "a")}], CHECKPOINT)
    stored = [f"src_{name}" for name in OURS]
    assert world.rows("t", "id", *stored) == [(1, *["a"] * len(OURS))]
    told = [r.summary for r in world.store.reviews.find("shop", ("applied",)) if r.kind == "name.collided"]
    for name in OURS:
        assert any(f"src_{name}" in text for text in (*report.notes, *told)), name
    world.play(["upsert", "t", {"id": 1, "_instep_id": "b", "src__instep_id": "c"}], CHECKPOINT)
    rows = world.rows("t", "src__instep_id", "src_src__instep_id")
    assert ("b", "c") in rows
    assert len(rows) == (1 if schema else 2)


def test_updates_deletes_and_keys_of_a_system_name(make_connector: MakeConnector) -> None:
    world = make_connector()
    world.declared = [{"table": "t", "primary_key": ["_instep_id"], "columns": {"_instep_id": "STRING"}}]
    world.play(*upserts("t", *({"_instep_id": k, "v": 1} for k in "abc")), CHECKPOINT)
    world.play(["update", "t", {"_instep_id": "b", "v": 2}], ["delete", "t", {"_instep_id": "c"}], CHECKPOINT)
    assert world.rows("t", "src__instep_id", "v") == [("a", 1), ("b", 2)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("op.upsert(' ', {'id': 1})", "cannot be empty or blank"),
        ("op.upsert('\\u200b', {'id': 1})", "cannot be empty or blank"),
        ("op.delete('\\t', {'id': 1})", "cannot be empty or blank"),
        ("op.truncate('')", "cannot be empty or blank"),
        ("op.upsert('t', {'id': 1, '  ': 2})", "a blank one"),
        ("op.upsert('t', {'id': 1, '\\u00a0\\u2003': 2})", "a blank one"),
        ("op.upsert('t', {'id': 1, '\\u2800': 2})", "a blank one"),
        ("op.upsert('t', {'id': 1, '\\u3164\\uffa0': 2})", "a blank one"),
        ("op.upsert('\\u115f', {'id': 1})", "cannot be empty or blank"),
        ("op.upsert('t', {'id': 1, 'a\\0b': 2})", "has a NUL"),
        ("op.checkpoint({'at': float('nan')})", "state['at'] is NaN"),
        ("op.checkpoint({'a': {'b': [1, float('-inf')]}})", "state['a']['b'][1] is NaN or Infinity"),
        ("op.checkpoint({float('nan'): 1})", "state has the key nan, NaN or Infinity"),
        ("op.checkpoint({'a': [{float('inf'): 1}]})", "state['a'][0] has the key inf"),
        ("op.checkpoint({'a': {1}})", "state['a'] is of the type set, which JSON does not have: keep a list"),
        ("from decimal import Decimal; op.checkpoint({'a': [Decimal(1)]})", "state['a'][0] is of the type Decimal"),
        ("op.checkpoint({'a': {(1, 2): 3}})", "state['a'] has the key (1, 2) of the type tuple"),
        ("op.checkpoint({1: 'x', '1': 'y'})", "state has the key '1' and the key 1, which are one key in JSON"),
        ("op.checkpoint({'m': [{None: 1, 'null': 2}]})", "state['m'][0] has the key 'null' and the key None"),
        ("s = {}; s['a'] = s; op.checkpoint(s)", "op.checkpoint(state): Circular reference"),
    ],
)
def test_what_is_refused_where_it_is_called(world: World, call: str, part: str) -> None:
    sync = world.sync(
        f"""
        def update(configuration, state):
            try:
                {call}
            except (ValueError, TypeError) as error:
                log.info("refused: " + str(error))
            op.upsert("t", {{"id": 1}})
        """
    )
    assert sync.error is None
    assert "refused: " in sync.said
    assert part in sync.said
    assert sync.records("t") == [{"id": 1}], "the sync goes on, and nothing of the refused operation is there"


def test_keys_that_are_no_texts_are_kept_as_texts(world: World) -> None:
    sync = world.sync(
        "def update(configuration, state):\n    op.checkpoint({1: {2.5: 'a', True: 'b'}, '2': [(1, None)]})"
    )
    assert sync.error is None
    assert sync.segments[-1].state == {"1": {"2.5": "a", "true": "b"}, "2": [[1, None]]}


@pytest.mark.parametrize("declared", ["{'table': ' '}", "{'table': 't', 'columns': {'\u2800': 'INT'}}"])
def test_blank_names_in_a_schema(world: World, declared: str) -> None:
    sync = world.sync(
        f"def update(configuration, state):\n    pass\ndef schema(configuration):\n    return [{declared}]\n"
    )
    assert "ValueError" in str(sync.error)


UNRUN = {
    "async": ("async def update(configuration, state):\n    op.upsert('t', {'id': 1})", "an async function"),
    "async generator": (
        "async def update(configuration, state):\n    yield op.upsert('t', {'id': 1})", "update() is an async function",
    ),
    "returned coroutine": (
        "async def work():\n    pass\ndef update(configuration, state):\n    return work()", "asyncio.run(...)",
    ),
    "dropped generator": (
        "def rows():\n    yield op.upsert('t', {'id': 1})\ndef update(configuration, state):\n    rows()",
        "`yield from rows(...)`",
    ),
    "yielded generator": (
        "def rows():\n    yield op.upsert('t', {'id': 1})\ndef update(configuration, state):\n    yield rows()",
        "`yield from rows(...)`",
    ),
    "dropped coroutine": (
        "async def rows():\n    op.upsert('t', {'id': 1})\ndef update(configuration, state):\n    rows()",
        "`asyncio.run(rows(...))`",
    ),
    "async schema": (
        "def update(configuration, state):\n    pass\nasync def schema(configuration):\n    return []",
        "schema() is an async function",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "part"), UNRUN.values(), ids=UNRUN)
def test_what_would_never_run_is_an_error(world: World, code: str, part: str) -> None:
    sync = world.sync(code)
    assert sync.error is not None
    assert part in str(sync.error)
    assert "never awaited" not in sync.said


RUN = {
    "yield": "def update(configuration, state):\n    yield op.upsert('t', {'id': 1})",
    "yield from": (
        "def rows():\n    yield op.upsert('t', {'id': 1})\ndef update(configuration, state):\n    yield from rows()"
    ),
    "returned": (
        "def rows():\n    yield op.upsert('t', {'id': 1})\ndef update(configuration, state):\n    return rows()"
    ),
    "looped": (
        "def rows():\n    yield op.upsert('t', {'id': 1})\n"
        "def update(configuration, state):\n    for _ in rows(): pass\n    list(rows())"
    ),
    "asyncio": (
        "import asyncio\nasync def rows():\n    op.upsert('t', {'id': 1})\n"
        "def update(configuration, state):\n    asyncio.run(rows())"
    ),
}


@pytest.mark.parametrize("code", RUN.values(), ids=RUN)
def test_every_style_that_runs(world: World, code: str) -> None:
    sync = world.sync(code)
    assert sync.error is None
    assert {"id": 1} in sync.records("t")
