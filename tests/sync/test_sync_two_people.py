"""Four eyes over what is done on a person's word: nothing is done for the first, all of it for the second."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from instep.bootstrap import App
from instep.crash import Crashed
from instep.errors import Blocked
from instep.project.load import load
from instep.stage.conform import compact_json, digest
from instep.store.server.api_keys import ApiKey
from instep.store.store import Store
from instep.sync.context import SyncContext
from instep.sync.operations import delete, restore, set_cursor, set_key
from instep.sync.operations.delete import leave
from instep.sync.quarantine import quarantine
from instep.sync.run import RunScope, sync
from instep.sync.schema_changes import undo
from instep.sync.two_people import dropping
from quarantined import pending_of

FILE = """\
engine: local
four_eyes: {on}
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations: {{lake: {{type: iceberg}}}}
connections: {{shop: {{policy: propagate_all}}}}
channels: {{mail: {{type: email, to: [data@example.org], sender: instep@example.org}}}}
"""
TABLES = """
    create table item (id integer primary key, sku text not null unique, size integer);
    insert into item values (1, 'a', 'wide'), (2, 'b', 3);
"""


@dataclass
class Shop:
    """A lake that was synced twice, with a held value and a copy of a table; four eyes are `on` from then on."""

    folder: Path
    on: bool
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.folder.joinpath("instep.yml").write_text(FILE.format(on=str(self.on).lower()))
        (self.folder / ".instep").mkdir()
        store = Store(f"sqlite:///{self.folder / '.instep' / 'state.db'}", now=lambda: self.now)
        self.app = App(load(self.folder), store)
        self.sql(TABLES)
        self.sync()
        self.sql("create table box (id integer primary key, n integer not null); insert into box values (1, 1)")
        self.sync()
        self.sql("insert into box values (2, 2)")
        self.sync()

    def sql(self, script: str) -> None:
        with closing(sqlite3.connect(self.folder / "shop.db")) as connection:
            connection.executescript(script)

    def alone(self) -> SyncContext:
        """One person is enough."""
        return replace(self.app.sync_context("shop"), four_eyes=False)

    def sync(self) -> None:
        sync(self.alone(), RunScope(), engine=self.app.engine("shop"))

    def by(self, who: str) -> SyncContext:
        return replace(self.app.sync_context("shop"), who=who)

    def runs(self) -> int:
        return len(self.app.store.runs.history("shop", limit=100))

    def acts(self) -> list[tuple[str, str]]:
        """(event, who), the oldest first."""
        found = self.app.store.events.after(connection="shop", types=("operation.requested", "operation.confirmed"))
        return [(e.type, e.data["who"]) for e in found]


def _set_key(context: SyncContext) -> None:
    set_key.carry_out(context, set_key.prepare(context, "main.item", ["sku"], "rekey"))


def _set_cursor(context: SyncContext, column: str | None = "id") -> None:
    set_cursor.carry_out(context, set_cursor.prepare(context, "main.item", column))


def _restore(context: SyncContext) -> None:
    point = restore.savepoints(context, "main.box")[1][1]
    restore.restore(context, restore.prepare(context, "main.box", point.id), ["*"])


def _held(context: SyncContext) -> list[str]:
    return [e.id for e in pending_of(context)]


def _discard(context: SyncContext) -> None:
    assert quarantine.discard(context, ids=_held(context)).discarded == 1


def _purge(context: SyncContext) -> None:
    delete.purge(context, context.store.copies.existing("shop"))


def _leave(context: SyncContext) -> None:
    assert leave(context, "keep", named="shop").kept


def _undo(context: SyncContext) -> None:
    [added] = [r for r in context.store.reviews.find("shop", ("applied",)) if r.kind == "column.added"]
    assert undo.apply_undo(context, undo.prepare(context, [added]), ["*.more"]) > 0


ACTS: dict[str, Callable[[SyncContext], None]] = {
    "table set-key": _set_key, "table set-cursor": _set_cursor, "restore": _restore, "quarantine discard": _discard,
    "table purge": _purge, "connection delete": _leave, "undo": _undo,
}  # fmt: skip


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[bool], Shop]]:
    opened: list[Shop] = []

    def one(on: bool) -> Shop:
        opened.append(Shop(tmp_path, on))
        return opened[-1]

    yield one
    for shop in opened:
        shop.app.store.close()


@pytest.fixture
def shop(make: Callable[[bool], Shop]) -> Shop:
    return make(True)


def _ready(shop: Shop, name: str) -> None:
    """What an act needs to be there."""
    if name == "table purge":
        made = set_key.prepare(shop.alone(), "main.item", ["sku"], "rebuild")
        set_key.carry_out(shop.alone(), made)
        shop.sync()
    if name == "undo":
        shop.sql("alter table item add column more text")
        shop.sync()


@pytest.mark.parametrize("name", ACTS)
def test_the_second_person_s_is_carried_out(shop: Shop, name: str) -> None:
    _ready(shop, name)
    before = shop.runs()
    for _ in range(2):
        with pytest.raises(Blocked, match=f"{name}: .* only alice has asked for it") as refused:
            ACTS[name](shop.by("alice"))
    assert "another person" in refused.value.hint
    assert (shop.runs(), shop.acts()) == (before, [("operation.requested", "alice")]), "nothing was done, and told once"
    ACTS[name](shop.by("bob"))
    assert shop.acts() == [("operation.requested", "alice"), ("operation.confirmed", "bob")]


@pytest.mark.parametrize("name", ACTS)
def test_without_the_option_one_is_enough(make: Callable[[bool], Shop], name: str) -> None:
    shop = make(False)
    _ready(shop, name)
    ACTS[name](shop.by("alice"))
    assert shop.acts() == []


def test_a_request_is_for_one_act_once_and_for_a_week(shop: Shop) -> None:
    def asks(who: str, column: str | None) -> bool:
        try:
            _set_cursor(shop.by(who), column)
        except Blocked:
            return False
        return True

    assert [asks("alice", "id"), asks("bob", None), asks("bob", "id")] == [False, False, True]
    assert [asks("bob", "id"), asks("carol", "id")] == [False, True], "the one before is used up"
    assert asks("alice", None), "bob's of the other kind still counts"
    assert not asks("alice", "id")
    shop.now += timedelta(days=7, seconds=1)
    assert not asks("bob", "id")


def test_keys_that_read_alike_are_two_requests(shop: Shop) -> None:
    shop.sql('create table pair (id integer primary key, a text not null, b text not null, "a, b" text not null)')
    shop.sql("insert into pair values (1, 'x', 'y', 'z')")
    shop.sync()
    for who, key in (("alice", ["a, b"]), ("bob", ["a", "b"])):
        with pytest.raises(Blocked, match=f"only {who} has asked for it"):
            set_key.carry_out(shop.by(who), set_key.prepare(shop.by(who), "main.pair", key, "rekey"))


IDS = [f"q-{number:02}" for number in range(9)]
ALIKE = [
    (dropping("shop", ["main.t.a, main.t.b"]).what, dropping("shop", ["main.t.a", "main.t.b"]).what),
    (dropping("shop", ['main.t."a"']).what, dropping("shop", ["main.t.a"]).what),
    (quarantine._named(["t, u"], []), quarantine._named(["t", "u"], [])),
    (quarantine._named(["every table"], []), quarantine._named([], [])),
    (quarantine._named(["t until 2026-01-01T00:00:00"], []), quarantine._named(["t"], [], datetime(2026, 1, 1))),
    (quarantine._named([], IDS[:2]), quarantine._named([], [", ".join(IDS[:2])])),
    (quarantine._named([], IDS[:2]), quarantine._named([], IDS[:2], datetime(2026, 1, 1))),
    (quarantine._named([], IDS), quarantine._named([], IDS, datetime(2026, 1, 1))),
    (quarantine._named(["t"], IDS), quarantine._named(["u"], IDS)),
    (quarantine._named([], IDS), quarantine._named([], IDS[:8])),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_the_texts_of_two_requests_differ(one: str, other: str) -> None:
    assert one != other


def test_one_that_was_interrupted_goes_on_without_a_third(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Blocked):
        _leave(shop.by("alice"))
    monkeypatch.setenv("INSTEP_CRASH", "leave.tables.after=raise")
    with pytest.raises(Crashed):
        _leave(shop.by("bob"))
    monkeypatch.delenv("INSTEP_CRASH")
    _leave(shop.by("bob"))
    assert shop.app.store.connections.get("shop") is not None
    with pytest.raises(Blocked):
        _leave(shop.by("bob"))


def test_it_is_told_to_whoever_may_be_the_second(shop: Shop) -> None:
    with pytest.raises(Blocked):
        _set_key(shop.by("alice"))
    shop.app.store.outbox.gather()
    delivery = shop.app.store.outbox.claim()
    assert delivery is not None
    [line] = [one for one in shop.app.sender().message(delivery).lines if one.type == "operation.requested"]
    assert (line.what, line.status, line.severity) == ("table set-key", "requested by alice", "warning")
    assert "main.item: key (sku), rekey" in line.why


def test_erasing_a_person_s_traces_takes_one(shop: Shop) -> None:
    found = quarantine.of_row(shop.by("alice"), "main.item", {"id": "1"})
    assert quarantine.erase(shop.by("alice"), "main.item", found) == 1


def test_erasing_several_people_s_lets_go_of_them_and_takes_two(shop: Shop) -> None:
    shop.sql("insert into item values (3, 'c', 'tall')")
    shop.sync()
    held = _held(shop.alone())
    assert len(held) == 2
    assert quarantine.erase(shop.by("alice"), "main.item", []) == 0
    with pytest.raises(Blocked, match=r"quarantine erase: .* only alice has asked for it"):
        quarantine.erase(shop.by("alice"), "main.item", held)
    assert _held(shop.alone()) == held
    assert quarantine.erase(shop.by("bob"), "main.item", held) == 2


def test_erasing_one_row_s_entries_by_id_takes_one(shop: Shop) -> None:
    assert quarantine.erase(shop.by("alice"), "main.item", _held(shop.alone())) == 1


KEYS: list[tuple[list[dict[str, str | None]], int]] = [
    ([], 0),
    ([{"id": "1"}, {"id": "1"}], 1),
    ([{"id": "1"}, {"id": "2"}], 2),
    ([{"id": "1"}, {"id": "1", "place": "north"}], 1),
    ([{"id": "1"}, {"id": "1", "place": "north"}, {"id": "1", "place": "south"}], 2),
    ([{"id": "1"}, {"id": digest("1", b"salt")}], 1),
    ([{"id": None}, {"id": "1"}], 2),
]


@pytest.mark.parametrize(("keys", "rows"), KEYS)
def test_entries_of_one_row_are_known_by_keys_of_before_and_after(keys: list[dict[str, str | None]], rows: int) -> None:
    """A key that has got another column, or is hashed by now, names the row that it named before."""
    assert quarantine.rows_of((compact_json(key) for key in keys), b"salt") == rows


def _key(shop: Shop, name: str, maker: str = "test") -> ApiKey:
    return shop.app.store.api_keys.add(f"k-{secrets.token_hex(6)}", name, "approver", (), maker)


def _ended(shop: Shop, key: ApiKey) -> ApiKey:
    return shop.app.store.api_keys.end(key.id, "test")


OF_ADA = "oidc https://login.example ada"


def _another(shop: Shop) -> tuple[str, str]:
    return _key(shop, "ann").who, _key(shop, "bob").who


def _new_key(shop: Shop) -> tuple[str, str]:
    return _ended(shop, _key(shop, "ann")).who, _key(shop, "ann").who


def _new_role(shop: Shop) -> tuple[str, str]:
    """A provider's person gets another key with each role, which they may choose for an hour."""
    return _ended(shop, _key(shop, "ada@example.org", OF_ADA)).who, _key(shop, "ada@example.org", OF_ADA).who


