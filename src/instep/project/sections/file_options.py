"""How the files of a source of files are written: for all of its tables, and by pattern for some."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from instep.errors import SchemaError
from instep.project.sections.values import Section, Words
from instep.schema.catalog.types import parse

FileFormat = Literal["auto", "parquet", "csv", "jsonl"]
FileColumn = Literal["_file", "_line", "_file_number"]


def _type(text: str) -> str:
    try:
        return str(parse(text))
    except SchemaError as error:
        raise PydanticCustomError("type", "{why}", {"why": f"{error.message}; {error.hint}"}) from None


def _encoding(text: str) -> str:
    try:
        "".encode(text)  # a codec of bytes, such as base64, is looked up as well, and refused here
    except (LookupError, ValueError):
        raise PydanticCustomError("encoding", "unknown encoding: write utf-8, latin-1, cp1252, ...") from None
    return text


def _glob(text: str) -> str:
    if text and text.count("{table}") != 1:
        why = 'must hold {table} once, as in "{table}/*.csv"'
        raise PydanticCustomError("tables", "{why}", {"why": why})
    return text


TableGlob = Annotated[str, AfterValidator(_glob)]
Character = Annotated[str, Field(max_length=1)]


class FileOptions(Section):
    """Options of files; a key that is not set for a pattern is inherited from the source."""

    format: FileFormat = "auto"
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    quote: Character = '"'
    escape: Character = ""
    header: bool = True
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    nulls: tuple[str, ...] = ("",)
    types: dict[str, Annotated[str, AfterValidator(_type)]] = Field(default_factory=dict)
    key: Words = ()

    def set_options(self) -> dict[str, Any]:
        """Return the options that are set."""
        names = FileOptions.model_fields.keys() & self.model_fields_set
        return {name: getattr(self, name) for name in FileOptions.model_fields if name in names}
