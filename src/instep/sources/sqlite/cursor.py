"""The order of a cursor's values: SQLite orders what is stored, which need not be what the column is declared as."""

from __future__ import annotations

from instep.schema.types import DataType, Date, Decimal, Float, Int, Time, Timestamp, TimestampTz

_DAY = "[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]"
_CLOCK = "[0-2][0-9]:[0-5][0-9]"


def order_of(name: str, kind: DataType) -> tuple[str, str]:
    """Return what to select of each row, and over all of these the greatest value and how many rows have none or one
    whose place among the others is not known: text in a column of numbers; times that are not all written alike, or
    with an offset."""
    match kind:
        case Int() | Decimal() | Float():
            fits = f"typeof({name}) IN ('integer', 'real') AND abs({name}) < 9e999"
            return f"CASE WHEN {fits} THEN {name} END AS v", "max(v), count(*) - count(v)"
        case Date() | Time() | Timestamp() | TimestampTz():
            mixed = "min(f) <> max(f) OR min(f) = 0"
            return f"{name} AS v, {_form(name)} AS f", f"max(v), count(*) - CASE WHEN {mixed} THEN 0 ELSE count(v) END"
    return f"{name} AS v", "max(v), count(*) - count(v)"


def _form(name: str) -> str:
    """How a time is written, as a number: 0 for a form whose texts are not in the order of the times. What SQLite would
    write itself is found without a pattern, which takes ten times as long."""
    forms = (
        (f"typeof({name}) IN ('integer', 'real')", 1),
        (f"datetime({name}) = {name}", 4),
        (f"date({name}) = {name}", 2),
        (f"typeof({name}) <> 'text' OR {name} GLOB '*Z*' OR substr({name}, 11) GLOB '*[+-]*'", 0),
        (f"{name} GLOB '{_DAY}'", 2),
        (f"{name} GLOB '{_DAY} {_CLOCK}'", 3),
        (f"{name} GLOB '{_DAY} {_CLOCK}:[0-5][0-9]*'", 4),
        (f"{name} GLOB '{_DAY}T{_CLOCK}'", 5),
        (f"{name} GLOB '{_DAY}T{_CLOCK}:[0-5][0-9]*'", 6),
        (f"{name} GLOB '{_CLOCK}:[0-5][0-9]*'", 7),
    )
    whens = " ".join(f"WHEN {condition} THEN {number}" for condition, number in forms)
    return f"CASE WHEN {name} IS NULL THEN NULL {whens} ELSE 0 END"
