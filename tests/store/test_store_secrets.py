"""Sealed secrets: what opens them, what does not, and keys that take turns."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text, update

from instep.errors import InstepError, ProjectError
from instep.store.engine.keyring import (
    FILE,
    INSECURE,
    Keyring,
    Sealed,
    SecretPlace,
    add_key,
    keyring,
    new_key,
    parse,
    rewrap,
    seal,
    unseal,
)
from instep.store.store import Store
from instep.store.tables.server import secrets as table

CANARY = "canary-Ω-7d1f0c"
OLD, NEW = Keyring(parse(new_key("k1"), "")), Keyring(parse(new_key("k2"), ""))
BOTH = Keyring({**NEW.keys, **OLD.keys})
PLACE = SecretPlace("source", "shop", "/password", 1)


@given(secret=st.text())
def test_what_is_sealed_opens_again_and_after_a_change_of_keys(secret: str) -> None:
    made = seal(OLD, PLACE, secret)
    assert unseal(OLD, PLACE, made) == secret
    moved = rewrap(BOTH, PLACE, made)
    assert (moved.key, moved.value, unseal(NEW, PLACE, moved)) == ("k2", made.value, secret)


def test_the_same_secret_never_looks_the_same() -> None:
    made = [seal(OLD, PLACE, CANARY) for _ in range(50)]
    assert len({m.value for m in made} | {m.wrapped for m in made}) == 100


# a place that the row was moved to
MOVED = [
    SecretPlace("destination", "shop", "/password", 1),
    SecretPlace("source", "shop2", "/password", 1),
    SecretPlace("source", "shop", "/tls/key", 1),
    SecretPlace("source", "shop", "/password", 2),
]


@pytest.mark.parametrize("place", MOVED)
def test_a_secret_opens_at_its_place_only(place: SecretPlace) -> None:
    with pytest.raises(InstepError, match="does not open"):
        unseal(OLD, place, seal(OLD, PLACE, CANARY))
    with pytest.raises(InstepError, match="does not open"):
        rewrap(BOTH, place, seal(OLD, PLACE, CANARY))


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), which=st.sampled_from(["wrapped", "value"]))
def test_no_bit_of_it_can_be_changed(at: int, bit: int, which: str) -> None:
    made = seal(OLD, PLACE, CANARY)
    raw = bytearray(base64.b64decode(getattr(made, which)))
    raw[at % len(raw)] ^= 1 << bit
    changed = Sealed(**{**vars(made), which: base64.b64encode(bytes(raw)).decode()})
    with pytest.raises(InstepError, match="does not open"):
        unseal(OLD, PLACE, changed)


@pytest.mark.parametrize("wrong", ["", "x", "AAAA", "é"])
def test_what_is_no_seal_is_told(wrong: str) -> None:
    with pytest.raises(InstepError, match="source shop: /password does not open"):
        unseal(OLD, PLACE, Sealed("k1", wrong, wrong))


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ProjectError, match="master key 'k1' is missing"):
        unseal(NEW, PLACE, seal(OLD, PLACE, CANARY))


class TestKeyring:
    def test_the_environment_comes_before_the_file(self, tmp_path: Path) -> None:
        add_key(tmp_path / FILE, "k1")
        assert keyring(tmp_path, variables={}).current == "k1"
        given = {"INSTEP_KEYS": f"{new_key('k3')} {new_key('k2')}"}
        found = keyring(tmp_path, variables=given)
        assert list(found.keys) == ["k3", "k2"]
        assert given["INSTEP_KEYS"][3:20] not in repr(found)

    def test_a_new_key_in_a_file_is_the_current_one(self, tmp_path: Path) -> None:
        for id in ("k1", "k2"):
            add_key(tmp_path / FILE, id)
        assert list(keyring(tmp_path, variables={}).keys) == ["k2", "k1"]
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
        with pytest.raises(ProjectError, match="has a key 'k1' already"):
            add_key(tmp_path / FILE, "k1")

    def test_a_key_that_is_added_later_is_found_when_it_is_missing(self, tmp_path: Path, url: str) -> None:
        file = tmp_path / FILE
        add_key(file, "k1")
        running = keyring(tmp_path, variables={})
        with Store(url, keys=running) as server:
            id = server.secrets.put("source", "shop", "/password", CANARY, who="eve")
            server.connectors.save("c", {"at": 1})
            add_key(file, "k2")
            with Store(url, keys=keyring(tmp_path, variables={})) as command:
                assert (command.secrets.rotate(), command.connectors.rotate()) == (1, 1)
            assert running.current == "k1"
            assert server.secrets.open(id, "source", "shop", "/password") == CANARY
            assert (server.connectors.get("c").state, running.current) == ({"at": 1}, "k2")
            server.secrets.put("source", "shop", "/token", CANARY, who="eve")
            assert server.secrets.by_key() == {"k2": 2}
        with pytest.raises(ProjectError, match="'k3' is missing"):
            running.key("k3")
        file.chmod(0o644)
        with pytest.raises(ProjectError, match="others may read"):
            running.key("k3")
        assert list(running.keys) == ["k2", "k1"]

    def test_keys_of_the_environment_are_not_read_again(self, tmp_path: Path) -> None:
        running = keyring(tmp_path, variables={"INSTEP_KEYS": new_key("k1")})
        add_key(tmp_path / FILE, "k2")
        with pytest.raises(ProjectError, match="'k2' is missing"):
            running.key("k2")

    def test_without_a_key_nothing_starts_but_on_purpose(self, tmp_path: Path) -> None:
        with pytest.raises(ProjectError, match="no master key"):
            keyring(tmp_path, variables={})
        assert keyring(tmp_path, variables={}, insecure_dev=True).insecure
        add_key(tmp_path / FILE, "k1")
        found = keyring(tmp_path, variables={}, insecure_dev=True)
        assert (found.current, list(found.keys)) == ("k1", ["k1", INSECURE])

    def test_a_file_that_others_may_read_is_refused(self, tmp_path: Path) -> None:
        add_key(tmp_path / FILE, "k1")
        (tmp_path / FILE).chmod(0o640)
        with pytest.raises(ProjectError, match="others may read"):
            keyring(tmp_path, variables={})

    @pytest.mark.parametrize("wrong", ["k1", "k1:AAAA", f"{INSECURE}:{'A' * 43}=", f"/:{'A' * 43}=", "k1:%%%"])
    def test_what_is_no_key_is_refused_and_not_repeated(self, wrong: str) -> None:
        with pytest.raises(ProjectError, match=r"KEYS: key number 2") as caught:
            parse(f"{new_key('k9')} {wrong}", "KEYS")
        assert wrong.partition(":")[2] == "" or wrong not in str(caught.value)


@pytest.fixture
def sealing(any_url: str) -> Iterator[Store]:
    with Store(any_url, keys=OLD) as store:
        yield store


def test_versions_of_one_field(sealing: Store) -> None:
    first = sealing.secrets.put("source", "shop", "/password", "one", who="eve", origin="${env:PW}")
    second = sealing.secrets.put("source", "shop", "/password", "two", who="bob")
    other = sealing.secrets.put("source", "shop", "/tls/key", "three", who="bob")
    assert [r.place.version for r in sealing.secrets.of("source", "shop")] == [1, 2, 1]
    assert [sealing.secrets.open(id, "source", "shop", "/password") for id in (first, second)] == ["one", "two"]
    assert sealing.secrets.delete_others("source", "shop", {second, other}) == 1
    assert [(r.id, r.who) for r in sealing.secrets.of("source", "shop")] == [(second, "bob"), (other, "bob")]
    for place in (("source", "shop", "/tls/key"), ("source", "other", "/password")):
        with pytest.raises(InstepError, match="no secret"):
            sealing.secrets.open(second, *place)


def test_a_row_that_was_moved_in_the_database_does_not_open(sealing: Store) -> None:
    id = sealing.secrets.put("source", "shop", "/password", CANARY, who="")
    with sealing._db.write() as transaction:
        transaction.execute(update(table).values(name="mine"))
    with pytest.raises(InstepError, match="does not open"):
        sealing.secrets.open(id, "source", "mine", "/password")


def test_without_keys_the_store_opens_but_no_secret(url: str) -> None:
    with Store(url) as store, pytest.raises(ProjectError, match="no master keys"):
        store.secrets.put("source", "shop", "/password", CANARY, who="")


def spellings(secret: str) -> list[bytes]:
    raw = secret.encode()
    return [raw, raw[::-1], base64.b64encode(raw)[:-4], raw.hex().encode(), json.dumps(secret).strip('"').encode()]


def test_no_byte_of_the_database_shows_a_secret(url: str, tmp_path: Path) -> None:
    with Store(url, keys=BOTH) as store:
        store.secrets._keys = lambda: OLD
        for at in range(20):
            store.secrets.put("source", f"s{at}", "/password", CANARY, who="eve")
        store.secrets._keys = lambda: BOTH
        store.secrets.rotate(batch=7)
        store.secrets.delete_others("source", "s1", ())
        files = [f for f in tmp_path.iterdir() if f.is_file()]
        found = b"".join(f.read_bytes() for f in files)
        assert len(files) == 3, "the log of writes, too"
        assert [s for s in spellings(CANARY) if s in found] == []
    assert [s for s in spellings(CANARY) if s in (tmp_path / "state.db").read_bytes()] == []


def test_rotation_without_the_old_key_says_which(url: str) -> None:
    with Store(url, keys=OLD) as store:
        store.secrets.put("source", "shop", "/password", CANARY, who="")
    with Store(url, keys=NEW) as store:
        with pytest.raises(ProjectError, match="'k1' is missing"):
            store.secrets.rotate()
        with store._db.read() as transaction:
            assert transaction.execute(text("SELECT key FROM secrets")).scalar() == "k1"
