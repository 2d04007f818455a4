"""API keys, answers to repeated requests, and the audit log's chain."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, update
from store_world import START, Clock

from instep.errors import Conflict, InstepError
from instep.store.server.audit import FIRST, Chain
from instep.store.store import Store
from instep.store.tables.server import audit

DAY = timedelta(days=1)


class TestKeys:
    def test_a_secret_lets_its_key_in_until_it_expires(self, any_store: Store, clock: Clock) -> None:
        any_store.api_keys.add("k-1", "ci", "viewer", ["eu"], "ann")
        any_store.api_keys.add_secret("k-1", "d1", "instep_sk_ab12", START + DAY)
        found = any_store.api_keys.live("d1")
        assert found is not None
        assert (found.id, found.groups, found.created_by) == ("k-1", ("eu",), "ann")
        clock.forward(DAY.total_seconds())
        assert any_store.api_keys.live("d1") is None
        assert any_store.api_keys.live("d2") is None

    def test_two_secrets_live_and_no_third(self, any_store: Store, clock: Clock) -> None:
        any_store.api_keys.add("k-1", "ci", "viewer", [], "ann")
        any_store.api_keys.add_secret("k-1", "d1", "p", None)
        any_store.api_keys.add_secret("k-1", "d2", "p", None)
        with pytest.raises(Conflict, match="two secrets"):
            any_store.api_keys.add_secret("k-1", "d3", "p", None)
        any_store.api_keys.expire_secrets("k-1", START + DAY, but="d2")
        clock.forward(DAY.total_seconds())
        assert any_store.api_keys.live("d1") is None
        any_store.api_keys.add_secret("k-1", "d3", "p", None)

    def test_ending_is_for_all_of_its_secrets_and_for_good(self, any_store: Store) -> None:
        any_store.api_keys.add("k-1", "ci", "viewer", [], "ann")
        any_store.api_keys.add_secret("k-1", "d1", "p", None)
        first = any_store.api_keys.end("k-1", "bob")
        assert any_store.api_keys.end("k-1", "eve") == first
        assert any_store.api_keys.live("d1") is None
        with pytest.raises(Conflict, match="revoked"):
            any_store.api_keys.add_secret("k-1", "d2", "p", None)
        assert any_store.api_keys.add("k-2", "ci", "viewer", [], "ann").name == "ci"

    def test_a_name_is_used_once(self, any_store: Store) -> None:
        any_store.api_keys.add("k-1", "ci", "viewer", [], "ann")
        with pytest.raises(Conflict, match="'ci' exists already"):
            any_store.api_keys.add("k-2", "ci", "admin", [], "ann")

    def test_use_is_noted_once_a_minute(self, store: Store, clock: Clock) -> None:
        store.api_keys.add("k-1", "ci", "viewer", [], "ann")
        store.api_keys.add_secret("k-1", "d1", "p", None)
        seen = []
        for _ in range(4):
            store.api_keys.live("d1")
            seen.append(store.api_keys.get("k-1").secrets[0].last_used)
            clock.forward(30)
        assert seen == [START, START, START + timedelta(minutes=1), START + timedelta(minutes=1)]

    def test_pages_and_counts(self, any_store: Store) -> None:
        for number in range(5):
            any_store.api_keys.add(f"k-{number}", f"n{number}", "admin" if number else "viewer", [], "ann")
        any_store.api_keys.add_secret("k-1", "d1", "p", None)
        assert [k.id for k in any_store.api_keys.page("k-1", 2)] == ["k-2", "k-3"]
        assert (any_store.api_keys.count(), any_store.api_keys.count("admin")) == (5, 1)
        with pytest.raises(InstepError, match="no API key 'k-9'"):
            any_store.api_keys.get("k-9")


class TestIdempotency:
    def test_kept_for_a_day_for_its_caller(self, any_store: Store, clock: Clock) -> None:
        find, keep = any_store.idempotency.find, any_store.idempotency.store_answer
        keep("k-1", "t", b"asked", 201, {"id": 1})
        found = find("k-1", "t")
        assert found is not None
        assert (found.status, found.body, found.answers(b"asked"), found.answers(b"other")) == (
            201, {"id": 1}, True, False,
        )  # fmt: skip
        assert find("k-2", "t") is None
        clock.forward(DAY.total_seconds())
        assert find("k-1", "t") is None
        keep("k-1", "t", b"other", 200, {})
        assert (again := find("k-1", "t")) is not None
        assert again.answers(b"other")

    def test_equal_requests_do_not_look_it(self, any_store: Store) -> None:
        for token in ("a", "b"):
            any_store.idempotency.store_answer("k-1", token, b"asked", 200, {})
        found = [any_store.idempotency.find("k-1", token) for token in ("a", "b")]
        assert len({one.digest for one in found if one}) == 2
        assert all(one.answers(b"asked") for one in found if one)


class TestAudit:
    def test_the_chain_holds_and_is_paged(self, any_store: Store, clock: Clock) -> None:
        assert any_store.audit.check() == Chain(0, FIRST)
        for number in range(5):
            clock.forward(0.25)
            last = any_store.audit.add("ann", "change.approve", f"c-{number}", {"n": number, "ü": [1.5, None]})
        assert any_store.audit.check() == Chain(5, last.digest)
        assert [e.number for e in any_store.audit.page(before=4, limit=2)] == [3, 2]
        assert any_store.audit.page(limit=1) == [last]
        assert any_store.audit.holds(last.previous)
        assert not any_store.audit.holds("0" * 63 + "1")

    def test_an_entry_is_undone_with_its_transaction(self, any_store: Store) -> None:
        any_store.audit.add("ann", "a", "x", {})
        with suppress(RuntimeError), any_store.transaction():
            any_store.audit.add("ann", "a", "y", {})
            raise RuntimeError
        any_store.audit.add("ann", "a", "z", {})
        assert [e.target for e in any_store.audit.page()] == ["z", "x"]
        assert any_store.audit.check().entries == 2

    @given(
        at=st.integers(1, 5),
        change=st.sampled_from([
            {"actor": "eve"}, {"action": "b"}, {"target": "y"}, {"detail": {"n": 9}}, {"at": START + DAY},
            {"previous": "f" * 64}, {"digest": "f" * 64}, {"number": 99}, None,
        ]),
    )  # fmt: skip
    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_whatever_is_changed_is_found(
        self, tmp_path_factory: pytest.TempPathFactory, at: int, change: dict[str, Any] | None
    ) -> None:
        place: Path = tmp_path_factory.mktemp("chain") / "state.db"
        with Store(f"sqlite:///{place}") as store:
            for number in range(5):
                last = store.audit.add("ann", "a", "x", {"n": number})
            with store._db.write() as transaction:
                where = audit.c.number == at
                edit = delete(audit).where(where) if change is None else update(audit).where(where).values(**change)
                transaction.execute(edit)
            found = store.audit.check()
            assert found.broken or (change is None and at == 5 and not store.audit.holds(last.digest))
