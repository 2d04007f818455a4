"""Channels at work: a test message, what waits for each, what was delivered and what was not."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Path, Query, Request
from starlette.responses import Response

from instep.errors import InstepError
from instep.notify.hooks import PREFIX as HOOKS
from instep.server import resources
from instep.server.access import CallerDep, ServerDep
from instep.server.context import ServerContext
from instep.server.models import DryRunResult, Page, ResponseModel
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.problems import ApiProblem, unknown
from instep.server.responses import name, router
from instep.server.writes import Matched, WriteAnswer, Writes, tagged
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


class DeliveryOut(ResponseModel):
    """`number` counts all; `id` is the same for every attempt."""

    number: int
    id: str
    channel: str
    urgent: bool
    notices: int
    status: Literal["waiting", "sent", "dead"]
    attempt: int
    due: datetime
    created: datetime
    ended: datetime | None
    error: str


class AttemptOut(ResponseModel):
    """`code` is the receiver's answer (HTTP or SMTP), 0 if there was none."""

    attempt: int
    at: datetime
    seconds: float
    code: int
    error: str


class DeliveryWithAttempts(DeliveryOut):
    attempts: list[AttemptOut]


class Retried(DryRunResult):
    delivery: DeliveryOut


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


@routes.get("/deliveries", response_model=Page[DeliveryOut])
def list_deliveries(
    who: CallerDep,
    the: ServerDep,
    limit: Limit = 100,
    cursor: Cursor = None,
    channel: Annotated[str | None, Query(max_length=200)] = None,
    status: Annotated[str | None, Query(pattern="^(waiting|sent|dead)$")] = None,
) -> Any:
    """Newest first."""
    behind = place(cursor, int)
    before = behind[0] if behind else None
    if channel and not channel.startswith(HOOKS) and not the.store.outbox.knows(channel):  # it may be gone since
        resources.known(the, who, "channel", channel)
    found = the.store.outbox.log(channel, limit=limit + 1, before=before, status=status)
    return paged(found, limit, lambda one: (one.number,), DeliveryOut.model_validate)


@routes.get("/deliveries/{delivery}", response_model=DeliveryWithAttempts)
def get_delivery(request: Request, who: CallerDep, the: ServerDep, delivery: Number) -> Response:
    """With its attempts."""
    return tagged(request, _whole(the, delivery))


@routes.post("/deliveries/{delivery}/retry", response_model=Retried)
def retry_delivery(the: ServerDep, delivery: Number, writes: Matched) -> Response:
    """A dead delivery is due again at once."""

    def do() -> WriteAnswer:
        writes.check(_whole(the, delivery))
        again = the.store.outbox.retry(delivery)
        return WriteAnswer({"delivery": _document(again)}, detail={"channel": again.channel})

    return writes.run("delivery.retry", str(delivery), do)


def _whole(the: ServerContext, number: int) -> dict[str, Any]:
    """The delivery as it is read, and as its ETag goes by."""
    found = _document(_known(the, number))
    tries = [AttemptOut.model_validate(one).model_dump(mode="json") for one in the.store.outbox.attempts(number)]
    return {**found, "attempts": tries}


def _known(the: ServerContext, number: int) -> Delivery:
    try:
        return the.store.outbox.get(number)
    except InstepError:
        raise unknown("delivery", str(number)) from None


def _document(found: Delivery) -> dict[str, Any]:
    return DeliveryOut.model_validate(found).model_dump(mode="json")
