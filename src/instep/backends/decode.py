"""The API's documents as the records that they were made from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from instep.errors import ConnectError

T = TypeVar("T")


def record(kind: type[T], document: Mapping[str, Any]) -> T:
    """Return a frozen record of this kind; what the record does not have is left out. ConnectError for a document that
    is none of it."""
    from pydantic import ValidationError

    adapter: Any = _adapter
    try:
        value: T = adapter(kind).validate_python(dict(document))
    except ValidationError as error:
        where = ", ".join(".".join(map(str, one["loc"])) for one in error.errors()[:3])
        raise ConnectError(
            f"the server's response is not a {kind.__name__}: {where}", hint="are client and server of one version?"
        ) from None
    return value


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
