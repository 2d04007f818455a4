"""What open changes of keys would do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.model import Review


def key_lines(app: App, connection: str, reviews: Sequence[Review]) -> list[str]:
    """What open changes of keys would do, with the commands that settle them; nothing is read where there are none."""
    keys = [r for r in reviews if r.kind in ("key.changed", "key.removed") and r.status == "open"]
    if not keys:
        return []
    from instep.sync.changes.keyreport import key_report

    pipe = app.pipe(connection)
    return [line for r in keys if (found := key_report(pipe, r)) is not None for line in found.lines]
