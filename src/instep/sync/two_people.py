"""Four eyes for operations: an operation runs when a second person makes the same request.

A request is an event. So it is told as a notice, it is on record for good, and nothing has to be cleaned up: it counts
for a week, until the act is done, or until the connection is deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol

from instep.errors import Blocked
from instep.events import ConnectionDeleted, OperationConfirmed, OperationRequested
from instep.schema.catalog.catalog import Catalog, Table
from instep.store.server.persons import has_right, persons
from instep.store.store import Store

TableAction = Literal["keep", "drop"]
"""Effects of deleting a connection on its tables."""
COUNTS = timedelta(days=7)
DELETION = "connection delete"
DROP = "drop columns"
"""The act of who names columns that may be dropped, or lets go of all that the source has dropped."""
_PLAIN = re.compile(r"[\w.$-]+")
"""Pattern of a name that needs no quotes in the text of an act."""
_TYPES = (OperationRequested.type, OperationConfirmed.type, ConnectionDeleted.type)


@dataclass(frozen=True)
class Act:
    """An act that two people have to request."""

    connection: str
    name: str
    """The command."""
    what: str
    """Text of all that matters: two requests are the same if it is equal. Names of tables and columns stand in it as
    `in_text` and `listed` write them: two different requests never have the same text."""


class TwoPeopleContext(Protocol):
    """A connection, and who asks something of it, as `sync.context` has them."""

    @property
    def name(self) -> str: ...

    @property
    def store(self) -> Store: ...

    @property
    def who(self) -> str: ...

    @property
    def four_eyes(self) -> bool: ...


def in_text(name: str) -> str:
    """Return a name as the text of an act has it: in quotes unless it ends where a word does."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def listed(names: Iterable[str]) -> str:
    """Return a list of names as the text of an act has it."""
    return ", ".join(map(in_text, names))


def leaving(table_action: TableAction, *, abandon: bool) -> str:
    """Return the essence of a deletion, on which two people agree."""
    end = "DROPPED" if table_action == "drop" else "kept"
    return f"its tables are {end}{', what is not reached stays behind' * abandon}"


def dropping(connection: str, paths: Collection[str]) -> Act:
    """Return the act of dropping these columns (schema.table.column), in whatever order they are named."""
    return Act(connection, DROP, listed(sorted(paths)))


def stale_tables(accepted: Catalog, only: Collection[str] = ()) -> list[Table]:
    """Return the tables whose retained columns `drop_retained` lets go of, `only` these paths, if any: a full refresh
    of a table without a key cannot carry them."""
    tables = (t for t in accepted.tables if not t.retained and not t.key and (not only or t.path in only))
    return [t for t in tables if any(c.retained for c in t.columns)]


def drop_retained_act(connection: str, accepted: Catalog, only: Collection[str] = ()) -> Act | None:
    """Return the act that `drop_retained` is, or None if there is nothing to drop."""
    paths = [f"{t.path}.{c.name}" for t in stale_tables(accepted, only) for c in t.columns if c.retained]
    return dropping(connection, paths) if paths else None


def drop_named_act(connection: str, accepted: Catalog, paths: Collection[str]) -> Act | None:
    """Return the act that dropping these columns is, or None if none of them is there."""
    columns = {f"{t.path}.{c.name}" for t in accepted.tables for c in t.columns}
    return dropping(connection, paths) if columns.intersection(paths) else None


def requested_alone(store: Store, act: Act, who: str) -> Blocked | None:
    """Return the refusal of a request that nobody else has made within a week; it is kept for whoever comes next. None
    if `who` is the second. A job may come to it when the key of who asked for it is revoked by then."""
    if not has_right(store.api_keys, who):
        message = f"{act.name}: {act.what}: {who}, who has asked for it, no longer has an API key"
        return Blocked(message, hint="two other people have to request it")
    with store.transaction():
        people, own = _people(store, act), persons(store.api_keys, who)
        if any(own - persons(store.api_keys, other) for other in people):
            return None
        if who not in people:
            store.events.add(OperationRequested(act.connection, act.name, act.what, who))
    message = f"{act.name}: {act.what}: with four_eyes this takes two people, and only {who} has asked for it"
    return Blocked(message, hint=f"another person has to request the same within {COUNTS.days} days")


@contextmanager
def second_person(store: Store, act: Act, who: str) -> Iterator[None]:
    """Require two people for an act. Raises Blocked before it for the first who asks; a request is used up by an act
    that was completed, so that an interrupted one goes on."""
    if refused := requested_alone(store, act, who):
        raise refused
    yield
    store.events.add(OperationConfirmed(act.connection, act.name, act.what, who))


def two_people(context: TwoPeopleContext, name: str, what: str) -> AbstractContextManager[None]:
    """Require two people for an act on a connection, if four_eyes are on."""
    if not context.four_eyes:
        return nullcontext()
    return second_person(context.store, Act(context.name, name, what), context.who)


def _people(store: Store, act: Act) -> set[str]:
    """Return the people whose requests for the act count now: those whose key was revoked since have no say."""
    since, keys = store.inspections.now() - COUNTS, set[str]()
    for event in store.events.latest(connection=act.connection, types=_TYPES, limit=1000):
        if event.type == ConnectionDeleted.type or event.at < since:
            break
        if (event.data["operation"], event.data["what"]) != (act.name, act.what):
            continue
        if event.type == OperationConfirmed.type:
            break
        keys.add(event.data["who"])
    return {who for who in keys if has_right(store.api_keys, who)}