def _new_address(shop: Shop) -> tuple[str, str]:
    return _key(shop, "ada@example.org", OF_ADA).who, _key(shop, "ada@example.com", OF_ADA).who


def _at_page(shop: Shop) -> tuple[str, str]:
    return "ann", _key(shop, "ann@local", "instep ui").who


def _both_ways(shop: Shop) -> tuple[str, str]:
    first, second = _new_key(shop)
    return first, f"{first}, {second}"


def _other_person_joined(shop: Shop) -> tuple[str, str]:
    first, second = _another(shop)
    return first, f"{first}, {second}"


def _looks_like_a_key(shop: Shop) -> tuple[str, str]:
    """An account may be called anything."""
    key = _key(shop, "ann")
    return key.who, f"bob ({key.id})"


PERSONS: dict[str, tuple[Callable[[Shop], tuple[str, str]], bool]] = {
    "another person": (_another, True), "the same name under a new key": (_new_key, False),
    "the same person of a provider with another role": (_new_role, False),
    "the same person of a provider with another address": (_new_address, False),
    "the same account by the page and by a command": (_at_page, False),
    "one person under two keys": (_both_ways, False), "two people together": (_other_person_joined, True),
    "an account with a key's id in its name": (_looks_like_a_key, True),
}  # fmt: skip


@pytest.mark.parametrize(("people", "two"), PERSONS.values(), ids=PERSONS)
def test_two_keys_of_one_person_are_not_two_people(
    shop: Shop, people: Callable[[Shop], tuple[str, str]], two: bool
) -> None:
    assert [_asks(shop, who) for who in people(shop)] == [False, two]


def _asks(shop: Shop, who: str) -> bool:
    try:
        _set_cursor(shop.by(who))
    except Blocked:
        return False
    return True


def test_a_request_counts_as_long_as_its_key(shop: Shop) -> None:
    """What somebody has requested with a stolen key is nobody's word once it is revoked, also while its job waits."""
    ann, bob, eve = (_key(shop, name) for name in ("ann", "bob", "eve"))
    assert not _asks(shop, eve.who)
    _ended(shop, eve)
    assert not _asks(shop, ann.who)
    with pytest.raises(Blocked, match=r"eve \(k-[0-9a-f]+\), who has asked for it, no longer has an API key"):
        _set_cursor(shop.by(eve.who))
    assert [one for one in shop.acts() if one[0] == "operation.confirmed"] == []
    assert _asks(shop, bob.who)
