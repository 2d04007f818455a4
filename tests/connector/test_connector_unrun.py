"""Generators and coroutines that nobody runs, and operations in processes that update() started: the sync says so."""

from __future__ import annotations

import textwrap

import pytest
from sdk_world import World, written

ROWS = "def rows(i=1):\n    yield op.upsert('t', {'id': i})\n"
MODULE = "from fivetran_connector_sdk import Operations as op\n" + ROWS + "async def work():\n    pass\n"
METHODS = (
    "class A:\n    def rows(self):\n        yield op.upsert('t', {'id': 1})\n    async def work(self):\n        pass\n"
)


def connector(before: str, *steps: str) -> str:
    """Its modules' code, and update() with these steps."""
    body = textwrap.indent("\n".join(steps), "    ")
    return f"import helper\n{before}\ndef update(configuration, state):\n{body}\n"


def played(world: World, code: str) -> tuple[str, list[object]]:
    """The error of the sync, and the states that it kept."""
    sync = world.sync(written(world.folder / "source", code, helper__py=MODULE))
    assert "never awaited" not in sync.said
    return str(sync.error), [segment.state for segment in sync.segments]


UNUSED = {
    "another module": ("", "helper.rows()"),
    "method": (METHODS, "A().rows()"),
    "method of a child": (f"{METHODS}class B(A):\n    pass", "B().rows()"),
    "method of its own": (f"{METHODS}    def all(self):\n        self.rows()", "A().all()"),
    "static method": ("class A:\n    @staticmethod\n    def rows():\n        yield op.truncate('t')", "A.rows()"),
    "assigned": (ROWS, "r = rows()"),
    "assigned, of another module": ("", "r = helper.rows(2)"),
    "async generator": ("async def rows():\n    yield op.upsert('t', {'id': 1})", "rows()"),
    "coroutine of a method": (METHODS, "A().work()"),
    "coroutine of another module": ("", "helper.work()"),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("before", "step"), UNUSED.values(), ids=UNUSED)
def test_calls_whose_result_nobody_uses_are_refused_before_anything_runs(world: World, before: str, step: str) -> None:
    error, states = played(world, connector(before, "op.checkpoint({'n': 0})", step, "op.checkpoint({'n': 1})"))
    assert "TypeError" in error
    assert "(...) is a" in error
    assert "connector.py, line " in error
    assert states == []


UNAWAITED = {
    "in a list": ("", "[helper.work()]"),
    "of an object": (METHODS, "a = A()", "a.work()"),
    "caught": ("", "[helper.work()]", "try:\n    op.checkpoint({'n': 1})\nexcept TypeError:\n    pass"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "steps"), [(b, s) for b, *s in UNAWAITED.values()], ids=UNAWAITED)
def test_coroutines_that_nobody_awaits_keep_no_state(world: World, before: str, steps: list[str]) -> None:
    error, states = played(world, connector(before, *steps, "op.checkpoint({'n': 1})"))
    assert "work(...) is a coroutine that nobody awaits" in error
    assert ".py, line " in error
    assert states == []


FINE = {
    "not finished": (ROWS, "next(rows())"),
    "read later": (ROWS, "r = rows()", "op.checkpoint({'n': 0})", "list(r)"),
    "method": (METHODS, "list(A().rows())", "a = A()", "for _ in a.rows():\n    pass"),
    "expression": ("", "rows = (op.upsert('t', {'id': i}) for i in range(2))", "list(rows)", "(x for x in [])"),
    "context manager": (
        "from contextlib import contextmanager as managed\n@managed\ndef lock():\n    yield op.upsert('t', {'id': 1})",
        "lock()", "with lock():\n    pass",
    ),
    "property": (
        "class A:\n    @property\n    def rows(self):\n        yield op.upsert('t', {'id': 1})",
        "list(A().rows)",
    ),
    "a name of its own": (ROWS, "rows = lambda: op.upsert('t', {'id': 1})", "rows()"),
    "library": (
        "import os, asyncio\nasync def work():\n    await asyncio.sleep(0)\n    op.upsert('t', {'id': 1})",
        "os.walk('.')", "asyncio.run(work())",
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("before", "steps"), [(b, s) for b, *s in FINE.values()], ids=FINE)
def test_what_runs_goes_on_as_ever(world: World, before: str, steps: list[str]) -> None:
    sync = world.sync(
        written(world.folder / "source", connector(before, *steps, "op.checkpoint({'n': 1})"), helper__py=MODULE)
    )
    assert sync.error is None
    assert [s.state for s in sync.segments][-1] == {"n": 1}
    assert sync.records("t")


FORKED = {
    "process": (
        "import multiprocessing\ndef work():\n    op.upsert('t', {'id': 2}, schema='s')",
        "p = multiprocessing.get_context('fork').Process(target=work)\np.start()\np.join()", "op.upsert of table s.t",
    ),
    "fork": ("import os", "if not os.fork():\n    op.checkpoint({'n': 2})\nos.wait()", "op.checkpoint()"),
    "caught": (
        "import os",
        "if not os.fork():\n    try:\n        op.truncate('t')\n    finally:\n        os._exit(0)\nos.wait()",
        "op.truncate of table t",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "step", "called"), FORKED.values(), ids=FORKED)
@pytest.mark.parametrize("last", ["op.checkpoint({'n': 1})", "pass"], ids=["checkpoint", "end"])
def test_an_operation_in_a_forked_process_fails_the_sync(
    world: World, before: str, step: str, called: str, last: str
) -> None:
    error, states = played(world, connector(before, "op.upsert('t', {'id': 1})", step, last))
    assert f"{called} was called in a process that update() started, and refused" in error
    assert "Let that process return the rows" in error
    assert states == []


def test_a_forked_process_without_operations_is_none_of_our_business(world: World) -> None:
    steps = (
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n    for i in pool.map(abs, [-1]):",
        "        op.upsert('t', {'id': i})",
    )
    sync = world.sync("import multiprocessing\n" + connector("", *steps).removeprefix("import helper\n"))
    assert sync.error is None
    assert sync.records("t") == [{"id": 1}]
