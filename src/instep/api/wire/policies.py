"""Documents of what policies say."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from instep.api.wire.base import Asked, Name, Said
from instep.control.times import aware
from instep.project.policy_files import SampleCase


class Cases(Asked):
    """Sample changes as files of `instep policy test` have them."""

    cases: Annotated[list[SampleCase], Field(min_length=1, max_length=1000)]


class CasesDecided(Said):
    """Parallel to the cases; `problem` of one says why it can be no such change."""

    results: list[dict[str, Any]]


class Another(Asked):
    """`policy` is what stands under one name of `policies:`; `since`: only changes first seen then or
    later, in UTC where it does not say otherwise."""

    name: Name
    policy: dict[str, Any]
    since: Annotated[datetime, AfterValidator(aware)] | None = None
