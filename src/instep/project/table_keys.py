"""Which keys of a connection's `tables` are about a table: exact names are looked up, only patterns are tried."""

from __future__ import annotations

from collections.abc import Iterable

from instep.schema.selection import Pattern


class TableKeys:
    """A section may name thousands of tables, and each column of a table asks."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._order = {key: at for at, key in enumerate(keys)}
        self._patterns = [pattern for pattern in map(Pattern, self._order) if not pattern.is_exact]

    def fitting(self, path: str) -> list[str]:
        """Return the keys that match a table, in their order."""
        found = {pattern.text for pattern in self._patterns if pattern.matches(path)}
        if path in self._order:
            found.add(path)
        return sorted(found, key=self._order.__getitem__)
