"""All operations by name: each module below `operations/` that has a `SPEC`, or several `SPECS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, TypeVar

from instep import operations
from instep.errors import InstepError
from instep.operations.spec import (
    ImmediateRequest,
    ImmediateSpec,
    JobPolicy,
    OperationSpec,
    Query,
    QuerySpec,
    Request,
)


@cache
def specs() -> Mapping[str, OperationSpec]:
    """Return every specification by the operation's name."""
    return _by_name(OperationSpec)


@cache
def query_specs() -> Mapping[str, QuerySpec]:
    """Return every specification of a query by the query's name."""
    return _by_name(QuerySpec)


def query_for(query: Query) -> QuerySpec:
    """Return the specification of what a query asks for."""
    return next(spec for spec in query_specs().values() if spec.query is type(query))


@cache
def immediate_specs() -> Mapping[str, ImmediateSpec]:
    """Return every specification of an operation that is done at once, by its name."""
    return _by_name(ImmediateSpec)


def immediate_for(request: ImmediateRequest) -> ImmediateSpec:
    """Return the specification of the operation that is done at once on such a request."""
    return next(spec for spec in immediate_specs().values() if spec.request is type(request))


S = TypeVar("S", OperationSpec, QuerySpec, ImmediateSpec)


def _by_name(kind: type[S]) -> Mapping[str, S]:
    specs_by_name: dict[str, S] = {}
    for spec in _found():
        if not isinstance(spec, kind):
            continue
        if spec.name in specs_by_name:
            raise ValueError(f"two operations are called {spec.name}")
        specs_by_name[spec.name] = spec
    return specs_by_name


def _found() -> Iterator[OperationSpec | QuerySpec | ImmediateSpec]:
    for module in walk_packages(operations.__path__, f"{operations.__name__}."):
        loaded = import_module(module.name)
        yield from getattr(loaded, "SPECS", (loaded.SPEC,) if hasattr(loaded, "SPEC") else ())


def spec_of(name: str) -> OperationSpec:
    """Return the specification of an operation; InstepError for a name that none has."""
    if (spec := specs().get(name)) is None:
        raise InstepError(f"there is no operation {name!r}", hint=f"there are {', '.join(sorted(specs()))}")
    return spec


def spec_for(request: Request) -> OperationSpec:
    """Return the specification of the operation that a request is for."""
    return next(spec for spec in specs().values() if spec.request is type(request))


def work_of(spec: OperationSpec | QuerySpec | ImmediateSpec) -> Any:
    """Return the function, or the class of the work, that an operation or a query names."""
    return _named(spec.work)


def result_of(spec: OperationSpec | QuerySpec | ImmediateSpec) -> Any:
    """Return the record that a query or an operation answers, or that one item of a query's answer is."""
    return _named(spec.result)


def page_summary_of(spec: QuerySpec) -> Any:
    """Return the record of what each page of a query's answer has beside its items; None for nothing."""
    return _named(spec.page_summary) if spec.page_summary else None


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


def policy_of(name: str) -> JobPolicy:
    """Return how the queue treats the jobs of an operation."""
    return spec_of(name).job


def names_with(attribute: str) -> frozenset[str]:
    """Return the names of the operations whose job policy has a true value under this attribute."""
    return frozenset(name for name, spec in specs().items() if getattr(spec.job, attribute))
