"""The closed lists of words that requests, queries and answers use."""

from __future__ import annotations

from typing import Literal

RunKind = Literal[
    "sync", "detect", "apply", "backfill", "undo", "replay", "discard", "restore", "repair", "maintain", "delete"
]
RunStatus = Literal["running", "done", "failed", "partial", "blocked", "cancelled"]
Answer = Literal["approved", "rejected", "ignored"]
"""What a person says to a change. An ignored one is rejected, and nobody is told of it again."""
ReviewStatus = Literal["open", "approved", "rejected", "applied", "obsolete"]
BackfillStatus = Literal["wanted", "running", "done", "cancelled"]
DeliveryStatus = Literal["waiting", "sent", "dead"]
Side = Literal["source", "accepted", "destination"]
"""Whose schema: the source's, the accepted one, or the destination's."""
Verb = Literal["on", "off", "hash", "unhash"]
"""What is done with an object of a selection."""
RolloutStatus = Literal["ready", "running", "stopped", "halted", "partial", "done"]
MemberStatus = Literal["waiting", "running", "done", "already", "failed", "blocked", "skipped", "rolled_back"]
"""How far a connection of a rollout is."""
JobStatus = Literal["queued", "running", "done", "failed", "dead", "cancelled"]
ObjectKind = Literal["source", "destination", "connection", "policy", "channel"]
"""What is managed: the sections of a project that have names."""
