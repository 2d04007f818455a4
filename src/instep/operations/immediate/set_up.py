"""Test a source or a destination before a connection uses it, and list what a source has: jobs of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import Length, Name


@dataclass(frozen=True)
class TestSourceRequest(ImmediateRequest):
    """Queue a test of a source: a worker logs in and checks what a sync needs. The job's result has the checks."""

    name: Name
    """The source."""


@dataclass(frozen=True)
class TestDestinationRequest(ImmediateRequest):
    """Queue a test of a destination: a worker creates, writes, alters and drops a scratch table. The job's result has
    the checks."""

    name: Name
    """The destination."""


@dataclass(frozen=True)
class DiscoverSourceRequest(ImmediateRequest):
    """Queue a look at the tables of a source. The job's result has the first 1,000 that match, and their number."""

    name: Name
    """The source."""
    matching: Annotated[tuple[Annotated[Name, Length(1, 1000)], ...], Length(0, 100)] = ()
    """Patterns of `schema.table`: globs, or regular expressions after `re:`; none: all."""


@dataclass(frozen=True)
class CreateDemoRequest(ImmediateRequest):
    """Create a connection to try instep on: an SQLite file of a till, which a worker makes, into Iceberg tables in a
    folder, and its first plan. Conflict if there is one."""


def _spec(name: str, route: str, request: type[ImmediateRequest], work: str, audit: str) -> ImmediateSpec:
    return ImmediateSpec(
        name,
        role="operator",
        route=route,
        request=request,
        result="instep.control.immediate.set_up:QueuedJob",
        work=f"instep.control.immediate.set_up:{work}",
        audit=audit,
        target="name",
        status=202,
        fresh="fresh",
        whole=True,
    )


SPECS = (
    _spec("test_source", "POST /sources/{name}/test", TestSourceRequest, "SourceTesting", "source.test"),
    _spec(
        "test_destination",
        "POST /destinations/{name}/test",
        TestDestinationRequest,
        "DestinationTesting",
        "destination.test",
    ),
    _spec(
        "discover_source", "POST /sources/{name}/discover", DiscoverSourceRequest, "SourceDiscovery", "source.discover"
    ),
    ImmediateSpec(
        "create_demo",
        role="admin",
        route="POST /demo",
        request=CreateDemoRequest,
        result="instep.control.immediate.set_up:CreatedDemo",
        work="instep.control.immediate.set_up:DemoCreation",
        audit="demo.create",
        target="the demo",
        status=202,
        whole=True,
    ),
)
