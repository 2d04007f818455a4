"""Changing the master key, killed at any row: every secret still opens, and the next call goes on."""

from __future__ import annotations

import base64
import signal
from pathlib import Path

import pytest
from crash_cases import SECRETS

from forks import Forks
from instep.store.engine.keyring import Keyring, new_key, parse
from instep.store.store import Store

OLD, NEW = Keyring(parse(new_key("k1"), "")), Keyring(parse(new_key("k2"), ""))
BOTH = Keyring({**NEW.keys, **OLD.keys})


def rotate(url: str, lines: str) -> None:
    with Store(url, keys=Keyring(parse(lines, "lines"))) as store:
        store.secrets.rotate(batch=3)


@pytest.mark.parametrize("point", SECRETS)
def test_a_rotation_that_is_killed_loses_nothing_and_goes_on(forked: Forks, tmp_path: Path, point: str) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    with Store(url, keys=OLD) as store:
        ids = {store.secrets.put("source", f"s{n}", "/password", f"pw{n}", who=""): n for n in range(10)}
    lines = "\n".join(f"{id}:{base64.b64encode(key).decode()}" for id, key in BOTH.keys.items())
    ended = forked.run("test_crash_secrets.rotate", url, lines, crash=f"{point}=kill")
    assert ended.code == -signal.SIGKILL, ended.said
    with Store(url, keys=BOTH) as store:
        counts = store.secrets.by_key()
        assert sum(counts.values()) == 10
        assert {id: f"pw{n}" for id, n in ids.items()} == {
            id: store.secrets.open(id, "source", f"s{n}", "/password") for id, n in ids.items()
        }
        assert store.secrets.rotate() == counts.get("k1", 0)
        assert store.secrets.by_key() == {"k2": 10}
        assert store.secrets.rotate() == 0
    with Store(url, keys=NEW) as store:
        assert all(store.secrets.open(id, "source", f"s{n}", "/password") == f"pw{n}" for id, n in ids.items())
