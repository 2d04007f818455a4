"""Manifests and manifest lists, written through Avro schemas that are made once.

pyiceberg makes the schema of each file, its text and its writer anew, which takes longer than the few entries of a
small table. These are private parts of pyiceberg; tests/destinations/test_iceberg_manifests.py compares the files.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, CODEC_MAPPING_ICEBERG_TO_AVRO
from pyiceberg.avro.file import _SCHEMA_KEY, MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer, resolve_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestListWriterV2,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from instep.destinations.iceberg.metadata.updates import FORMAT_VERSION

_PARTITIONS = 256
"""Types of partitions whose schemas are remembered."""


@dataclass(frozen=True)
class _Form:
    """Writer of records into a file, and the file's schema in Avro's spelling."""

    writer: Writer
    schema: str

    @staticmethod
    def of(name: str, file: Schema, record: Schema) -> _Form:
        text = json.dumps(AvroSchemaConversion().iceberg_to_avro(file, schema_name=name))
        return _Form(resolve_writer(record_schema=record, file_schema=file), text)


@lru_cache(_PARTITIONS)
def _entries(partition: StructType) -> _Form:
    file, record = (_entry_schema(partition, version) for version in (FORMAT_VERSION, DEFAULT_READ_VERSION))
    return _Form.of("manifest_entry", file, record)


def _entry_schema(partition: StructType, version: Any) -> Schema:
    return manifest_entry_schema_with_data_file(version, data_file_with_partition(partition, version))


@cache
def _lists() -> _Form:
    file, record = (MANIFEST_LIST_FILE_SCHEMAS[version] for version in (FORMAT_VERSION, DEFAULT_READ_VERSION))
    return _Form.of("manifest_file", file, record)


@cache
def _header_writer() -> Writer:
    return construct_writer(META_SCHEMA)


class _AvroFile(AvroOutputFile[Any]):
    """A file of a known form."""

    def __init__(self, file: OutputFile, form: _Form, metadata: dict[str, str]) -> None:
        self.output_file, self.metadata, self.writer = file, metadata, form.writer
        self._schema, self.sync_bytes = form.schema, os.urandom(SYNC_SIZE)

    def _write_header(self) -> None:
        codec = self.metadata[AVRO_CODEC_KEY]
        metadata = {**self.metadata, _SCHEMA_KEY: self._schema}
        metadata[AVRO_CODEC_KEY] = CODEC_MAPPING_ICEBERG_TO_AVRO.get(codec, codec)
        _header_writer().write(self.encoder, AvroFileHeader(MAGIC, metadata, self.sync_bytes))


class QuickManifest(ManifestWriterV2):
    """A manifest of data files."""

    def new_writer(self) -> AvroOutputFile[Any]:
        """Return the file, whose entries have partitions of the spec's type."""
        return _AvroFile(self._output_file, _entries(self._spec.partition_type(self._schema)), self._meta)


class QuickManifestList(ManifestListWriterV2):
    """A list of manifests."""

    def __enter__(self) -> QuickManifestList:
        self._writer = _AvroFile(self._output_file, _lists(), self._meta)
        self._writer.__enter__()
        return self
