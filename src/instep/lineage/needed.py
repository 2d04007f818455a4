"""The error where the extra `lineage` is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from instep.errors import SetupError


@contextmanager
def needs_sqlglot() -> Iterator[None]:
    """Raise SetupError if an import in the block fails because sqlglot is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "sqlglot":
            raise
        raise SetupError(
            "reading SQL needs the package sqlglot, which is not installed", hint="run pip install 'instep[lineage]'"
        ) from None
