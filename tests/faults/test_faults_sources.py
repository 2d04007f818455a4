"""Networks between instep and a source that cut, forget and crawl, at each phase of a sync: what fails is told with its
cause and next step, in time; nothing of it is committed; the next sync ends equal to the source."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certificates import make_certificates
from fault_proxy import CALM, Fault, Proxy, before
from faults.conftest import MakeFar
from instep.errors import InstepError
from instep.project.sections.reach import Tls
from instep.sources.mysql.source import MySqlSource
from instep.sources.postgres.read import PostgresReader
from mariadb import MariaServer, launch, open_as
from sync_world import World

TIMEOUTS: dict[str, Any] = {"connect_timeout": 3, "read_timeout": 2}
SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, pad varchar(2000))",
    "CREATE TABLE small (id int PRIMARY KEY, v int)",
    "INSERT INTO small VALUES (1, 1), (2, 2)",
)
FILL = {
    "postgres": "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i",
    "mysql": "INSERT INTO t SELECT seq, repeat('x', 1000) FROM seq_1_to_1000",
}
MORE = (
    "UPDATE t SET pad = 'changed' WHERE id < 10",
    "DELETE FROM t WHERE id = 500",
    "INSERT INTO small VALUES (3, 3)",
)
SCHEMA = {"postgres": b"pg_attribute", "mysql": b"information_schema"}
ROWS = {"postgres": b"COPY (", "mysql": b"`pad`"}


def loaded(make: MakeFar, kind: str, **settings: Any) -> tuple[World, Proxy]:
    """A world that was synced once, whose source has changed since."""
    world, proxy = make(kind, **{**TIMEOUTS, **settings})
    world.run(*SETUP, FILL[kind])
    assert world.sync().status == "done"
    world.run(*MORE)
    return world, proxy


def standing(world: World) -> dict[str, Any]:
    return {name: world.rows(name) for name in ("t", "small")}


def said(world: World) -> str:
    """What became of a sync whose source was lost, as text. Each table that failed counts as one without a source, so
    that a run of these alone ends with the exit code of that."""
    try:
        report = world.sync()
    except InstepError as error:
        text, lost = str(error), error.exit_code == 4
    else:
        text = "\n".join(t.error for t in report.tables)
        lost = {".".join(t.table) for t in report.tables if t.status == "failed"} <= set(report.unread)
    assert lost, text
    return text


def password_of(world: World) -> str:
    source: Any = world.case.source()
    return str(source.config.password)


PHASES: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
    ("connect", "reset", {"down": 0}, ("127.0.0.1", "again")),
    ("connect", "silence", {"down": 0}, ("127.0.0.1", "no answer in time", "connect_timeout")),
    ("login", "reset", {"down": 30}, ("127.0.0.1", "again")),
    ("login", "silence", {"down": 30}, ("127.0.0.1", "no answer in time", "connect_timeout")),
    ("login cut at our side", "reset", {"up": 20}, ("127.0.0.1", "again")),
    ("schema", "reset", {"mark": SCHEMA, "down": 50}, ("127.0.0.1", "again")),
    ("schema", "silence", {"mark": SCHEMA, "down": 50}, ("no word from the server for 2 s", "read_timeout")),
    ("rows", "reset", {"mark": ROWS, "down": 200_000}, ("public.t", "again")),
    ("rows", "silence", {"mark": ROWS, "down": 200_000}, ("public.t", "no word from the server", "read_timeout")),
    ("query", "reset", {"mark": ROWS, "unheard": True}, ("public.t", "again")),
    ("query", "silence", {"mark": ROWS, "unheard": True}, ("public.t", "no word from the server", "read_timeout")),
]


@pytest.mark.drawn(3)
@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(("how", "where", "words"), [p[1:] for p in PHASES], ids=[f"{p[0]} {p[1]}" for p in PHASES])
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_each_phase(make_far: MakeFar, kind: str, how: Any, where: dict[str, Any], words: tuple[str, ...]) -> None:
    world, proxy = loaded(make_far, kind)
    was, begun = standing(world), time.monotonic()
    proxy.set(Fault(how, times=0, **{k: v[kind] if isinstance(v, dict) else v for k, v in where.items()}))
    told = said(world)
    assert proxy.strikes
    assert time.monotonic() - begun < 600, "it hung"
    for word in words:
        assert word.replace("public.", "" if kind == "mysql" else "public.") in told
    assert password_of(world) not in told
    now = standing(world)
    assert now["t"] == was["t"], "nothing of a table that failed is committed"
    proxy.set(CALM)
    proxy.hang_up()
    assert world.sync().status == "done"
    assert world.differing() == {}


CRAWL = [
    ("late", Fault("silence", times=-1, latency=0.01, jitter=0.02)),
    ("slow", Fault("silence", times=-1, bandwidth=2_000_000)),
    ("byte by byte", Fault("silence", times=-1, slice=1)),
    ("odd pieces", Fault("silence", times=-1, slice=777, jitter=0.002)),
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [c[1] for c in CRAWL], ids=[c[0] for c in CRAWL])
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_network_that_crawls_is_no_fault(make_far: MakeFar, kind: str, fault: Fault) -> None:
    """Though the limits are those of silence: a read may take many times its own. A login may not."""
    world, proxy = loaded(make_far, kind, connect_timeout=600)
    world.run("DELETE FROM t WHERE id > 100")
    proxy.set(fault)
    assert world.sync().status == "done"
    proxy.set(CALM)
    assert world.differing() == {}


@pytest.mark.slow
def test_a_login_that_ends_too_late_leaves_no_connection(make_far: MakeFar) -> None:
    """The driver reads the server's types behind the login, and says nothing until it has them. What nobody closes, it
    warns of, which fails this."""
    world, proxy = make_far("postgres", connect_timeout=2, read_timeout=1)
    proxy.set(Fault("silence", times=-1, bandwidth=10_000))
    source: Any = world.case.source()
    others = set(threading.enumerate())
    with pytest.raises(InstepError, match="no word from the server for 2 s"), PostgresReader(source.config, ()).open():
        pass
    proxy.set(CALM)
    for thread in set(threading.enumerate()) - others:
        if thread.name == "call timeout":
            thread.join(600)


def test_rows_that_were_cut_off_once_are_read_again(make_far: MakeFar) -> None:
    world, proxy = loaded(make_far, "postgres")
    proxy.set(Fault(mark=ROWS["postgres"], down=100_000))
    assert world.sync().status == "done"
    assert proxy.strikes == 1
    assert world.differing() == {}


def test_the_other_tables_of_a_cut_connection_go_on(make_far: MakeFar) -> None:
    world, proxy = loaded(make_far, "mysql")
    proxy.set(Fault(mark=ROWS["mysql"], down=200_000))
    assert world.statuses(world.sync()) == {"t": "failed", "small": "done"}
    assert proxy.strikes == 1
    assert world.sync().status == "done"
    assert world.differing() == {}


@pytest.fixture
def secured() -> Iterator[MariaServer]:
    folder = Path(tempfile.mkdtemp(prefix="instep-maria-tls-"))
    make_certificates(folder)
    files = (("cert", "good.pem"), ("key", "good.key"), ("ca", "ca.pem"))
    server = launch(folder / "server", *(f"--ssl-{word}={folder / name}" for word, name in files))
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.server
def test_faults_under_tls(secured: MariaServer) -> None:
    """The same by counts alone: nobody in between can read what is said."""
    with open_as(secured.admin) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
    with before(secured.admin.port) as proxy:
        config = secured.admin.model_copy(
            update={"database": "shop", "port": proxy.port, **TIMEOUTS, "tls": Tls.resolved(mode="require")}
        )
        assert MySqlSource(config).fingerprint()
        for down in (0, 40, 300, 1500):
            for how, word in (("reset", "127.0.0.1"), ("silence", "no ")):
                proxy.set(Fault(how, down=down, times=0))  # type: ignore[arg-type]
                with pytest.raises(InstepError, match=word) as told:
                    MySqlSource(config).fingerprint()
                assert told.value.hint
        proxy.set(Fault(times=-1, slice=1))
        assert MySqlSource(config).fingerprint()
