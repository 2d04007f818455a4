"""Whether a value at the destination is what the source has: by exact arithmetic and the documented texts
(docs/reference/types.md), never by the product's own comparison."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any
from uuid import UUID


def agrees(source: Any, found: Any) -> bool:
    """Both NULL, the same value, or the value's documented text."""
    if source is None or found is None:
        return source is found
    if isinstance(found, str):
        return found in texts(source) or same_number(source, found)
    if isinstance(found, bool):
        return number(source) == int(found) if not isinstance(source, str) else source.lower() == str(found).lower()
    if isinstance(found, int | float | Decimal):
        return same_number(source, found)
    if isinstance(found, bytes):
        return agrees_bytes(source, found)
    if isinstance(found, datetime):
        return moment(source) == found.replace(tzinfo=None)
    if isinstance(found, date):
        return moment(source) == datetime(found.year, found.month, found.day)
    if isinstance(found, UUID):
        return str(source).lower() == str(found)
    if isinstance(found, list):
        return listed(source) == found
    raise AssertionError(f"no rule for {type(found)}")


def same_number(source: Any, found: Any) -> bool:
    """By exact value. A float stands for whatever decimal rounds to it, and a text for what is written in it. SQLite
    has only floats in a column that it declares as a decimal, and writes them short."""
    if isinstance(source, str) and isinstance(found, str):
        return source == found
    if isinstance(source, float) and isinstance(found, Decimal) and Decimal(repr(source)) == found:
        return True
    mine, other = number(source), number(found)
    if mine is None or other is None:
        return False
    if isinstance(mine, float) or isinstance(other, float):  # NaN and infinity, which have no fraction
        return str(mine) == str(other)
    if isinstance(found, float) and not isinstance(source, float):
        return nearest(mine) == found
    return mine == other


def nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def number(value: Any) -> Fraction | float | None:
    if isinstance(value, str):
        try:
            value = Decimal(value)
        except InvalidOperation:
            return None
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        return float(value)
    return Fraction(value) if isinstance(value, int | float | Decimal) else None


def texts(source: Any) -> set[str]:
    """The texts that stand for a value."""
    match source:
        case bool():
            return {str(source).lower()}
        case str():
            return {source, iso(source)}
        case bytes():
            return {"\\x" + source.hex()}
        case list():
            return {json.dumps(source, separators=(",", ":"), ensure_ascii=False)}
        case Decimal():
            return {format(source, "f"), str(source)}
    return {str(source)}


def iso(text: str) -> str:
    """A moment's documented text, of the one that the database prints."""
    found = moment(text)
    return found.isoformat() if found is not None and " " in text else text


def moment(value: Any) -> datetime | None:
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return None
    return None


def agrees_bytes(source: Any, found: bytes) -> bool:
    if isinstance(source, str):
        return found == source.encode() or "\\x" + found.hex() == source
    return bytes(source) == found if isinstance(source, bytes | bytearray | memoryview) else False


def listed(source: Any) -> Any:
    if isinstance(source, str):
        try:
            return json.loads(source.replace("{", "[").replace("}", "]").replace("NULL", "null"))
        except ValueError:
            return None
    return source
