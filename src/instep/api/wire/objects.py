"""What the API says and takes of objects that the server keeps."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from instep.api.wire.base import Asked, Dry, Name, Said

Spec = Annotated[dict[str, Any], Field(description="As the object's section in instep.yml; stars keep a secret.")]
Tags = Annotated[list[Name] | None, Field(max_length=100, description="None: as they are. A connection's: in `spec`.")]


class ObjectOut(Said):
    """`spec` is the object's section, stars for secrets. What the project file says has version 0 and no times."""

    id: str
    kind: Literal["source", "destination", "policy", "channel", "connection"]
    name: str
    spec: dict[str, Any]
    managed_by: Literal["file", "server"]
    version: int
    tags: list[str]
    created: datetime | None
    created_by: str
    updated: datetime | None
    updated_by: str


class ObjectWhole(Asked):
    spec: Spec
    tags: Tags = None


class NewObject(ObjectWhole):
    name: Annotated[str, Field(min_length=1, max_length=63)]


class ObjectChange(Asked):
    """`spec` is a merge patch (RFC 7396): null takes a key away."""

    spec: Spec = Field(default_factory=dict)
    tags: Tags = None


class ObjectWritten(Dry):
    object: ObjectOut


class Deleted(Dry):
    deleted: str
