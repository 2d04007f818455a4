"""The context of an operation that is done at once: what the asker may see, and who asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.control.queries.context import QueryContext

if TYPE_CHECKING:
    from instep.notify.channel import Channel


@dataclass(frozen=True)
class WriteContext(QueryContext):
    """Context of an immediate operation: that of a query, and the requester."""

    who: str = ""
    """Requester, as recorded in the store."""
    decide_anew: Callable[[str], None] | None = None
    """Decide by the policy of today about what was found last of a connection; None where only a worker may."""
    open_channel: Callable[[str], Channel] | None = None
    """Open a channel that messages are sent to."""
    rehearsed: bool = False
    """True for a dry run: nothing is stored, and nothing may be sent."""
