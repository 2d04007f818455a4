"""What waits for a channel."""

from __future__ import annotations

from typing import Annotated, Any

from instep.server import resources
from instep.server.access import CallerDep, ServerDep
from instep.server.models import ResponseModel
from instep.server.responses import name, router


class ChannelState(ResponseModel):
    """`waiting` notices are not delivered yet; `closed` says why nothing is sent, "" if it is."""

    channel: str
    waiting: int
    closed: str


routes = router("channels")
ChannelName = Annotated[str, name("A channel's name.")]


@routes.get("/channels/{name}/state", response_model=ChannelState)
def get_channel_state(the: ServerDep, who: CallerDep, name: ChannelName) -> Any:
    """What waits for it, and whether it is closed because its receiver is gone for good."""
    resources.known(the, who, "channel", name)
    outbox = the.store.outbox
    return ChannelState(channel=name, waiting=outbox.waiting().get(name, 0), closed=outbox.closed().get(name, ""))
