"""Channels at work: a test message, what waits for each, and another attempt of a delivery."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Path
from fastapi.encoders import jsonable_encoder
from starlette.responses import Response

from instep.control.queries.govern import DeliveryDetails
from instep.operations.queries.govern import GetDelivery
from instep.server import resources
from instep.server.access import CallerDep, ServerDep
from instep.server.models import DryRunResult, ResponseModel
from instep.server.problems import ApiProblem
from instep.server.query_routes import context_of
from instep.server.responses import name, router
from instep.server.writes import Matched, WriteAnswer, Writes
from instep.store.history.outbox import Delivery

if TYPE_CHECKING:
    from instep.notify.channel import Channel


class Tested(DryRunResult):
    """`code` is the receiver's answer, 0 where the channel has none."""

    channel: str
    code: int


class ChannelState(ResponseModel):
    """`waiting` notices are not delivered yet; `closed` says why nothing is sent, "" if it is."""

    channel: str
    waiting: int
    closed: str


class OpenedChannel(DryRunResult):
    channel: str
    opened: bool


class Retried(DryRunResult):
    delivery: Delivery


routes = router("channels")
ChannelName = Annotated[str, name("A channel's name.")]
Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="A delivery's number.")]


@routes.post("/channels/{name}/test", response_model=Tested)
def test_channel(the: ServerDep, who: CallerDep, name: ChannelName, writes: Writes) -> Response:
    """Sends a message at once and answers what the receiver says; with `dry_run` nothing is sent."""
    resources.known(the, who, "channel", name)
    channel = the.app.channel(name)
    # Outside of the transaction: a slow receiver would hold up all writers of the store.
    code = 0 if writes.dry_run or writes.repeated() else _sent(channel, name, the.store.api_keys.now())
    return writes.run("channel.test", name, lambda: WriteAnswer({"channel": name, "code": code}, detail={"code": code}))


def _sent(channel: Channel, name: str, at: datetime) -> int:
    """The receiver's answer; a Problem if it has not taken the message."""
    from instep.notify.channel import NotDelivered
    from instep.notify.trial import try_channel

    try:
        return try_channel(channel, name, at)
    except NotDelivered as error:
        raise ApiProblem(503, "unavailable", error.message, error.hint) from None


@routes.get("/channels/{name}/state", response_model=ChannelState)
def get_channel_state(the: ServerDep, who: CallerDep, name: ChannelName) -> Any:
    """What waits for it, and whether it is closed because its receiver is gone for good."""
    resources.known(the, who, "channel", name)
    outbox = the.store.outbox
    return ChannelState(channel=name, waiting=outbox.waiting().get(name, 0), closed=outbox.closed().get(name, ""))


@routes.post("/channels/{name}/open", response_model=OpenedChannel)
def open_channel(the: ServerDep, who: CallerDep, name: ChannelName, writes: Writes) -> Response:
    """Opens a closed channel: what was kept for it is sent."""
    resources.known(the, who, "channel", name)
    return writes.run(
        "channel.open", name, lambda: WriteAnswer({"channel": name, "opened": the.store.outbox.open(name)})
    )


@routes.post("/deliveries/{delivery}/retry", response_model=Retried)
def retry_delivery(the: ServerDep, who: CallerDep, delivery: Number, writes: Matched) -> Response:
    """A dead delivery is due again at once."""

    def do() -> WriteAnswer:
        writes.check(jsonable_encoder(DeliveryDetails().find(context_of(the, who), GetDelivery(delivery))))
        again = the.store.outbox.retry(delivery)
        return WriteAnswer({"delivery": jsonable_encoder(again)}, detail={"channel": again.channel})

    return writes.run("delivery.retry", str(delivery), do)
