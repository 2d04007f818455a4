"""API keys over time: secrets that end, overlap and are taken back; names, roles, the last one who may make keys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.control.resources import api_keys
from instep.control.resources.api_keys import Issued, authenticate, create, first_admin, in_scope, may, revoke, rotate
from instep.errors import Conflict, InstepError
from instep.store.store import Store

DAY = timedelta(days=1)


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'state.db'}", now=clock) as opened:
        yield opened


def let_in(store: Store, *issued: Issued) -> list[bool]:
    return [authenticate(store, one.secret) is not None for one in issued]


# seconds that a secret lasts, seconds later, whether it is let in
LASTS: list[tuple[float | None, float, bool]] = [
    (None, 10**9, True), (60, 0, True), (60, 59, True), (60, 60, False), (60, 61, False), (0, 0, False),
]  # fmt: skip


@pytest.mark.parametrize(("lasts", "later", "inside"), LASTS)
def test_a_key_lasts_as_long_as_was_said(
    store: Store, clock: Clock, lasts: float | None, later: float, inside: bool
) -> None:
    made = create(store, "ci", "viewer", "ann", lasts=None if lasts is None else timedelta(seconds=lasts))
    clock.time += timedelta(seconds=later)
    assert let_in(store, made) == [inside]


# overlap in days, days later, whether the old secret and the new one are let in
OVERLAPS: list[tuple[float, float, list[bool]]] = [
    (7, 0, [True, True]), (7, 6.9, [True, True]), (7, 7, [False, True]), (0, 0, [False, True]), (0, 9, [False, True]),
]  # fmt: skip


@pytest.mark.parametrize(("overlap", "later", "inside"), OVERLAPS)
def test_after_a_rotation_both_are_let_in_for_a_while(
    store: Store, clock: Clock, overlap: float, later: float, inside: list[bool]
) -> None:
    old = create(store, "ci", "operator", "ann", groups=("eu",))
    new = rotate(store, old.key.id, overlap=overlap * DAY)
    assert (new.key.id, new.key.role, new.key.groups) == (old.key.id, "operator", ("eu",))
    clock.time += later * DAY
    assert let_in(store, old, new) == inside


def test_a_key_has_two_secrets_at_most(store: Store, clock: Clock) -> None:
    made = create(store, "ci", "viewer", "ann")
    second = rotate(store, made.key.id)
    with pytest.raises(Conflict):
        rotate(store, made.key.id)
    third = rotate(store, made.key.id, overlap=timedelta())
    assert let_in(store, made, second, third) == [False, False, True], "without overlap both of before end at once"
    clock.time += 8 * DAY
    assert let_in(store, third, rotate(store, made.key.id)) == [True, True]


def test_a_shorter_life_is_not_made_longer_by_a_rotation(store: Store, clock: Clock) -> None:
    made = create(store, "ci", "viewer", "ann", lasts=DAY)
    rotate(store, made.key.id, overlap=7 * DAY)
    clock.time += 2 * DAY
    assert let_in(store, made) == [False]


def test_what_is_revoked_is_over_for_good(store: Store) -> None:
    first = first_admin(store)
    assert first is not None
    made = create(store, "ci", "admin", "ann")
    both = (made, rotate(store, made.key.id))
    revoke(store, made.key.id, "bo")
    assert let_in(store, *both) == [False, False]
    with pytest.raises(Conflict):
        rotate(store, made.key.id)
    with pytest.raises(Conflict, match="is the last admin key"):
        revoke(store, first.key.id, "bo")
    assert let_in(store, first) == [True]
    assert first_admin(store) is None, "there has been one"


def test_what_waits_on_the_word_of_a_revoked_key_alone_is_cancelled(store: Store) -> None:
    """Whoever had the key could otherwise have left work behind that is done when a worker comes, or a pause ends."""
    ann, ci = create(store, "ann", "admin", "test").key, create(store, "ci", "approver", "test").key
    alike = create(store, "ci 2", "approver", "test").key
    ids = [
        store.jobs.enqueue("eu", kind, key=key, who=who)[0].id
        for kind, key, who in (
            ("apply", "1", ci.who), ("undo", "1", ci.who), ("apply", "2", ann.who), ("verify", "", alike.who),
            ("sync", "", ci.who), ("detect", "", ""),
        )
    ]  # fmt: skip
    store.jobs.enqueue("eu", "sync", who=ann.who)
    running = store.jobs.claim("w", kinds=("undo",))
    assert running is not None
    revoke(store, ci.id, ann.who)
    assert [store.jobs.get(one).status for one in ids] == [
        "cancelled", "running", "queued", "queued", "queued", "queued",
    ]  # fmt: skip
    assert store.jobs.get(ids[0]).error == f"cancelled by {ann.who}"


def test_an_admin_key_that_is_over_does_not_count(store: Store, clock: Clock) -> None:
    short = create(store, "short", "admin", "ann", lasts=DAY)
    long = create(store, "long", "admin", "ann")
    clock.time += 2 * DAY
    with pytest.raises(Conflict, match="is the last admin key"):
        revoke(store, long.key.id, "bo")
    revoke(store, short.key.id, "bo")


WRONG = ("", " ", "-a", "a/b", "a\n", "x" * 81, "a\0", "_a")


@pytest.mark.parametrize("name", WRONG)
def test_names_that_are_none(store: Store, name: str) -> None:
    with pytest.raises(InstepError, match="cannot be the name of an API key"):
        create(store, name, "viewer", "ann")
    assert store.api_keys.count() == 0


def test_names_and_roles(store: Store) -> None:
    for name in ("a", "Größe 7", "ann@example.org", "x" * 80):
        create(store, name, "viewer", "ann")
    with pytest.raises(Conflict):
        create(store, "a", "admin", "ann")
    with pytest.raises(InstepError, match="there is no role 'root'"):
        create(store, "b", "root", "ann")


@pytest.fixture
def made(store: Store) -> Issued:
    return create(store, "ci", "viewer", "ann")


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60), st.integers(0, 60), st.sampled_from("AZaz09_-=é \n"))
def test_nothing_but_the_secret_is_let_in(store: Store, made: Issued, text: str, at: int, other: str) -> None:
    changed = made.secret[:at] + other + made.secret[at + 1 :]
    for wrong in (text, api_keys.PREFIX + text, changed, made.secret + other, made.secret[:-1]):
        assert (authenticate(store, wrong) is None) == (wrong != made.secret)
    found = authenticate(store, made.secret, made.key.id)
    assert found is not None
    assert found.id == made.key.id
    assert authenticate(store, made.secret, text) is None
    assert made.secret not in repr(made)


GROUPS = st.frozensets(st.sampled_from(["eu", "us", "lake", ""]))


@given(GROUPS, GROUPS, GROUPS)
def test_scopes(groups: frozenset[str], tags: frozenset[str], more: frozenset[str]) -> None:
    assert in_scope((), tags), "a key without groups is for all"
    if in_scope(groups, tags):
        assert in_scope(groups, tags | more), "a connection with more tags is seen by no fewer keys"
    if groups and in_scope(groups, tags):
        assert in_scope(groups | more, tags)
    assert not groups or in_scope(groups, tags) == bool(groups & tags)


@given(st.sampled_from(api_keys.ROLES), st.sampled_from(api_keys.ROLES), st.sampled_from(api_keys.ROLES))
def test_roles_are_a_ladder(a: api_keys.Role, b: api_keys.Role, c: api_keys.Role) -> None:
    assert may(a, b) or may(b, a)
    assert not (may(a, b) and may(b, c)) or may(a, c)
    assert (may(a, b) and may(b, a)) == (a == b)
    assert not may("root", a)
