"""Rollouts at a server, whose workers carry them on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.backends.decode import record
from instep.backends.http.client import part
from instep.backends.protocol import RolloutRequest
from instep.backends.remote_jobs import Works, error_of
from instep.control.rollouts.waves import among
from instep.errors import InstepError, NotFound
from instep.model import Job, Member, Rollout
from instep.store.work.rollouts import RolloutDraft


@dataclass(frozen=True)
class RemoteRollouts:
    """`told` says what became of a connection, as it ends; `say` tells the user what else matters."""

    works: Works
    told: Callable[[Member], None]
    say: Callable[[str], None]

    def find(self) -> list[Rollout]:
        return [record(Rollout, one) for one in self.works.client.pages("/rollouts")]

    def get(self, id: str) -> Rollout:
        return record(Rollout, self._whole(id))

    def _whole(self, id: str) -> dict[str, Any]:
        """Find a rollout by its id or a unique prefix of it."""
        try:
            found: dict[str, Any] = self.works.client.get(f"/rollouts/{part(id)}")
        except NotFound as error:
            same = [one["id"] for one in self.works.client.pages("/rollouts") if one["id"].startswith(id)]
            if len(same) != 1:
                raise error
            return self._whole(same[0])
        return found

    def text(self, made: Rollout) -> str:
        return str(self._whole(made.id)["text"])

    def members(self, id: str) -> list[Member]:
        found = self.works.client.pages(f"/rollouts/{part(id)}/connections")
        return [record(Member, {**one, "rollout": id}) for one in found]

    def detect(self, wanted: RolloutRequest) -> Mapping[str, str]:
        """All at once into the queue, then one after the other is waited for. Nothing is drafted before: what is rolled
        out may be what is found."""
        failed: dict[str, str] = {}
        listed = self.works.client.pages("/connections")
        names = among(wanted.group, [(one["name"], one["destination"], one["tags"]) for one in listed])
        jobs = {name: self.works.begin(name, "detect", {"why": "rollout"})["id"] for name in names}
        for name, job in jobs.items():
            try:
                self.works.follower.done(job)
            except InstepError as error:
                failed[name] = error.message
        return failed

    def draft(self, wanted: RolloutRequest) -> tuple[RolloutDraft, str]:
        found = self.works.client.post("/rollouts", _asked(wanted), dry_run=True)
        made = found["rollout"]
        members = tuple(record(Member, {**one, "rollout": ""}) for one in found["connections"])
        sizes = tuple(made["sizes"])
        return RolloutDraft(made["what"], made["group"], sizes, made["gates"], members, made["who"]), str(made["text"])

    def create(self, wanted: RolloutRequest) -> Rollout:
        return record(Rollout, self.works.client.post("/rollouts", _asked(wanted))["rollout"])

    def advance(self, id: str, *, every: bool) -> Rollout:
        return self._carried(id, "advance", {"every": every})

    def resume(self, id: str, *, every: bool, accept: str) -> Rollout:
        return self._carried(id, "resume", {"every": every, "accept": accept})

    def roll_back(self, id: str, *, wave: int, connections: Sequence[str]) -> Rollout:
        return self._carried(id, "rollback", {"wave": wave, "connections": list(connections)})

    def _carried(self, id: str, verb: str, asked: Mapping[str, Any]) -> Rollout:
        """Tells of each connection that has ended, until the job has."""
        follower, seen = self.works.follower, self._by_name(id)
        waits = follower.waits()
        job = str(self.works.client.post(f"/rollouts/{part(id)}/{verb}", asked)["job"])
        self.say(f"a worker runs it (job {job}), even if this command is interrupted")
        while True:
            found = record(Job, self.works.client.get(f"/queue/{part(job)}"))
            now = self._by_name(id)
            for name, member in now.items():
                if member != seen.get(name) and member.status not in ("waiting", "running"):
                    self.told(member)
            seen = now
            if found.over:
                break
            follower.sleep(next(waits))
        if found.status != "done":
            raise error_of(found)
        return self.get(id)

    def _by_name(self, id: str) -> dict[str, Member]:
        return {m.connection: m for m in self.members(id)}

    def stop(self, id: str, reason: str) -> Rollout:
        return self._moved(id, "stop", {"reason": reason})

    def skip(self, id: str, connections: Sequence[str], reason: str) -> Rollout:
        return self._moved(id, "skip", {"connections": list(connections), "reason": reason})

    def _moved(self, id: str, verb: str, asked: Mapping[str, Any]) -> Rollout:
        return record(Rollout, self.works.client.post(f"/rollouts/{part(id)}/{verb}", asked)["rollout"])


def _asked(wanted: RolloutRequest) -> dict[str, Any]:
    group = wanted.group
    verdict, change = wanted.change or ("", "")
    return {
        "group": {
            "connections": list(group.names),
            "destinations": list(group.destinations),
            "tags": list(group.tags),
            "matching": list(group.matching),
        },
        "selection": [{"verb": verb, "object": path} for verb, path in wanted.turns],
        "change": {"verdict": verdict, "change": change} if change else None,
        "preset": wanted.preset or None,
        "sizes": list(wanted.sizes),
        "gates": list(wanted.gates),
        "canary": list(wanted.canary),
    }
