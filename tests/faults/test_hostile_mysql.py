"""A MySQL that means harm, or is broken: it gets no file and no password, what it answers fails by name and in time,
and no text of it moves the cursor of a terminal."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest

from certificates import make_certificates
from command_runs import run
from faults.hostile import Act, Client, hostile
from faults.hostile_mysql import EOF, FILE, OK, at, error, greeting, header, let_in, packet, row, switching
from faults.hostile_postgres import ESCAPES, GARBAGE, MOVES, cut, says
from instep.errors import ConnectError
from instep.project.sections.databases import MySqlSourceSection
from instep.sources.mysql.source import MySqlSource

WAIT = 30
SECRET = "kö'rrekt horse"
PROJECT = """\
version: 1
project: shop
sources:
  db: {{type: mysql, host: 127.0.0.1, port: {port}, database: shop, user: u, tls: {{mode: {tls}}},
       password: "${{env:DB_PASSWORD}}", connect_timeout: {login}, read_timeout: {quiet}}}
destinations:
  lake: {{type: iceberg, warehouse: lake}}
connections:
  shop: {{source: db, destination: lake}}
"""
TOLD = ESCAPES.replace("{password}", SECRET)
STRANGE = "does not speak as MySQL does"
GIVEN_AWAY = "the server asks for the password itself"
PACKAGE = "/shop: 'pynacl' package is required"
"""What an honest server may ask for is no fault of it."""
TABLES = b"information_schema.tables"
LIE = b"\xff\xff\x3f"
"""A length of 4 MB."""


def infile(client: Client, number: int) -> None:
    client.say(packet(number, b"\xfb" + FILE.encode()))
    client.silence()


def endless(client: Client, number: int) -> None:
    client.say(header(number, "a", "b"))
    client.flood(b"".join(row(n, "x" * 200, "y" * 200) for n in range(256)))


def endless_small(client: Client, number: int) -> None:
    """Rows that pymysql reads, which counts them."""
    client.say(header(number, "a"))
    client.flood(b"".join(row(number + 3 + n, "x" * 200) for n in range(256)))


def tables(*values: bytes) -> Act:
    """The catalog begins with a row of these texts, as they are on the wire."""
    names = header(1, "schema", "name", "kind", "comment", "h")
    return at(TABLES, lambda c, _: c.say(names + packet(7, b"".join(values)) + packet(8, EOF)))


def settings(then: object) -> Act:
    return at(b"SET SESSION time_zone", then)  # type: ignore[arg-type]


CASES: list[tuple[str, Act, str, str]] = [
    ("garbage", says(GARBAGE), "prefer", STRANGE),
    ("a greeting of garbage", says(packet(0, GARBAGE)), "prefer", STRANGE),
    ("an empty greeting", says(packet(0, b"")), "prefer", STRANGE),
    ("a version that is none", says(greeting(version=b"\x1b[2J"), then=Client.hear), "prefer", STRANGE),
    ("cut off", says(greeting()[:30], then=cut), "prefer", "the login was cut off"),
    ("an error with escapes", says(error(0, TOLD)), "prefer", r"\x1b[2J\x1b]0;owned\x07 first\r\nerror: second"),
    ("no TLS", says(greeting()), "require", "no TLS connection"),
    ("password in clear", switching(b"mysql_clear_password"), "prefer", GIVEN_AWAY),
    ("password in clear, no TLS wanted", switching(b"mysql_clear_password"), "disable", GIVEN_AWAY),
    ("a question for it", switching(b"dialog", b"\2Password: "), "prefer", GIVEN_AWAY),
    ("the old proof", switching(b"mysql_old_password", b"12345678"), "prefer", GIVEN_AWAY),
    ("a proof that needs a package", switching(b"client_ed25519", bytes(32)), "prefer", PACKAGE),
    ("an unknown proof", switching(b"\x1b[2Jproof"), "prefer", "the login method is not supported"),
    ("a file, for a setting", settings(infile), "prefer", STRANGE),
    ("a file, for the catalog", at(TABLES, infile), "prefer", "it asks for a file of this machine"),
    ("a catalog without end", at(TABLES, endless), "prefer", "the catalog has no end"),
    ("a catalog that is none", at(TABLES, lambda c, n: c.say(packet(n, OK))), "prefer", STRANGE),
    ("a catalog of bytes", tables(*[b"\1\xff"] * 5), "prefer", STRANGE),
    ("a catalog without digests", tables(*[b"\1z"] * 5), "prefer", STRANGE),
    ("a catalog of NULL", tables(*[b"\xfb"] * 5), "prefer", STRANGE),
    ("a setting with rows without end", settings(endless_small), "prefer", "has no end: it was cut off after 8 MB"),
]
SILENT: list[tuple[str, Act, int, int, str]] = [
    ("never answers", Client.silence, 1, WAIT, "no answer in time"),
    ("drips", lambda c: c.drip(greeting()), 1, WAIT, "no answer in time"),
    ("a length that lies", says(LIE + b"\0" + greeting()[4:]), 1, WAIT, "no answer in time"),
    ("a file, at the login", let_in(lambda c, n, _: infile(c, n)), WAIT, 1, "no word from the server"),
    ("a setting never answered", settings(lambda c, _: c.silence()), WAIT, 1, "no word from the server for 1 s"),
]
"""With the seconds for each word of the login and for others: few, where silence is the fault."""


@pytest.mark.parametrize(("act", "tls", "word"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, act: Act, tls: str, word: str
) -> None:
    told(tmp_path, capsys, monkeypatch, act, word, tls=tls)


@pytest.mark.sampled
@pytest.mark.parametrize(("act", "login", "quiet", "word"), [c[1:] for c in SILENT], ids=[c[0] for c in SILENT])
def test_a_silent_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    act: Act, login: int, quiet: int, word: str,
) -> None:  # fmt: skip
    told(tmp_path, capsys, monkeypatch, act, word, login=login, quiet=quiet)


def told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, act: Act, word: str,
    tls: str = "prefer", login: int = WAIT, quiet: int = WAIT,
) -> None:  # fmt: skip
    """`source test` says `word`, and nothing that it should not."""
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    monkeypatch.setattr("instep.stage.timeouts.MOST", 8 << 20)
    monkeypatch.setitem(sys.modules, "nacl", None)  # it may be installed
    monkeypatch.setattr("instep.sources.mysql.connect.is_near", lambda _: False)
    with hostile(act) as server:
        tmp_path.joinpath("instep.yml").write_text(PROJECT.format(port=server.port, tls=tls, login=login, quiet=quiet))
        said = run(capsys, "--project", str(tmp_path), "source", "test")
        heard = server.heard
    assert said.code == 4, said
    text = said.out + said.err
    assert word in text
    assert f"127.0.0.1:{server.port}" in text
    assert not MOVES.search(text)
    assert SECRET not in text
    assert not [line for line in text.splitlines() if line.startswith("error")]
    assert SECRET.encode() not in heard
    assert Path(FILE).read_bytes().strip() not in heard


TOLD_ITSELF = [(b"mysql_clear_password", b""), (b"dialog", b"\2Password: ")]


@pytest.mark.parametrize("tls", [True, False], ids=["over TLS", "on this machine"])
@pytest.mark.parametrize(("plugin", "more"), TOLD_ITSELF)
def test_where_nobody_hears_the_password_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugin: bytes, more: bytes, tls: bool
) -> None:
    shown = None
    if tls:
        make_certificates(tmp_path)
        shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        shown.load_cert_chain(tmp_path / "good.pem", tmp_path / "good.key")
        monkeypatch.setattr("instep.sources.mysql.connect.is_near", lambda _: False)
    with hostile(switching(plugin, more, shown)) as server:
        config = MySqlSourceSection.resolved(
            type="mysql",
            host="127.0.0.1",
            database="shop",
            user="u",
            port=server.port,
            password=SECRET,
            connect_timeout=30,
        )
        with pytest.raises(ConnectError, match="refuses this user and password"):
            MySqlSource(config).discover()
    assert SECRET.encode() in server.heard
