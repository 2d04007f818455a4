"""Overflow values (`_instep_extra`) as columns, for destinations that can extract them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from instep.destinations.types import plain_type
from instep.schema.catalog.types import DataType
from instep.stage.conform import digest, hashed
from instep.stage.overflow import from_texts, text_of

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Hashing:
    """Hashing of values that were kept in clear, for a hashed column: `source` is the type that they had. `late`:
    the column is hashed since it was accepted; without it what looks like a hash was kept as one."""

    source: DataType
    salt: bytes = field(repr=False)
    late: bool

    def of(self, texts: Sequence[str | None]) -> list[str | None]:
        values = from_texts(texts, self.source, plain_type(self.source)).values
        made = hashed(values, self.source, self.salt).to_pylist()
        return [self._one(text, by_type) for text, by_type in zip(texts, made, strict=True)]

    def _one(self, text: str | None, by_type: str | None) -> str | None:
        if text is None or (not self.late and _HASH.fullmatch(text)):
            return text
        return by_type or digest(text, self.salt)


@dataclass(frozen=True)
class OverflowColumn:
    """A column whose values are in the overflow objects under `name`, with its accepted type and its hashing."""

    name: str
    type: DataType
    hashing: Hashing | None = None

    def texts(self, members: Sequence[Any]) -> list[str | None]:
        """Return the texts to cast, from members as `json.loads` gives them."""
        texts = [text_of(m) for m in members]
        return self.hashing.of(texts) if self.hashing else texts


@dataclass(frozen=True)
class Promoted:
    """`rows` that got a value; `invalid_values`: values that do not fit their column and stay where they are."""

    rows: int = 0
    invalid_values: int = 0
