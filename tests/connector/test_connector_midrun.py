"""What is decided while a run from the start is under way asks for the rows that came before it, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256

import duckdb
import pytest

from connector_world import AGAIN, CHECKPOINT, At, ConnectorWorld, MakeConnector, Step, upserts, waiting
from instep.control.resync import ask
from instep.schema.policy.policy import Rule
from instep.schema.selection.overrides import Switch
from instep.sync.run import RunScope, sync
from sync_world import preset

KEY = [{"table": "t", "primary_key": ["id"], "columns": {"id": "LONG", "part": "LONG", "a": "STRING"}}]
TWO = [{**KEY[0], "primary_key": ["id", "part"]}]
GROUPS = [[{"id": n, "part": n, "a": f"a{n}"}] for n in (1, 2, 3)]


def digest(text: str) -> str:
    return sha256(b"salt" + text.encode()).hexdigest()


def steps(world: ConnectorWorld) -> list[Step]:
    """Three groups, and a gate before the second one."""
    first, *rest = ([*upserts("t", *rows), CHECKPOINT] for rows in GROUPS)
    return [*first, ["wait", str(world.folder / "gate")], *(step for group in rest for step in group)]


def run(world: ConnectorWorld, act: Callable[[], object], **wanted: bool) -> list[tuple[str, str]]:
    """A run in whose middle something is decided; answers what waits behind it."""
    sync(
        world.context, RunScope(**wanted), At("waiting for the connector", 2, act, world.folder / "gate"), world.rows_by
    )
    return waiting(world)


def check_sent_again(world: ConnectorWorld) -> None:
    """By the next run, and by no later one."""
    assert AGAIN in world.play().notes
    assert waiting(world) == []
    assert AGAIN not in world.play(CHECKPOINT).notes


@pytest.fixture
def loaded(make_connector: MakeConnector) -> ConnectorWorld:
    world = make_connector(declared=KEY)
    world.steps = steps(world)
    (world.folder / "gate").touch()
    world.play()
    (world.folder / "gate").unlink()
    return world


@pytest.fixture
def fresh(make_connector: MakeConnector) -> ConnectorWorld:
    world = make_connector(declared=KEY)
    world.steps = steps(world)
    return world


def test_a_column_that_is_hashed_while_its_table_is_paused(loaded: ConnectorWorld) -> None:
    """Everything is sent again once the table goes on, and not before."""
    pauses = loaded.store.pauses
    (loaded.folder / "gate").touch()
    pauses.pause("shop", "for a test", table=("", "t"))
    loaded.store.switches.set("shop", [Switch("", "t", "a", hashed=True)], "test")
    for _ in range(4):
        assert AGAIN not in loaded.play(CHECKPOINT).notes
    pauses.resume("shop", who="test", table=("", "t"))
    loaded.play(CHECKPOINT)
    check_sent_again(loaded)
    assert loaded.rows("t", "a") == sorted((digest(f"a{n}"),) for n in (1, 2, 3))


def test_a_key_that_is_approved(loaded: ConnectorWorld) -> None:
    """What came before is held until then."""
    loaded.declared = TWO
    assert run(loaded, partial(loaded.answer, "approved", "key.changed"), full=True) == []
    assert loaded.rows("t", "id", "part") == [(1, 1), (2, 2), (3, 3)]


def test_a_table_that_is_dropped(loaded: ConnectorWorld) -> None:
    """And made again before the run ends: what comes then is not all."""
    loaded.policy = preset("allow_all", Rule(on=("destination.drifted",), decide="apply"))

    def act() -> None:
        with duckdb.connect(str(loaded.folder / "warehouse.db")) as connection:
            connection.execute("DROP TABLE shop.t")

    assert run(loaded, act, full=True) == [("t", "table")]
    check_sent_again(loaded)
    assert loaded.rows("t", "id") == [(1,), (2,), (3,)]


@pytest.mark.sampled
@pytest.mark.parametrize("column", ["", "a"])
@pytest.mark.parametrize("already", [False, True])
def test_a_backfill_that_is_asked_for(loaded: ConnectorWorld, already: bool, column: str) -> None:
    """Even if the same was asked for before."""
    want = partial(loaded.store.backfills.request, "shop", ("", "t"), column=column, why="for a test")
    if already:
        want()
    assert run(loaded, want, full=True) == [("t", "column" if column else "table")]
    loaded.play(CHECKPOINT)
    assert waiting(loaded) == []


@pytest.mark.sampled
@pytest.mark.parametrize("world", ["loaded", "fresh"])
@pytest.mark.parametrize("by", ["file", "command"])
def test_a_column_that_is_hashed(world: str, by: str, request: pytest.FixtureRequest) -> None:
    found: ConnectorWorld = request.getfixturevalue(world)

    def act() -> None:
        found.store.switches.set("shop", [Switch("", "t", "a", hashed=True)], "test")
        if by == "command":
            ask(found.store, "shop", [("", "t")], "test")

    assert run(found, act, full=world == "loaded") == [("t", "table")]
    check_sent_again(found)
    assert found.rows("t", "id", "a") == [(n, digest(f"a{n}")) for n in (1, 2, 3)]


@pytest.mark.sampled
@pytest.mark.parametrize("world", ["loaded", "fresh"])
def test_a_column_that_is_switched_on(world: str, request: pytest.FixtureRequest) -> None:
    found: ConnectorWorld = request.getfixturevalue(world)
    found.policy = preset("allow_all", backfill="column")
    found.store.switches.set("shop", [Switch("", "t", "a", enabled=False)], "test")
    found.steps = [[w, *r[:1], {**r[1], "a": f"b{r[1]['id']}"}] if w == "upsert" else [w, *r] for w, *r in found.steps]
    on = Switch("", "t", "a", enabled=True)
    run(found, partial(found.store.switches.set, "shop", [on], "test"), full=world == "loaded")
    check_sent_again(found)
    assert found.rows("t", "id", "a") == [(n, f"b{n}") for n in (1, 2, 3)]


def test_a_table_that_is_to_be_built_anew_and_is_paused(loaded: ConnectorWorld) -> None:
    """Nothing is sent again for it until it goes on."""
    loaded.declared = TWO
    loaded.play(CHECKPOINT)
    loaded.answer("approved", "key.changed")
    loaded.store.pauses.pause("shop", "for a test", table=("", "t"))
    (loaded.folder / "gate").touch()
    for number in (4, 5):
        assert AGAIN not in loaded.play(*upserts("t", {"id": number, "part": number}), CHECKPOINT).notes
    assert AGAIN not in loaded.play(CHECKPOINT).notes
    loaded.store.pauses.resume("shop", who="test", table=("", "t"))
    check_sent_again(loaded)
    assert loaded.rows("t", "id", "part") == [(n, n) for n in (1, 2, 3, 4, 5)]
