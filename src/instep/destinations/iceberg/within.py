"""Which data files may hold some keys: their metrics are asked before their rows are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IntegerType, LongType, StringType

LISTED = 200
"""Values that are compared with a file's metrics one by one; pyiceberg looks at no more than these."""
_ORDERED = (IntegerType, LongType, StringType, DateType)
"""Types whose metrics compare as the values do, and whose values pyiceberg takes as they are."""


def within(schema: Schema, keys: pa.Table) -> BooleanExpression:
    """What holds for each row that has one of the keys (columns by name, of the types of `schema`'s): true of a file's
    metrics unless none of its rows can have one. A NULL meets no row."""
    found: BooleanExpression = AlwaysTrue()
    for part in _parts(schema, keys):
        found = And(found, part)
    return found


def _parts(schema: Schema, keys: pa.Table) -> Iterator[BooleanExpression]:
    for name in keys.column_names:
        if not isinstance(schema.find_type(name), _ORDERED):
            continue
        values = keys.column(name).drop_null()
        if not len(values):
            yield AlwaysFalse()
            return
        distinct = pc.unique(values)
        yield _listed(name, distinct.to_pylist()) if len(distinct) <= LISTED else _between(name, distinct)


def _listed(name: str, values: list[Any]) -> BooleanExpression:
    return In(term=Reference(name), values={literal(v) for v in values})


def _between(name: str, values: pa.Array) -> BooleanExpression:
    low, high = (bound.as_py() for bound in pc.min_max(values).values())
    column = Reference(name)
    return And(GreaterThanOrEqual(term=column, value=literal(low)), LessThanOrEqual(term=column, value=literal(high)))
