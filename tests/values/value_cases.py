"""Types and their edge values as SQL, and which of them are held: the one table, for all destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DESTINATIONS = ("iceberg", "duckdb", "postgres", "delta")


@dataclass(frozen=True)
class Case:
    """A column of the type `native` with these values, each an SQL expression.

    `held`: values that no destination holds, to a part of the reason. `held_at`: the same for single destinations.
    `shown` is how the server is asked for a value's text, with `{}` for the column; "" for the server's usual way.
    """

    native: str
    values: tuple[str, ...]
    held: Mapping[str, str] = field(default_factory=dict)
    held_at: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shown: str = ""

    def reasons(self, destination: str) -> dict[int, str]:
        """Position of a value to why the destination does not hold it."""
        held = {**self.held, **self.held_at.get(destination, {})}
        assert set(held) <= set(self.values), self.native
        return {at: held[value] for at, value in enumerate(self.values) if value in held}


def q(*values: str) -> tuple[str, ...]:
    """Texts as SQL literals."""
    return tuple(f"'{v}'" for v in values)


def out(*values: str) -> dict[str, str]:
    """Literals that are outside the years that destinations know."""
    return dict.fromkeys(q(*values), "outside the years 0001 to 9999")
