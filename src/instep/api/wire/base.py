"""What all documents of the API have in common. Times are ISO 8601 with an offset."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=1000)]
Few = Annotated[list[Name], Field(max_length=100)]


class Said(BaseModel):
    """What the server says."""

    model_config = ConfigDict(from_attributes=True)


class Asked(BaseModel):
    """What a client asks for: unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Page(Said, Generic[T]):
    items: list[T]
    next_cursor: str | None


class ProblemOut(Said):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    docs: str


class Dry(Said):
    """A write that was only rehearsed says so."""

    dry_run: bool = False
