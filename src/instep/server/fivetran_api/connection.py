"""A connection on the wire, made of its section, its source, its runs and what is queued for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from instep.server.fivetran_api.connection_bodies import ECHOED, WAYS, noted
from instep.server.fivetran_api.http.ports import ApiJob, Item, Ports
from instep.server.fivetran_api.http.services import DEFAULT, minutes, service_of, wire_config
from instep.store.work.pauses import Trouble
from instep.store.work.runs import Outcomes

SyncState = Literal["scheduled", "syncing", "paused", "rescheduled"]
SetupState = Literal["incomplete", "connected", "broken"]


@dataclass(frozen=True)
class PendingJob:
    """A queued or running job that moves rows."""

    running: bool
    due: datetime | None = None
    """When it may begin."""
    attempt: int = 1
    """Counts from 1."""


@dataclass(frozen=True)
class Status:
    """The status of a connection."""

    setup: SetupState
    sync: SyncState
    delayed: bool
    historical: bool
    """The first sync is not done yet."""
    paused: bool
    succeeded: datetime | None = None
    failed: datetime | None = None
    rescheduled_for: datetime | None = None
    """Set while it is rescheduled only."""


def status(
    outcomes: Outcomes,
    pending: Sequence[PendingJob],
    now: datetime,
    *,
    paused: bool,
    late_after: float,
    complete: bool = True,
    broken: bool = False,
) -> Status:
    """Return the status. `late_after`: seconds without a successful sync after which it is delayed. `complete`: it
    could run at all; `broken`: its set-up does not work any more."""
    later = [p.due for p in pending if _is_later(p, now) and p.attempt > 1 and p.due]
    sync: SyncState
    if outcomes.running or any(p.running or not _is_later(p, now) for p in pending):
        sync = "syncing"
    elif paused:
        sync = "paused"
    else:
        sync = "rescheduled" if later else "scheduled"
    # syncs that never succeeded are not late but incomplete
    last = outcomes.succeeded
    return Status(
        setup="broken" if complete and broken else "connected" if complete else "incomplete",
        sync=sync,
        paused=paused,
        delayed=(last is not None and (now - last).total_seconds() > late_after) and not paused,
        historical=outcomes.succeeded is None,
        succeeded=outcomes.succeeded,
        failed=outcomes.failed,
        rescheduled_for=min(later) if sync == "rescheduled" else None,
    )


def _is_later(pending: PendingJob, now: datetime) -> bool:
    return not pending.running and pending.due is not None and pending.due > now


NEVER_RAN = Outcomes()
MOVES = ("sync", "backfill", "refresh")


def shown(ports: Ports, items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return these connections as clients read them; the number of queries per page is constant."""
    names = [item.name for item in items]
    facts = Facts(
        ports.store.runs.outcomes(names),
        ports.store.pauses.paused_connections(names),
        ports.jobs.unfinished(names),
        datetime.now(UTC),
        ports.store.detectors.disabled(names),
        ports.store.setups.broken(names),
        noted(ports, "connection", [item.name for item in items if item.kind == "connection"]),
        ports.store.troubles.of(names),
    )
    sources = ports.objects.sources({str(i.spec.get("source", "")) for i in items if i.kind == "connection"})
    return [_connection(item, sources.get(str(item.spec.get("source", ""))), facts) for item in items]


@dataclass(frozen=True)
class Facts:
    """Facts about several connections at `now`, by name. `detection_off`: why a detector has disabled itself; `broken`:
    why a set-up does not work; `noted`: what clients have said beside the settings."""

    outcomes: Mapping[str, Outcomes]
    paused: frozenset[str]
    jobs: Mapping[str, Sequence[ApiJob]]
    now: datetime
    detection_off: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    noted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    troubles: Mapping[str, Sequence[Trouble]] = field(default_factory=dict)
    """Open reviews and pauses that block them."""

    def tasks(self, item: Item) -> list[dict[str, Any]]:
        """Return the tasks that a person has to do before the connection continues by itself."""
        given = list(item.spec.get("tasks") or []) if item.kind == "foreign" else []
        if why := self.detection_off.get(item.name):
            message = f"Schema detection has switched itself off: {why}. Resolve it, then enable detection."
            given.append({"code": "resolve_schema_change", "message": message, "details": why})
        if why := self.broken.get(item.name):
            given.append({"code": "reconnect", "message": why, "details": why})
        reasons = {why} if why else set()
        jobs = self.jobs.get(item.name, ())
        tried = [Trouble("sync", j.error) for j in jobs if j.kind in MOVES and j.status == "queued" and j.error]
        troubles = [*(t for t in self.troubles.get(item.name, ()) if t.what != "missing"), *tried]
        return [*given, *(_task(t) for t in dict.fromkeys(troubles) if t.text not in reasons)]

    def warnings(self, item: Item) -> list[dict[str, Any]]:
        """Return warnings: what has changed, though everything continues."""
        return [_task(t) for t in self.troubles.get(item.name, ()) if t.what == "missing"]

    def status(self, item: Item, late_after: float) -> Status:
        pending = [
            PendingJob(j.status == "running", j.due, j.attempt) for j in self.jobs.get(item.name, ()) if j.kind in MOVES
        ]
        return status(
            self.outcomes.get(item.name, NEVER_RAN),
            pending,
            self.now,
            late_after=late_after,
            paused=item.name in self.paused or bool(item.spec.get("paused") and item.kind == "foreign"),
            complete=item.kind == "connection",
            broken=item.name in self.broken,
        )


