"""The destinations that the one behaviour suite runs over: a new one is a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from instep.destinations.base import Destination
from instep.destinations.iceberg import IcebergConfig, IcebergDestination


def iceberg(folder: Path) -> Destination:
    """An empty local lake."""
    return IcebergDestination(IcebergConfig("lake", str(folder / "lake")))


DESTINATIONS: Mapping[str, Callable[[Path], Destination]] = {"iceberg": iceberg}
