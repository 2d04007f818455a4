"""Checkpoints of a Delta log: the state of a table as one Parquet file, in the columns that every reader knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.errors import DestinationError
from instep.stage.files.object_store import AnyPath, opened

_TEXTS = pa.map_(pa.string(), pa.string())
_WORDS = pa.list_(pa.string())
_FILE = {"path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64()}


def _struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


_PROTOCOL = _struct(
    minReaderVersion=pa.int32(), minWriterVersion=pa.int32(), readerFeatures=_WORDS, writerFeatures=_WORDS
)
_METADATA = _struct(
    id=pa.string(),
    name=pa.string(),
    description=pa.string(),
    format=_struct(provider=pa.string(), options=_TEXTS),
    schemaString=pa.string(),
    partitionColumns=_WORDS,
    createdTime=pa.int64(),
    configuration=_TEXTS,
)
SCHEMA = pa.schema(
    {
        "protocol": _PROTOCOL,
        "metaData": _METADATA,
        "txn": _struct(appId=pa.string(), version=pa.int64(), lastUpdated=pa.int64()),
        "domainMetadata": _struct(domain=pa.string(), configuration=pa.string(), removed=pa.bool_()),
        "add": _struct(**_FILE, modificationTime=pa.int64(), dataChange=pa.bool_(), stats=pa.string()),
        "remove": _struct(
            **_FILE, deletionTimestamp=pa.int64(), dataChange=pa.bool_(), extendedFileMetadata=pa.bool_()
        ),
    }
)


def content(actions: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the file: one row an action."""
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([dict(a) for a in actions], schema=SCHEMA), out)
    made: bytes = out.getvalue().to_pybytes()
    return made


def read(paths: Sequence[AnyPath]) -> Iterator[dict[str, Any]]:
    """Yield the actions of a checkpoint; maps come back as dicts."""
    for path in paths:
        try:
            file = pq.ParquetFile(opened(path))
            wanted = [f.name for f in file.schema_arrow if f.name in SCHEMA.names]
            for batch in file.iter_batches(columns=wanted):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    yield {kind: _plain(body) for kind, body in row.items() if body is not None}
        except (OSError, pa.ArrowException) as error:
            hint = "delete the checkpoint if the commits before it are still there, or restore the folder"
            raise DestinationError(f"the checkpoint {path} cannot be read: {error}", hint=hint) from error


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not set: a commit would not name it."""
    return {k: v for k, v in body.items() if v is not None}
