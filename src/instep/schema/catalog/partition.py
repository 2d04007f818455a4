"""The terms of a table's partition spec as the settings say them: a column, or a transform of one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from instep.errors import SchemaError

PLAIN = ("identity", "year", "month", "day", "hour")
WIDE = ("bucket", "truncate")
"""Transforms with a number: how many buckets, or how wide a piece of the values."""
_CALL = re.compile(rf"({'|'.join((*PLAIN, *WIDE))})\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
MAX_WIDTH = 2**31 - 1


@dataclass(frozen=True)
class PartitionTerm:
    """`width` is the number of a bucket or truncate, 0 for the others."""

    transform: str
    column: str
    width: int = 0

    @property
    def text(self) -> str:
        """Return the term in the notation of settings: `region`, `day(at)`, `bucket(16, id)`."""
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{self.column})"


def partition_term(text: str) -> PartitionTerm:
    """Raise SchemaError for what is no term. Anything that is no call of a transform is a column's name."""
    match = _CALL.fullmatch(text.strip())
    transform, inside = (match[1].lower(), match[2].strip()) if match else ("identity", text.strip())
    width = 0
    if transform in WIDE:
        number, _, inside = (part.strip() for part in inside.partition(","))
        if not number.isdecimal() or not 0 < int(number) <= MAX_WIDTH:
            raise _wrong(text)
        width = int(number)
    if not inside:
        raise _wrong(text)
    return PartitionTerm(transform, inside, width)


def _wrong(text: str) -> SchemaError:
    return SchemaError(
        f"{text!r} is nothing to partition by",
        hint="write a column, or year, month, day, hour (column), bucket(16, column) or truncate(4, column)",
    )
