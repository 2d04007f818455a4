"""Keys and cursors of tables at the project of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from instep.remote.desks import Setting

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.sync.changes.rekey import Way
    from instep.sync.pipe import Ref


class SettingsHere:
    def __init__(self, app: App) -> None:
        self.app = app

    def keying(self, connection: str, table: str, key: Sequence[str], way: Way) -> Setting:
        from instep.sync.changes.rekey import prepare

        made = prepare(self.app.pipe(connection), table, key, way)
        return Setting(connection, made.document(), **made.told(), made=made)

    def set_key(self, made: Setting, allow: Sequence[str]) -> tuple[int, Ref | None]:
        from instep.sync.changes.rekey import carry_out

        return carry_out(self.app.pipe(made.connection), made.made, tuple(allow))

    def cursoring(self, connection: str, table: str, column: str | None, start: str) -> Setting:
        from instep.sync.changes.recursor import prepare

        made = prepare(self.app.pipe(connection), table, column, start)
        return Setting(connection, made.document(), made.lines, made=made)

    def set_cursor(self, made: Setting) -> int:
        from instep.sync.changes.recursor import carry_out

        return carry_out(self.app.pipe(made.connection), made.made)
