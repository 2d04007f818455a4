"""The metadata of the control database with all of its tables, for what goes over every one of them."""

from __future__ import annotations

from instep.store.tables import catalogs, queue, server
from instep.store.tables.columns import metadata

MODULES = (catalogs, queue, server)
"""Modules that declare the tables."""

__all__ = ["MODULES", "metadata"]
