"""Checkpoints of a Delta log: the state of a table as Parquet, in the columns that every reader knows.

They are read and written a row group at a time, as Arrow. Read are those of one file, of several parts, and those of
the second form (a file with a unique name that names others, the sidecars); written is one file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.delta.protocol.snapshot import (
    ADD,
    NO_FILES,
    NONE_GONE,
    NOTHING,
    REMOVE,
    TEXTS,
    Action,
    DeltaSnapshot,
    FileActions,
    plain,
)
from instep.errors import DestinationError
from instep.stage.files.object_store import AnyPath, opened

_WORDS = pa.list_(pa.string())
SCHEMA = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": _WORDS,
                "writerFeatures": _WORDS,
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": _WORDS,
                "createdTime": pa.int64(),
                "configuration": TEXTS,
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
        "add": ADD,
        "remove": REMOVE,
    }
)
BATCH = 8_192
"""Actions that are read or written at a time."""
_SIDECARS = "_sidecars"


def content(snapshot: DeltaSnapshot) -> tuple[bytes, int]:
    """Return the checkpoint's bytes and its number of actions."""
    out = pa.BufferOutputStream()
    lines: list[dict[str, Any]] = [{"protocol": snapshot.protocol}, {"metaData": snapshot.metadata}]
    lines += [{"txn": txn} for txn in snapshot.txns.values()]
    lines += [
        {"domainMetadata": {"domain": d, "configuration": c, "removed": False}}
        for d, c in snapshot.domains.items()
        if c
    ]
    with pq.ParquetWriter(out, SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(lines, schema=SCHEMA))
        for name, files, kind in (("add", snapshot.files, ADD), ("remove", snapshot.tombstones, REMOVE)):
            for rows in files.structs(kind):
                columns = [rows if f.name == name else pa.nulls(len(rows), f.type) for f in SCHEMA]
                writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), BATCH * 4)
    data: bytes = out.getvalue().to_pybytes()
    return data, len(lines) + len(snapshot.files) + len(snapshot.tombstones)


def read(version: int, paths: Sequence[AnyPath]) -> DeltaSnapshot:
    """Read a checkpoint; one in the second form with its sidecars."""
    start, actions = NOTHING, list[Action]()
    files, gone = NO_FILES, NONE_GONE
    todo = list(paths)
    while todo:
        path = todo.pop()
        try:
            for action, added, removed in _json(path) if path.name.endswith(".json") else _parquet(path):
                actions += action
                files, gone = files.joined(added), gone.joined(removed)
                todo += [_sidecar(path, a["sidecar"]["path"]) for a in action if a.get("sidecar")]
        except (OSError, ValueError, pa.ArrowException) as error:
            hint = "delete the checkpoint if the commits before it are still there, or restore the folder"
            raise DestinationError(f"the checkpoint {path} cannot be read: {error}", hint=hint) from error
    result = start.after(version, actions)
    return DeltaSnapshot(version, result.metadata, result.protocol, files, gone, result.domains, result.txns)


def _sidecar(checkpoint: AnyPath, name: str) -> AnyPath:
    return checkpoint.parent / _SIDECARS / name.rpartition("/")[2]


Piece = tuple[list[Action], FileActions, FileActions]
"""Actions that are not of files, then those that are."""


def _json(path: AnyPath) -> Iterator[Piece]:
    actions = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    kinds = (("add", ADD), ("remove", REMOVE))
    added, removed = (FileActions.listed((a[n] for a in actions if a.get(n)), k) for n, k in kinds)
    yield [a for a in actions if not a.get("add") and not a.get("remove")], added, removed


def _parquet(path: AnyPath) -> Iterator[Piece]:
    with pq.ParquetFile(opened(path)) as file:
        types = {f.name: f.type for f in file.schema_arrow}
        leaves = [
            f"{f.name}.{inner.name}" if f.name in ("add", "remove") else f.name
            for f in SCHEMA
            if f.name in types
            for inner in (f.type if f.name in ("add", "remove") else (f,))
            if f.name not in ("add", "remove") or types[f.name].get_field_index(inner.name) >= 0
        ] + (["sidecar"] if "sidecar" in types else [])
        for batch in file.iter_batches(BATCH, columns=leaves):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            added, removed = (_files(columns.pop(n, None), k) for n, k in (("add", ADD), ("remove", REMOVE)))
            actions = list[Action]()
            for name, values in columns.items():
                bodies = values.drop_null().to_pylist(maps_as_pydicts="strict")
                actions += [{name: plain(body)} for body in bodies]
            yield actions, added, removed


def _files(rows: pa.StructArray | None, kind: pa.StructType) -> FileActions:
    """Return the actions with the fields that they have here, in the types that all of them get."""
    if rows is None or rows.null_count == len(rows):
        return FileActions.listed((), kind)
    present = rows.drop_null()
    parts = dict(zip((f.name for f in present.type), present.flatten(), strict=True))
    columns = [parts[f.name].cast(f.type) if f.name in parts else pa.nulls(len(present), f.type) for f in kind]
    return FileActions.of(pa.StructArray.from_arrays(columns, fields=list(kind)))
