"""Logs: one JSON object a line with the ids of the work, and never a secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from instep import logs
from instep.bootstrap import open_project
from instep.events import JobDead, Paused, ReviewNeeded
from instep.logs import LogSettings, bound, clean, configure
from instep.redaction import hide
from instep.store.store import Store

CANARY = "c4n4ry-V3ry-S3cret"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("instep")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    logging.captureWarnings(False)


@pytest.fixture
def out() -> io.StringIO:
    stream = io.StringIO()
    configure(LogSettings(), stream)  # auto: no terminal
    return stream


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_has_time_level_text_and_the_ids_of_the_work(out: io.StringIO) -> None:
    with bound(run="r-1", connection="shop", change=""):
        logging.getLogger("instep.sync").warning("read %d rows", 3, extra={"table": "public.orders"})
    logging.getLogger("instep.sync").debug("not at this level")
    (line,) = lines(out)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning", "logger": "instep.sync", "message": "read 3 rows", "run": "r-1", "connection": "shop",
        "table": "public.orders",
    }  # fmt: skip


def test_levels_say_the_least_that_is_written() -> None:
    for level, expected in (("debug", 4), ("info", 3), ("warning", 2), ("error", 1)):
        out = io.StringIO()
        configure(LogSettings("json", level), out)
        log = logging.getLogger("instep.x")
        for say in (log.debug, log.info, log.warning, log.error):
            say("said")
        assert len(lines(out)) == expected, level


def test_libraries_are_heard_from_warnings_on(out: io.StringIO) -> None:
    logging.getLogger("alembic").info("small talk")
    logging.getLogger("sqlalchemy.pool").warning("lost a connection")
    assert [line["logger"] for line in lines(out)] == ["sqlalchemy.pool"]


HOSTILE = "t\n12:00:00 error   forged \x1b[2J \x9b31m \u202e \u061c \u2028 \r"
"""What a source may call a table: a line of its own, and characters that act in a terminal."""


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_a_source_says_neither_acts_nor_is_a_line(form: str) -> None:
    out = io.StringIO()
    configure(LogSettings(form), out)
    log = logging.getLogger("instep")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception(HOSTILE, extra={"table": HOSTILE})
    text = out.getvalue()
    assert not set("\x1b\x9b\u202e\u061c\u2028\r") & set(text)
    assert "forged" in text
    assert not any(line.startswith("12:00:00 error") for line in text.splitlines())
    if form == "json":
        [line] = lines(out)
        assert (line["message"], line["table"]) == (HOSTILE, HOSTILE), "a program reads what was said"


def test_addresses_that_sign_in_are_hidden(out: io.StringIO) -> None:
    for address in (f"/sign-in/once/{CANARY}", f"/sign-in/oidc/done?code={CANARY}&state={CANARY}"):
        logging.getLogger("uvicorn.access").warning('%s - "GET %s HTTP/1.1" %d', "127.0.0.1:5", address, 200)
    assert CANARY not in out.getvalue()
    assert all("/sign-in/o" in line["message"] and line["message"].endswith("200") for line in lines(out))


def test_text_for_a_terminal_says_the_same_on_one_line() -> None:
    out = io.StringIO()
    configure(LogSettings("text"), out)
    with bound(job="j-1"):
        logging.getLogger("instep").info("password=%s", CANARY)
    assert out.getvalue()[9:] == f"info    password={logs.HIDDEN}  job=j-1\n"


SECRETS = (
    ("a URL", f"cannot reach postgresql://bob:{CANARY}@db/shop"),
    ("an API key", f"key instep_sk_{CANARY} is refused"),
    ("a webhook secret", f"whsec_{CANARY} signs"),
    ("a header", f"authorization: Bearer {CANARY}"),
    ("basic", f"sent Basic {CANARY}=="),
    ("a setting", f"dsn: host=db password={CANARY} user=bob"),
    ("an account", f"DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={CANARY}==;EndpointSuffix=x"),
    ("a key that signs", f"signing_key: {CANARY}"),
    ("quoted", f"connect(password='{CANARY} with space')"),
    ("a query", f"https://hooks/x?token={CANARY}&a=1"),
    ("a private key", f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----"),
    ("a JSON web token", f"got eyJhbGciOiJIUzI1NiJ9.{CANARY}.sig"),
    ("one behind a word", f"id-eyJhbGciOiJIUzI1NiJ9.{CANARY}"),
    ("escaped", f'{{"said": "{{\\"token\\": \\"{CANARY} and more\\"}}"}}'),
)


@pytest.mark.parametrize(("name", "text"), SECRETS, ids=[name for name, _ in SECRETS])
def test_what_looks_like_a_secret_is_hidden(name: str, text: str, out: io.StringIO) -> None:
    logging.getLogger("instep").error("said: %s", text, extra={"detail": {"inner": [text]}})
    assert CANARY not in clean(text)
    assert logs.HIDDEN in clean(text)
    assert CANARY not in out.getvalue()


REPEATED = {
    "words of a token": "-eyJaaaaaaa", "a token without an end": "eyJaaaaaaaa", "backslashes": "\\", "names": "token",
    "a name and backslashes": "password\\\\", "an open quote": "token='x", "another one": 'token="x', "space": " ",
    "an escaped quote": 'secret=\\"x', "headers": "Bearer ", "addresses": "://a:b", "colons": ":", "keys": "instep_sk_",
    "beginnings of keys": "-----BEGIN ", "names of keys": "PRIVATE KEY ", "ends of keys": "-----END A",
    "links": "/sign-in/once/", "half a name": "api_",
}  # fmt: skip
BEFORE = ("", "://", "token=", 'token=\\"', "token='", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "Bearer", "eyJ")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("repeated", REPEATED.values(), ids=REPEATED)
def test_a_long_text_is_cleaned_soon(repeated: str) -> None:
    """A connector, or a server, may send anything for a line: a time that grew with its square would hold up all of
    the worker for minutes."""
    for before in BEFORE:
        clean(before + repeated * (300_000 // len(repeated)))


def test_fields_that_are_called_like_secrets_are_hidden(out: io.StringIO) -> None:
    given = {"password": CANARY, "api-key": CANARY, "s3.secret-access-key": CANARY, "salt": CANARY, "rows": 3}
    logging.getLogger("instep").info("x", extra={"given": given})
    (line,) = lines(out)
    assert line["given"] == dict.fromkeys(list(given)[:4], logs.HIDDEN) | {"rows": 3}


def test_a_known_value_is_hidden_wherever_it_stands_tracebacks_too(out: io.StringIO) -> None:
    hide(CANARY, "ab")
    try:
        raise RuntimeError(f"the driver says {CANARY}")
    except RuntimeError:
        logging.getLogger("some.library").exception("failed for %r, ab", {"x": CANARY})
    (line,) = lines(out)
    assert line["error"] == "RuntimeError"
    assert CANARY not in out.getvalue()
    assert line["message"].endswith("ab"), "a short value would be found in every word"


def test_the_secrets_of_a_project_are_hidden_once_they_are_read(
    tmp_path: Path, out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    monkeypatch.setenv("SHOP_HOST", "db.example")
    (tmp_path / "instep.yml").write_text(
        "sources: {db: {type: postgres, host: '${env:SHOP_HOST}', database: d, user: u, "
        "password: '${env:SHOP_PASSWORD}'}}\ndestinations: {lake: {type: iceberg}}\nconnections: {shop: {}}\n"
    )
    with open_project(tmp_path) as app:
        app.project.source("db")
    logging.getLogger("psycopg").error("login %s at db.example failed", CANARY)
    (line,) = lines(out)
    assert line["message"] == f"login {logs.HIDDEN} at db.example failed"


def _taken_back(store: Store) -> None:
    with store.transaction():
        store.events.add(Paused("shop", "taken back"))
        raise RuntimeError


def test_events_are_lines_once_they_are_committed(tmp_path: Path, out: io.StringIO) -> None:
    with Store(f"sqlite:///{tmp_path}/s.db") as store:
        with pytest.raises(RuntimeError):
            _taken_back(store)
        with store.transaction():
            with pytest.raises(RuntimeError):
                _taken_back(store)
            store.events.add(
                ReviewNeeded("shop", "c-1", "t.a is gone", "policy"), JobDead("shop", "j-1", "sync", 5, "no")
            )
            assert not out.getvalue(), "not before the commit"
    first, second = lines(out)
    assert (first["message"], first["level"], first["change"]) == ("change.review_needed", "info", "c-1")
    assert first["event"] == {"summary": "t.a is gone", "why": "policy"}
    assert (second["message"], second["level"], second["job"]) == ("job.dead", "warning", "j-1")


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_does_not_tell_the_value_of_a_row(form: str) -> None:
    """That of the error, its cause and what came before; what else it says is there."""
    written = io.StringIO()
    logs.configure(logs.LogSettings(form=form), written)
    try:
        try:
            int("ann@example.org")
        except ValueError as error:
            raise RuntimeError("the task ended") from error
    except RuntimeError as error:
        logging.getLogger("instep.worker").error("it failed", exc_info=error)
    text = written.getvalue()
    assert ("ann@example.org'" in text, "invalid literal for int()" in text) == (False, True)
    assert ("RuntimeError: the task ended" in text, "ValueError" in text) == (True, True)
