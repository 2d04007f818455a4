"""Whatever is sent to whatever route of both APIs, the server does not fail, and what it answers is what it describes:
schemathesis makes the requests from the descriptions, a server on loopback answers them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from api_world import recorded
from compat_world import PROJECT, Compat, compatible
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.server.app import create_app
from listening import listening

DOCS = Path(__file__).parents[2] / "docs" / "reference"
FILES = {"openapi.json": "/api/v1", "compatible-openapi.json": "/v1"}
OPERATIONS = [
    (file, path, method.upper())
    for file in FILES
    for path, methods in json.loads((DOCS / file).read_text())["paths"].items()
    for method in methods
]
KNOWN = {
    "id": "shop", "connection": "shop", "schema": "main", "table": "item", "column": "name", "group": "lake",
    "service": "sqlite", "name": "shop", "user": "nobody", "change": "c-1", "side": "source",
}  # fmt: skip
"""What stands in paths, so that not all of them lead nowhere."""
EXAMPLES = int(os.environ.get("INSTEP_EXAMPLES", "8"))


@dataclass
class Live:
    url: str
    compat: Compat
    session: requests.Session
    schemas: dict[str, Any]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a connection that was synced, changes that wait, and a worker."""
    import schemathesis

    with compatible(tmp_path_factory.mktemp("described")) as compat, requests.Session() as session:
        compat.sql("create table item (id integer primary key, name text); insert into item values (1, 'pen')")
        compat.sync()
        recorded(compat.store, "shop", *"abc")
        session.auth = compat.pair
        with listening(create_app(compat.app, rates=compat.rates, poll=0.02, stream=0.0)) as url:
            found = {f: schemathesis.openapi.from_dict(json.loads((DOCS / f).read_text())) for f in FILES}
            yield Live(url, compat, session, found)


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize(("file", "path", "method"), OPERATIONS, ids=lambda value: str(value).removesuffix(".json"))
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_what_is_described_is_answered_as_described(live: Live, file: str, path: str, method: str, mode: str) -> None:
    from schemathesis import GenerationMode

    operation = live.schemas[file][path][method]
    if mode == "negative" and not (operation.body or operation.query or operation.path_parameters):
        return  # there is nothing to get wrong

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(GenerationMode(mode)), usual=st.booleans())
    def sent(case: Any, usual: bool) -> None:
        if usual:
            known = {name: KNOWN[name] for name in case.path_parameters or () if name in KNOWN}
            case.path_parameters = {**(case.path_parameters or {}), **known}
        check(case, case.call(base_url=live.url, session=live.session))
        live.compat.keep(PROJECT)  # what it has deleted or changed stands again

    sent()


def check(case: Any, response: Any) -> None:
    """503 says that a worker, a receiver or the store is not there; no other answer from 500 on is described."""
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    assert response.status_code < 500 or response.status_code == 503, (case.as_curl_command(), response.text)
    case.validate_response(
        response,
        checks=[
            status_code_conformance, content_type_conformance, response_headers_conformance,
            response_schema_conformance,
        ],
    )  # fmt: skip