_CODES = {
    "sync": "sync_failed",
    "failed": "table_failed",
    "missing": "table_missing",
    "paused": "resolve_schema_change",
}


def _task(trouble: Trouble) -> dict[str, Any]:
    words = {
        "sync": "The last sync failed",
        "failed": f"Table {trouble.table} was not loaded",
        "missing": f"Table {trouble.table} is not at the source",
        "paused": f"Table {trouble.table} is paused" if trouble.table else "The connection is paused",
    }
    message = f"{words[trouble.what]}: {trouble.text}"
    return {"code": _CODES[trouble.what], "message": message, "details": trouble.text}


def _connection(item: Item, source: Item | None, facts: Facts) -> dict[str, Any]:
    foreign = item.kind == "foreign"
    fields = item.spec if foreign else facts.noted.get(item.name, {})
    line, (frequency, daily) = sync_line(item), times(item, fields)
    now = facts.status(item, late_after=2 * 60.0 * frequency)
    return {
        "id": item.name,
        "group_id": item.group,
        "service": fields["service"] if foreign else service_of(source, str(fields.get("service", ""))),
        "service_version": 1,
        "schema": item.namespace,
        "connected_by": _user_of(item.created_by),
        "created_at": instant(item.created),
        "succeeded_at": instant(now.succeeded),
        "failed_at": instant(now.failed or _instant(fields.get("failed_at") if foreign else None)),
        "paused": now.paused,
        "sync_frequency": frequency,
        **({"daily_sync_time": daily} if daily and frequency == 1440 else {}),
        "schedule_type": fields.get("schedule_type") or "auto" if foreign else "auto" if line else "manual",
        "networking_method": fields.get("networking_method") or "Directly" if foreign else network(source),
        "status": _status(now, facts.tasks(item), facts.warnings(item)),
        "config": {**(fields.get("config") or {}), **({} if foreign else wire_config(source))},
        **_DEFAULTS,
        **{name: fields[name] for name in (*ECHOED, *WAYS) if fields.get(name) is not None},
    }


_DEFAULTS: Mapping[str, Any] = {
    "pause_after_trial": False,
    "data_delay_sensitivity": "NORMAL",
    "data_delay_threshold": 0,
}


def _user_of(who: str) -> str | None:
    """Return the id of the key that is named with its id, else the name of the person."""
    match = re.fullmatch(r".* \((k-[0-9a-f]+)\)", who)
    return match[1] if match else who or None


def sync_line(item: Item) -> str:
    """Return the sync schedule as a cron line; "" if there is none."""
    schedule = item.spec.get("schedule")
    return str(schedule.get("sync") or "") if isinstance(schedule, Mapping) else ""


def times(item: Item, fields: Mapping[str, Any]) -> tuple[int, str]:
    """Return (minutes, time of day); for a connection without a schedule `fields` has the last ones."""
    if line := sync_line(item):
        return minutes(line)
    return int(fields.get("sync_frequency") or DEFAULT), str(fields.get("daily_sync_time") or "")


def network(source: Item | None) -> str:
    return "SshTunnel" if source and source.spec.get("ssh") else "Directly"


def _status(now: Status, tasks: Sequence[Any], warnings: Sequence[Any]) -> dict[str, Any]:
    return {
        "setup_state": now.setup,
        "schema_status": "ready",
        "sync_state": now.sync,
        "update_state": "delayed" if now.delayed else "on_schedule",
        "is_historical_sync": now.historical,
        "rescheduled_for": instant(now.rescheduled_for),
        "tasks": list(tasks),
        "warnings": list(warnings),
    }


def instant(at: datetime | None) -> str | None:
    """Format as ISO 8601 in UTC with Z; None stays None."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z") if at else None


def _instant(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None
