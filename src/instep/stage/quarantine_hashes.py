"""Values that do not fit, as hashes of where they belong and what they are: there may be as many as rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa

from instep.stage.conform import QuarantinedValue
from instep.stage.quarantine import entry_id, original_digest

SCHEMA = pa.schema([("id", pa.string()), ("place", pa.string()), ("whole", pa.bool_())])
"""The entry's id, the hash of key, column and original, and whether it is a whole row."""


def place_hash(key: Mapping[str, Any], column: str, original: Any) -> str:
    """Return key, column and original as one hash: nothing of a row is written down in clear."""
    return sha256(json.dumps([key, column, original], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class QuarantineHashes:
    """Makes hashes of the values of an accepted table; `names` are its columns' names at the destination."""

    table: str
    names: Mapping[str, str]

    def batch(self, values: Sequence[QuarantinedValue]) -> pa.RecordBatch:
        """Return one row of SCHEMA for each value."""
        ids = [entry_id(self.table, v.key, v.column, original_digest(v.original)) for v in values]
        places = [place_hash(self._named(v.key), self.names.get(v.column, v.column), self._original(v)) for v in values]
        whole = [not v.column for v in values]
        columns = zip((ids, places, whole), SCHEMA, strict=True)
        return pa.record_batch([pa.array(c, f.type) for c, f in columns], schema=SCHEMA)

    def _named(self, text: str) -> Mapping[str, Any]:
        return {self.names.get(path, path): value for path, value in json.loads(text).items()}

    def _original(self, value: QuarantinedValue) -> Any:
        return value.original if value.column else self._named(value.original or "{}")
