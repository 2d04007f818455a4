"""Rollouts at the project of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.control.rollouts.create import Order
    from instep.control.rollouts.patch import Patch
    from instep.model import Member, Rollout
    from instep.remote.desks import Wanted
    from instep.store.rollouts import Draft


class RolloutsHere:
    def __init__(self, app: App) -> None:
        self.app = app

    @property
    def _who(self) -> str:
        from instep.bootstrap import user

        return user()

    def find(self) -> list[Rollout]:
        return self.app.store.rollouts.find()

    def get(self, id: str) -> Rollout:
        return self.app.store.rollouts.get(id)

    def text(self, made: Rollout) -> str:
        from instep.control.rollouts.create import patch_of

        return patch_of(made.what, self.app.project, self.app.store).text

    def members(self, id: str) -> list[Member]:
        return self.app.store.rollouts.members(id)

    def detect(self, wanted: Wanted) -> Mapping[str, str]:
        from instep.control.rollouts.create import detect_all
        from instep.control.rollouts.waves import chosen
        from instep.sync.in_process import InProcess

        app = self.app
        return detect_all(InProcess(app.pipe, app.engine), chosen(app.project, wanted.group), "create")

    def draft(self, wanted: Wanted) -> tuple[Draft, str]:
        from instep.control.rollouts.create import draft

        order, names = self._order(wanted)
        return draft(order, names, self._who), order.patch.text

    def create(self, wanted: Wanted) -> Rollout:
        from instep.control.rollouts.create import create

        return create(self.app.store, self.draft(wanted)[0])

    def _order(self, wanted: Wanted) -> tuple[Order, list[str]]:
        from instep.control.rollouts.create import Order
        from instep.control.rollouts.gates import gates
        from instep.control.rollouts.waves import chosen

        names = chosen(self.app.project, wanted.group)
        patch = self._patch(wanted, names)
        return Order(patch, wanted.group, wanted.sizes, gates(wanted.gates), wanted.canary), names

    def _patch(self, wanted: Wanted, names: list[str]) -> Patch:
        from instep.control.rollouts.changes import change_patch
        from instep.control.rollouts.policies import ServedPolicies, policy_patch
        from instep.control.rollouts.selections import SelectionPatch

        if wanted.change is not None:
            verdict, change = wanted.change
            return change_patch(self.app.store, "approved" if verdict == "approved" else "rejected", change, names)
        if wanted.preset:
            return policy_patch(self.app.project, wanted.preset, ServedPolicies(self.app.objects))
        return SelectionPatch(self.app.project, self.app.store, tuple(wanted.turns))

    def advance(self, id: str, *, every: bool) -> Rollout:
        from instep.cli.rollout_carried import carry

        return carry(self.app, id, lambda asks: asks.advance(every))

    def resume(self, id: str, *, every: bool, accept: str) -> Rollout:
        from instep.cli.rollout_carried import carry

        return carry(self.app, id, lambda asks: asks.resume(every, accept))

    def roll_back(self, id: str, *, wave: int, connections: Sequence[str]) -> Rollout:
        from instep.cli.rollout_carried import carry

        return carry(self.app, id, lambda asks: asks.roll_back(wave, connections))

    def stop(self, id: str, reason: str) -> Rollout:
        from instep.control.rollouts.flow import stop

        return stop(self.app.store, id, self._who, reason)

    def skip(self, id: str, connections: Sequence[str], reason: str) -> Rollout:
        from instep.control.rollouts.flow import skip

        skip(self.app.store, id, list(connections), reason, self._who)
        return self.app.store.rollouts.get(id)
