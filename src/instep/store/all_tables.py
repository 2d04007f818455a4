"""The metadata of the control database with all of its tables, for what goes over every one of them."""

from __future__ import annotations

from instep.store import (
    connector_tables,
    job_tables,
    notice_tables,
    object_tables,
    rollout_tables,
    server_tables,
    tables,
    total_tables,
)
from instep.store.columns import metadata

MODULES = (
    tables,
    object_tables,
    job_tables,
    server_tables,
    notice_tables,
    rollout_tables,
    total_tables,
    connector_tables,
)
"""Where they are declared."""

__all__ = ["MODULES", "metadata"]
