"""What a connector's `schema()` says, without a run of its `update()`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from instep.schema.types import Unknown, parse
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.segment import LogLine, SegmentColumn, SegmentTable, stored_name

LOG = logging.getLogger("instep.connector")


def declared(config: ConnectorConfig) -> tuple[SegmentTable, ...]:
    """The tables as a segment without rows would have them; raises ReadError with the connector's own error."""
    from instep.sources.connector.child import answer

    return tuple(map(_table, answer(config, "schema", _log)))


def _log(line: LogLine) -> None:
    LOG.info("%s: %s", line.origin, line.message)


def _table(said: Mapping[str, Any]) -> SegmentTable:
    key = tuple(map(stored_name, said["key"]))
    types = {stored_name(name): parse(kind) for name, kind in said["columns"].items()}
    names = dict.fromkeys((*key, *types))
    columns = tuple(
        SegmentColumn(n, types.get(n, Unknown()), n in types, key=n in key, nullable=n not in key) for n in names
    )
    return SegmentTable(said["schema"], said["table"], bool(said["declared"]), key, columns)
