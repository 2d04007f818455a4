"""Every key that a body of a request may have is in the table of what keys lead to."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

import instep.server
from instep.server.body_keys import COMPATIBLE, OWN
from instep.server.fivetran_api.http.request_body import RequestBody
from instep.server.models import RequestModel
from instep.server.requests import Requested


def below(cls: type[Any]) -> Iterator[type[Any]]:
    for found in cls.__subclasses__():
        yield found
        yield from below(found)


@pytest.fixture(scope="module", autouse=True)
def _all_modules() -> None:
    for found in pkgutil.walk_packages(instep.server.__path__, "instep.server."):
        importlib.import_module(found.name)


@pytest.mark.parametrize(("base", "table"), [(RequestBody, COMPATIBLE), (RequestModel, OWN)], ids=["compatible", "own"])
def test_each_key_of_each_body_has_an_entry(base: type[BaseModel], table: Any) -> None:
    bodies = [cls for cls in below(base) if cls.__module__.startswith("instep.") and cls is not Requested]
    assert len(bodies) > 20
    keys = {(cls.__name__, key) for cls in bodies for key in cls.model_fields}
    assert keys == {(cls.__name__, key) for cls, words in table.items() for key in words}
    assert set(table) == set(bodies)
