"""No secret in anything that is kept or shown, and nothing lost or doubled by several senders or their deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cli.cli_world import CHANGED, TABLES, Shop
from instep.egress.guard import EgressGuard
from instep.events import Paused
from instep.notify import chat_services
from instep.notify.channel import PostChannel
from instep.notify.deliver import Sender
from instep.project.sections.channels import PostChannelSection
from instep.store.history.outbox import Notice
from instep.store.store import Store
from receivers import Web, post_office, web

CANARY = "canary-71c0ffee"
PROJECT = """\
version: 1
project: shop
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections:
  shop: {source: db, destination: lake, hash: [main.customer.city], salt: "${env:SALT}"}
channels:
  hook: {type: webhook, url: "${env:HOOK}", secret: "${env:SECRET}"}
  chat: {type: slack, url: "${env:HOOK}"}
  mail:
    {type: email, host: localhost, port: PORT, user: me, password: "${env:PASSWORD}", sender: i@a.org, to: [d@a.org]}
notify: [{on: [detected, applied, paused, failed], to: hook}, {on: [detected], to: chat}, {on: [paused], to: mail}]
egress: {allow: [127.0.0.1, "::1"]}
"""


def everything(folder: Path) -> bytes:
    """All that the project has written but for its source, its lake and its settings."""
    kept = (p for p in folder.rglob("*") if p.is_file() and p.suffix not in (".duckdb", ".yml") and p.name != "shop.db")
    return b"".join(path.read_bytes() for path in kept)


def test_secrets_and_hashed_values_are_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import base64

    with web() as receiver, post_office(users={"me": "another"}) as post:
        for name in ("PASSWORD", "SALT"):
            monkeypatch.setenv(name, f"{CANARY}-{name}")
        secret = base64.b64encode(f"{CANARY}-and-some-more-bytes".encode()).decode()
        monkeypatch.setenv("SECRET", f"whsec_{secret}")
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{receiver.port}/{CANARY}")
        receiver.answers = [(500, {}), (302, {"Location": f"/{CANARY}"})]
        shop = Shop(tmp_path, capsys)
        shop.write(text=PROJECT.replace("PORT", str(post.port)))
        shop.sql(TABLES.replace("Oslo", f"{CANARY}-Oslo"))
        said = [shop.run("sync"), shop.run("pause", "shop"), shop.run("resume", "shop")]
        shop.sql(CHANGED)
        said += [shop.run("sync"), shop.run("notify", "log"), shop.run("notify", "send"), shop.run("notify", "list")]
        said += [shop.run("notify", "test", name) for name in ("hook", "chat", "mail")]
    assert len(receiver.got) >= 4
    shown = "".join(s.out + s.err for s in said).encode() + everything(tmp_path)
    told = b"".join(body + repr({**headers, "Host": ""}).encode() for _, headers, body in receiver.got)
    for text in (CANARY, secret, CANARY[::-1], base64.b64encode(CANARY.encode()).decode()[:-4]):
        assert text.encode() not in shown
        assert text.encode() not in told


def told_by(store: Store) -> None:
    store.outbox.routing = lambda event, at: [Notice("chat", event.connection, "paused", "error", True, at)]


def sender(store: Store, receiver: Web) -> Sender:
    channel = PostChannel(
        PostChannelSection.resolved(type="slack", url=receiver.url),
        EgressGuard(("127.0.0.1",)),
        chat_services.slack_payload,
    )
    return Sender(store, lambda _: channel, str, lambda *_: "", store._db.now)


def test_several_senders_send_each_delivery_once(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'state.db'}") as store, web() as receiver:
        told_by(store)
        for number in range(40):
            store.events.add(Paused(f"c{number}", f"why {number}"))
        threads = [threading.Thread(target=sender(store, receiver).send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        titles = [document["text"] for document in receiver.documents]
        assert len(titles) == len(set(titles)) == 40
        assert store.outbox.waiting() == {}


KILLED = """\
import sys
sys.path[:0] = sys.argv[3:]
from test_notify_safety import sender
from instep.store.store import Store
from receivers import Web
with Store(sys.argv[1]) as store:
    print("ready", flush=True)
    sender(store, Web(int(sys.argv[2]))).send()
"""


def test_a_sender_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    here = Path(__file__).parent
    with Store(url) as store, web() as receiver:
        told_by(store)
        for number in range(60):
            store.events.add(Paused(f"c{number}", "why"))
        for _ in range(2):
            arguments = [sys.executable, "-c", KILLED, url, str(receiver.port), str(here), str(here.parent)]
            child = subprocess.Popen(arguments, stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(0.15)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            child.stdout.close()
        with store._db.write() as connection:  # the leases of the dead end
            connection.exec_driver_sql("update deliveries set lease_until = null where status = 'waiting'")
        sender(store, receiver).send()
        assert store.outbox.waiting() == {}
        names = {document["text"].partition(":")[0].replace("\u200b", "") for document in receiver.documents}
        assert names == {f"c{number}" for number in range(60)}
        assert len(receiver.got) <= 62
