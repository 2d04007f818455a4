"""Bases of all documents of the API. Times are ISO 8601 with an offset."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")
Name = Annotated[str, Field(min_length=1, max_length=200)]


class ResponseModel(BaseModel):
    """Base of responses."""

    model_config = ConfigDict(from_attributes=True)


class RequestModel(BaseModel):
    """Base of requests; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class QueryParameters(BaseModel):
    """The parameters of a query's URL: unknown ones are mistakes."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Page(ResponseModel, Generic[T]):
    items: list[T]
    next_cursor: str | None


class ProblemOut(ResponseModel):
    """Error response (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    docs: str


class DryRunResult(ResponseModel):
    """A write that was only rehearsed says so."""

    dry_run: bool = False


class JobOut(DryRunResult):
    """A job that was requested."""

    id: str
    connection: str
    kind: str
    status: str
    fresh: bool = Field(description="False if the job existed before this request.")
    note: str = Field("", description="What keeps it from starting, such as a missing worker.")


class JobDone(JobOut):
    """A job with its result. The form of `result` depends on the kind: for a plan it has `plan`, `lines` of text for
    people, and the `drops` that `apply` has to allow by name."""

    error: str = ""
    run: str = ""
    why: str = ""
    who: str = ""
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    result: dict[str, Any] = Field({})
