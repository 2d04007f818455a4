"""A connector's sync from its code to its segments, in a process of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.errors import InstepError
from instep.project.sections.connector import ConnectorLimits
from instep.sources.connector.child import ChildEnd
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.dialect import SdkDialect
from instep.sources.connector.segment import LogLine, OperationCounts, Segment, SegmentTable, read_manifest
from instep.sources.connector.spool import Segments

IMPORTS = "from fivetran_connector_sdk import Connector, Logging as log, Operations as op\n"
CONNECTOR = "connector = Connector(update=update, schema=schema)\n"
NO_SCHEMA = "def schema(configuration):\n    return []\n"


@dataclass
class Sync:
    """What became of one sync: the segments, how it failed (None: it did not), and what was logged."""

    segments: list[Segment] = field(default_factory=list)
    error: InstepError | None = None
    logs: list[LogLine] = field(default_factory=list)
    told: list[OperationCounts] = field(default_factory=list)
    counts: OperationCounts = field(default_factory=OperationCounts)
    ended: ChildEnd | None = None

    @property
    def said(self) -> str:
        return "\n".join(line.message for line in self.logs)

    def rows(self, table: str, schema: str = "") -> list[dict[str, Any]]:
        """The rows of all segments, as they were sent."""
        return [
            row
            for segment in self.segments
            if segment.table(table, schema)
            for row in segment_table(segment, table, schema).to_pylist()
        ]

    def records(self, table: str, schema: str = "") -> list[dict[str, Any]]:
        """The same without the columns that tell the operation."""
        return [{k: v for k, v in row.items() if not k.startswith("__")} for row in self.rows(table, schema)]


def segment_table(segment: Segment, name: str, schema: str = "") -> pa.Table:
    table = segment.table(name, schema)
    assert table is not None, f"{name} is not in {[t.name for t in segment.tables]}"
    files = [pq.read_table(Path(segment.folder) / f.path) for f in table.files]
    return pa.concat_tables(files) if files else pa.table({})


def types(table: SegmentTable | None) -> dict[str, str]:
    assert table is not None
    return {column.name: str(column.type) for column in table.columns}


def written(folder: Path, code: str, **files: str) -> Path:
    """A folder with connector.py; `update(configuration, state)` may be all that `code` has."""
    folder.mkdir(parents=True, exist_ok=True)
    text = textwrap.dedent(code)
    if "def schema" not in text:
        text = NO_SCHEMA + text
    if "connector = " not in text:
        text += "\n" + CONNECTOR
    folder.joinpath("connector.py").write_text(IMPORTS + text, encoding="utf-8")
    for name, content in files.items():
        folder.joinpath(name.replace("__", ".")).write_text(textwrap.dedent(content), encoding="utf-8")
    return folder


@dataclass
class World:
    """`environments` is shared by the tests of a session: an environment is made once."""

    folder: Path
    environments: Path

    def config(self, code: str | Path, **settings: Any) -> ConnectorConfig:
        path = code if isinstance(code, Path) else written(self.folder / "source", code)
        limits = ConnectorLimits(**{k: settings.pop(k) for k in list(settings) if k in ConnectorLimits.model_fields})
        return ConnectorConfig.resolved(path=str(path), environments=str(self.environments), limits=limits, **settings)

    def sync(self, code: str | Path, state: Mapping[str, Any] | None = None, **settings: Any) -> Sync:
        """Runs it to its end; every segment is acknowledged once its manifest was read back."""
        sync = Sync()
        config = self.config(code, **settings)
        try:
            segments = Segments(
                SdkDialect(config), str(self.folder / "spool"), state or {}, sync.told.append, sync.logs.append
            )
            try:
                while (segment := segments.next()) is not None:
                    assert read_manifest(segment.folder) == segment
                    sync.segments.append(segment)
                    segments.acknowledge(segment)
            finally:
                sync.ended = segments.close()
                sync.counts = segments.counts
        except InstepError as error:
            sync.error = error
        return sync

    def beside(self, name: str) -> World:
        return replace(self, folder=self.folder / name)
