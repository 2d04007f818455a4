"""The compatible API over an open server: the one place where its ports are made of what the server has."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI

from instep.api.compat.access import SharedRates, StoredKeys
from instep.api.compat.app import create_compatible
from instep.api.compat.jobs import StoredJobs
from instep.api.compat.objects import ServedObjects
from instep.api.compat.ports import WAIT, Ports
from instep.api.rates import Rates
from instep.control.objects import Objects
from instep.egress.guard import Guard
from instep.project.project import Project
from instep.store.store import Store

PATH = "/v1"


class Opened(Protocol):
    """An open server, as `bootstrap` gives it."""

    @property
    def project(self) -> Project: ...

    @property
    def store(self) -> Store: ...

    @property
    def objects(self) -> Objects: ...


def ports_of(opened: Opened, rates: Rates, wait: float = WAIT) -> Ports:
    """`wait`: seconds that a request waits for a job."""
    store = opened.store

    def project(name: str) -> Project:
        return opened.project.of(name)

    return Ports(
        store, project, ServedObjects(lambda: opened.objects), StoredJobs(store, project), StoredKeys(store),
        lambda: Guard(opened.project.model.egress.allow), SharedRates(rates), wait,
    )  # fmt: skip


def compatible(opened: Opened, rates: Rates) -> FastAPI:
    """To be mounted at PATH."""
    return create_compatible(ports_of(opened, rates), PATH)
