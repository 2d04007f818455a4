"""How loosely requests are read and how exactly they are answered: bodies, headers, paths, pages, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compat_world import Compat, compatible
from hypothesis import given
from hypothesis import strategies as st

from instep.project.sections.schedule import cron as checked_cron
from instep.server.fivetran_api.app import plain
from instep.server.fivetran_api.http.envelope import Window, cursor
from instep.server.fivetran_api.http.services import FREQUENCIES, cron, minutes, source_spec, wire_config
from instep.server.fivetran_api.objects import ServedObjects

TYPES: list[tuple[str | None, bytes, int]] = [
    (None, b"", 200), ("application/json", b"", 200), ("application/json;version=2", b"", 200),
    ("application/json; version=2", b"{}", 200), ("Application/JSON; charset=utf-8", b"{}", 200),
    ("text/plain", b"", 200), ("text/plain", b"{}", 415), (None, b"{}", 415),
    ("application/json", b"{", 400), ("application/json", b"[]", 400), ("application/json", b'{"a":1,"a":2}', 400),
    ("application/json", b'{"force": NaN}', 400), ("application/json", b'{"force": "maybe"}', 400),
    ("application/json", b'{"x":' + b"[" * 100 + b"]" * 100 + b"}", 400),
    ("application/json", b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    ("application/json", b" " * ((1 << 20) + 1), 413), ("application/json", b"\xff{}", 400),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("media", "body", "status"), TYPES)
def test_bodies(compat: Compat, media: str | None, body: bytes, status: int) -> None:
    compat.worker.held.clear()
    headers = {"Content-Type": media} if media else {}
    answer = compat.client.post("/v1/connections/shop/sync", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["code"] == ("Success" if status == 200 else answer.json()["code"])
    assert status == 200 or answer.json()["request_id"]


@pytest.mark.parametrize(
    "accept", ["*/*", "application/json", "application/json;version=2", "application/json; version=2"]
)
def test_what_clients_accept(compat: Compat, accept: str) -> None:
    assert compat.client.get("/v1/users", headers={"Accept": accept}).status_code == 200
    refused = compat.client.get("/v1/users", headers={"Accept": "text/html"})
    assert (refused.status_code, refused.json()["code"]) == (406, "NotAcceptable")


PATHS = [
    "/connections", "/connections/", "/connectors", "/connectors/", "/connectors/shop", "/connectors/shop/",
    "/groups/lake/connectors/", "/groups/lake/connections",
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("path", PATHS)
def test_older_names_and_slashes_at_the_end(compat: Compat, path: str) -> None:
    assert compat.ask("GET", path)["code"] == "Success"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "path", ["/teams", "/roles", "/transformations", "/private-links", "/external-logging", "/proxy"]
)
def test_lists_of_what_there_is_not_are_empty(compat: Compat, path: str) -> None:
    assert compat.data("GET", path) == {"items": [], "next_cursor": None, "nextCursor": None}


def test_addresses_and_methods_that_there_are_not(compat: Compat) -> None:
    assert compat.ask("GET", "/nope", status=404)["code"] == "NotFound"
    assert compat.ask("PUT", "/connections", status=405)["code"] == "MethodNotAllowed"
    assert compat.ask("GET", "/connections/Shop", status=404)["code"] == "NotFound_Connection", "names have a case"
    assert compat.ask("GET", "/connections/shop/state", status=405)["message"].endswith("read or set.")


@pytest.mark.sampled
@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=1e3", "cursor=nope", "cursor=W10="]
)
def test_pages_that_make_no_sense(compat: Compat, query: str) -> None:
    assert compat.ask("GET", f"/connections?{query}", status=400)["code"] == "InvalidInput"


def test_too_many_requests(tmp_path: Path) -> None:
    with compatible(tmp_path, rate=2) as compat:
        answers = [compat.client.get("/v1/users") for _ in range(3)]
    assert [(a.status_code, a.headers["x-rate-limit-remaining"]) for a in answers] == [
        (200, "1"),
        (200, "0"),
        (429, "0"),
    ]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 60
    assert answers[2].json()["code"] == "TooManyRequests"


def test_a_fault_of_ours_has_a_body_too(compat: Compat, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: Any, **__: Any) -> None:
        raise RuntimeError("canary")

    monkeypatch.setattr(ServedObjects, "connections", fault)
    answer = compat.client.get("/v1/connections")
    assert (answer.status_code, answer.json()["code"]) == (500, "InternalError")
    assert "canary" not in answer.text


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=40), st.integers(1, 9))
def test_pages_hold_everything_once(names: list[str], limit: int) -> None:
    names = sorted(names)
    seen: list[str] = []
    window = Window("", limit)
    for _ in range(len(names) + 2):
        rest = [n for n in names if n > window.after][: limit + 1]
        shown, after = window.cut(rest, str)
        seen += shown
        if after is None:
            break
        assert after == cursor(shown[-1])
        window = Window(shown[-1], limit)
    assert seen == names


@pytest.mark.parametrize("frequency", FREQUENCIES)
@pytest.mark.parametrize("time", ["00:00", "14:00"])
def test_frequencies_come_back(frequency: int, time: str) -> None:
    assert minutes(checked_cron(cron(frequency, time))) == (frequency, time if frequency == 1440 else "")


@given(st.text(alphabet="/aconectrs%2F", max_size=60))
def test_a_plain_path_stays_so(path: str) -> None:
    assert plain(plain(path)) == plain(path)
    assert plain(path + "/") == plain(path)


def test_secrets_are_masked_both_ways() -> None:
    from datetime import UTC, datetime

    from instep.server.fivetran_api.http.ports import Item

    spec = {"type": "postgres", "host": "db", "password": "${env:PW}", "include": ["a.*"]}
    shown = wire_config(Item("source", "s", spec, datetime.now(UTC)))
    assert shown == {"host": "db", "password": "******"}
    assert source_spec("postgres", shown) == {"type": "postgres", "host": "db"}
