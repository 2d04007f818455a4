"""A rollout before it begins: what is rolled out, over which connections, and how it fits each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.control.rollouts.changes import ChangePatch
from instep.control.rollouts.gates import Gates
from instep.control.rollouts.patch import Patch, RunsConnections
from instep.control.rollouts.policies import ManagedPolicies, policy_patch
from instep.control.rollouts.selections import NO_SUCH_OBJECT, SelectionPatch
from instep.control.rollouts.waves import ConnectionGroup, cut
from instep.control.selection.selections import WORDS
from instep.errors import InstepError, argument
from instep.events import RolloutMoved
from instep.model import Fit, Member, Rollout
from instep.operations.values import MemberStatus
from instep.project.project import Project
from instep.schema.changes.kinds import KINDS
from instep.store.store import Store
from instep.store.work.rollouts import RolloutDraft

_BEGINS: Mapping[Fit, MemberStatus] = {
    "applies": "waiting",
    "already": "already",
    "conflict": "blocked",
    "undecided": "blocked",
}


@dataclass(frozen=True)
class RolloutOrder:
    """Request for a rollout."""

    patch: Patch
    group: ConnectionGroup
    sizes: tuple[str, ...]
    gates: Gates
    canary: tuple[str, ...] = ()
    """Connections that come first, in this order."""


def draft(order: RolloutOrder, connections: Sequence[str], who: str) -> RolloutDraft:
    """Return the compatibility table with its waves; nothing is written. Connections that it does not fit yet are in
    the last wave, those that have it already in none. InstepError if it fits none, or for a canary that is not among
    them."""
    lines = {name: order.patch.line(name) for name in connections}
    if unknown := [name for name in order.canary if name not in lines]:
        raise InstepError(f"{unknown[0]} is not in the group: {order.group.text}", hint="name a canary that is")
    applying = [name for name in connections if lines[name].fit == "applies"]
    ahead = [name for name in order.canary if name in applying]
    waves = cut([*ahead, *(name for name in applying if name not in ahead)], order.sizes)
    last = max(waves.values(), default=1)
    members = tuple(
        Member("", name, waves.get(name, 0 if line.fit == "already" else last), _BEGINS[line.fit], line.fit, line.why)
        for name, line in lines.items()
    )
    return RolloutDraft(order.patch.to_dict(), order.group.to_dict(), order.sizes, order.gates.to_dict(), members, who)


def create(store: Store, made: RolloutDraft) -> Rollout:
    """Write it down. InstepError if it would change no connection, now or once what stands against it is settled."""
    if all(m.status == "already" for m in made.members):
        reasons = dict.fromkeys(member.why for member in made.members)
        if NO_SUCH_OBJECT in reasons:
            raise InstepError(
                f"there is nothing to roll out to {len(made.members)} connection(s): {', '.join(reasons)}",
                hint="is the name right? see what a source has: "
                f"`instep selection show {argument(made.members[0].connection)} --all-columns`",
            )
        raise InstepError(
            f"all {len(made.members)} connections have it already: {next(iter(reasons))}", hint="is the name right?"
        )
    with store.transaction():
        rollout = store.rollouts.add(made)
        store.events.add(RolloutMoved("", rollout.id, rollout.status, 0, "created", made.who))
    return rollout


def detect_all(runs: RunsConnections, connections: Sequence[str], key: str) -> dict[str, str]:
    """Detect the changes of all of them; return errors by connection."""
    waiting, failed = list(connections), dict[str, str]()
    while waiting:
        ended = {name: detection for name in waiting if (detection := runs.detect(name, key)) is not None}
        failed |= {name: detection.error for name, detection in ended.items() if not detection.ok}
        waiting = [name for name in waiting if name not in ended]
        if waiting:
            runs.wait()
    return failed


def patch_of(what: Mapping[str, Any], project: Project, store: Store, managed: ManagedPolicies | None = None) -> Patch:
    """Return the patch that `Patch.to_dict` or a program wrote; InstepError for what is none."""
    try:
        [(sort, content)] = what.items()
        match sort:
            case "selection" if content and all(verb in WORDS and path for verb, path in content):
                return SelectionPatch(project, store, tuple((verb, str(path)) for verb, path in content))
            case "change" if content["verdict"] in ("approved", "rejected") and content["kind"] in KINDS:
                return ChangePatch(
                    store, content["verdict"], content["kind"], str(content["object"]), str(content["summary"])
                )
            case "policy":
                return policy_patch(project, str(content["preset"]), managed)
    except (AttributeError, KeyError, TypeError, ValueError):
        pass  # told below, without repeating what was sent
    raise InstepError(
        "the change to roll out is not understood",
        hint="one of selection: [[on, public.refunds]], change: {verdict, kind, object, summary}, policy: {preset}",
    )
