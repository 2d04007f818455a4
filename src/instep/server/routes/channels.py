"""What waits for a channel."""

from __future__ import annotations

from typing import Annotated, Any

from instep.server import resources
from instep.server.access import CallerDep, ServerDep
from instep.server.models import ResponseModel
from instep.server.responses import name, router


class ChannelState(ResponseModel):
    """State of a notification channel. `waiting` counts notifications not yet delivered; `closed` is the reason why
    nothing is sent, "" if the channel is open."""

    channel: str
    waiting: int
    closed: str


routes = router("channels")
ChannelName = Annotated[str, name("A channel's name.")]


@routes.get("/channels/{name}/state", response_model=ChannelState)
def get_channel_state(the: ServerDep, who: CallerDep, name: ChannelName) -> Any:
    """Return the number of pending notifications, and whether the channel is closed because its receiver is gone
    (410)."""
    resources.known(the, who, "channel", name)
    outbox = the.store.outbox
    return ChannelState(channel=name, waiting=outbox.waiting().get(name, 0), closed=outbox.closed().get(name, ""))
