"""Keys and cursors of tables at a server: a worker looks what another one does, and sets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.remote.desks import Setting
from instep.remote.work import Works

if TYPE_CHECKING:
    from instep.sync.changes.rekey import Way
    from instep.sync.pipe import Ref


@dataclass(frozen=True)
class SettingsThere:
    works: Works

    def keying(self, connection: str, table: str, key: Sequence[str], way: Way) -> Setting:
        asked = {"table": table, "key": list(key), "way": way}
        found = self._done(connection, "set-key", {**asked, "preview": True})
        return Setting(connection, found, **found.pop("told"), made=asked)

    def set_key(self, made: Setting, allow: Sequence[str]) -> tuple[int, Ref | None]:
        found = self._done(made.connection, "set-key", {**made.made, "allow": list(allow)})
        place = found["copy"]
        return int(found["version"]), (place[0], place[1]) if place else None

    def cursoring(self, connection: str, table: str, column: str | None, start: str) -> Setting:
        asked = {"table": table, "column": column, "start": start}
        found = self._done(connection, "set-cursor", {**asked, "preview": True})
        return Setting(connection, found, found["lines"], made=asked)

    def set_cursor(self, made: Setting) -> int:
        return int(self._done(made.connection, "set-cursor", made.made)["version"])

    def _done(self, connection: str, what: str, asked: dict[str, Any]) -> dict[str, Any]:
        return dict(self.works.done(connection, what, asked).result)
