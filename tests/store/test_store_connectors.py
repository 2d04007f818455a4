"""How far connectors got, and what waits for their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, update
from store_world import Clock

from instep.errors import Fenced, InstepError, ProjectError
from instep.store.admin.backup import bring_back, dump
from instep.store.engine.keyring import INSECURE, Keyring, new_key, parse
from instep.store.store import Store
from instep.store.tables.catalogs import connector_states


def test_a_state_is_saved_by_the_latest_run_or_by_a_person(any_store: Store) -> None:
    states = any_store.connectors
    assert (states.get("c").state, states.get("c").at) == ({}, None)
    states.save("c", {"at": 2}, run="r2", fence=2)
    with pytest.raises(Fenced, match="a later run"):
        states.save("c", {"at": 1}, run="r1", fence=1)
    states.save("c", {"at": 0})
    assert (states.get("c").state, states.get("c").run, states.get("c").fence) == ({"at": 0}, "", 2)
    states.save("c", {"at": 3}, run="r2", fence=2)
    assert states.get("c").state == {"at": 3}
    assert "state=" not in repr(states.get("c"))


def test_a_shape_and_a_state_leave_each_other_alone(any_store: Store) -> None:
    one = any_store.connectors.of("c")
    one.keep_shape({"tables": []})
    one.done({"at": 1}, [], [], "r", 1)
    assert (one.shape(), one.state().state) == ({"tables": []}, {"at": 1})
    one.keep_shape({"tables": [1]})
    one.done(None, [], [], "r", 1)
    assert (one.shape(), one.state().state) == ({"tables": [1]}, {"at": 1})


def test_operations_are_held_in_order_and_let_go_with_the_state(any_store: Store) -> None:
    one = any_store.connectors.of("c")
    one.done({"at": 1}, [(("", "t"), "/a", 3, "k1"), (("s", "u"), "/b", 1, "k2")], [], "r", 1)
    one.done({"at": 2}, [(("", "t"), "/c", 2, "k3")], [], "r", 1)
    held = one.pending()
    assert [(h.table, h.place, h.operations) for h in held] == [
        (("", "t"), "/a", 3), (("s", "u"), "/b", 1), (("", "t"), "/c", 2),
    ]  # fmt: skip
    with pytest.raises(Fenced):
        one.done({"at": 0}, [], [h.number for h in held], "old", 0)
    assert len(one.pending()) == 3
    one.done({"at": 3}, [], [held[0].number, held[2].number], "r", 1)
    assert [(h.place, h.key) for h in one.pending()] == [("/b", "k2")]
    assert "k2" not in repr(one.pending())
    assert any_store.connectors.of("other").pending() == []


CANARY = "canary-state-7d1f"
OLD, NEW = Keyring(parse(new_key("k1"), "")), Keyring(parse(new_key("k2"), ""))
BOTH = Keyring({**NEW.keys, **OLD.keys})


def dumped(store: Store) -> str:
    return "\n".join(dump(store._db))


@pytest.fixture
def at_keys(any_url: str, clock: Clock) -> Iterator[Callable[[Keyring | None], Store]]:
    """The same database, opened with these keys."""
    with ExitStack() as stack:
        yield lambda keys: stack.enter_context(Store(any_url, now=clock, keys=keys))


def test_a_state_is_sealed_where_there_are_keys(at_keys: Callable[[Keyring | None], Store]) -> None:
    plain, old, new, both = (at_keys(keys) for keys in (None, OLD, NEW, BOTH))
    plain.connectors.save("before", {"token": CANARY})
    assert CANARY in dumped(plain)
    assert old.connectors.get("before").state == {"token": CANARY}
    for name in ("before", "c"):
        old.connectors.save(name, {"token": CANARY}, run="r1", fence=1)
        old.connectors.keep_shape(name, {"tables": []})
    assert CANARY not in dumped(plain)
    assert (old.connectors.get("c").state, old.connectors.get("c").run) == ({"token": CANARY}, "r1")
    with pytest.raises(ProjectError, match="connection c: its connector's state is sealed, and there are no master"):
        plain.connectors.get("c")
    with pytest.raises(ProjectError, match="the master key 'k1' is missing"):
        new.connectors.get("c")
    with pytest.raises(Fenced):
        new.connectors.save("c", {}, run="r0", fence=0)
    assert (plain.connectors.shape("c"), plain.connectors.by_key()) == ({"tables": []}, {"k1": 2})
    assert [both.connectors.rotate(), both.connectors.rotate()] == [2, 0]
    assert (new.connectors.get("c").state, new.connectors.by_key()) == ({"token": CANARY}, {"k2": 2})
    new.connections.forget("c")
    plain.connectors.forget("before")
    assert (plain.connectors.by_key(), plain.connectors.get("c").state) == ({}, {})


def test_a_key_that_everybody_knows_seals_no_state(at_keys: Callable[[Keyring | None], Store]) -> None:
    store = at_keys(Keyring({INSECURE: b"-" * 32}))
    store.connectors.save("c", {"at": 1})
    assert (store.connectors.by_key(), at_keys(None).connectors.get("c").state) == ({}, {"at": 1})


@pytest.mark.parametrize("field", ["state", "wrapped"])
def test_a_sealed_state_opens_at_its_connection_only(at_keys: Callable[[Keyring | None], Store], field: str) -> None:
    store = at_keys(OLD)
    for name in ("c", "d"):
        store.connectors.save(name, {"name": name})
    c = connector_states.c
    with store._db.write() as transaction:
        other = select(connector_states).where(c.connection == "d")
        row = transaction.execute(other).mappings().one()
        values = {name: row[name] for name in ("state", "key", "wrapped")} if field == "state" else {"wrapped": "AAAA"}
        transaction.execute(update(connector_states).where(c.connection == "c").values(values))
    with pytest.raises(InstepError, match="connector c: /state does not open"):
        store.connectors.get("c")


def test_a_state_that_is_saved_while_keys_turn_stays_whole(at_keys: Callable[[Keyring | None], Store]) -> None:
    old, both = at_keys(OLD), at_keys(BOTH)
    old.connectors.save("c", {"at": 1})
    real = both._db.write

    @contextmanager
    def late() -> Iterator[Connection]:
        old.connectors.save("c", {"at": 2})
        with real() as transaction:
            yield transaction

    both._db.write = late  # type: ignore[method-assign]
    assert both.connectors.rotate() == 0
    both._db.write = real  # type: ignore[method-assign]
    assert (old.connectors.get("c").state, both.connectors.rotate()) == ({"at": 2}, 1)
    assert both.connectors.get("c").state == {"at": 2}


def test_a_backup_takes_seals_along(at_keys: Callable[[Keyring | None], Store], tmp_path: Path, clock: Clock) -> None:
    store = at_keys(OLD)
    store.connectors.save("c", {"token": CANARY})
    for name in ("a.jsonl", "b.jsonl.gz"):
        store.back_up(tmp_path / name)
        with Store(f"sqlite:///{tmp_path}/{name}.db", now=clock, keys=OLD) as other:
            bring_back(other._db, tmp_path / name, clock)
            assert other.connectors.get("c").state == {"token": CANARY}


def test_keys_are_read_when_a_state_needs_them(any_url: str, clock: Clock) -> None:
    asked: list[Keyring | None] = []

    def unreadable() -> Keyring | None:
        asked.append(None)
        raise ProjectError("the key file cannot be read")

    def keys() -> Keyring | None:
        asked.append(OLD)
        return OLD

    with Store(any_url, now=clock, keys=keys) as store:
        assert (store.connectors.by_key(), asked) == ({}, [])
        store.connectors.save("c", {"token": CANARY})
        assert (store.connectors.get("c").state, asked) == ({"token": CANARY}, [OLD])
    with Store(any_url, now=clock, keys=unreadable) as store:
        assert (store.connectors.by_key(), store.connectors.pending("c")) == ({"k1": 1}, [])
        for use in (
            lambda: store.connectors.get("c"),
            lambda: store.connectors.save("c", {}),
            store.connectors.rotate,
            lambda: store.secrets.keys,
        ):
            with pytest.raises(ProjectError, match="cannot be read"):
                use()
        assert (store.connectors.by_key(), asked[1:]) == ({"k1": 1}, 4 * [None])
