"""What policies say, as JSON has it: the same for commands and the API."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from instep.control.policies import CaseResult, Explanation
from instep.control.simulation import Compared, Outcome, Simulation
from instep.schema.change import change_to_dict, describe
from instep.schema.policy import Rule, Trace, Voice


def explained(found: Explanation) -> dict[str, Any]:
    return {
        "connection": found.connection, "summary": describe(found.change), "change": change_to_dict(found.change),
        "recorded": found.review.id if found.review else None, **_trace(found.trace, found.places),
        "notes": list(found.notes),
    }  # fmt: skip


def _trace(trace: Trace, places: tuple[str, ...]) -> dict[str, Any]:
    decision = trace.decision
    return {
        "decision": {"action": decision.action, "effect": decision.effect, "rule": decision.rule, "why": decision.why},
        "modifiers": {n: {"value": v, "by": trace.origins[n]} for n, v in asdict(decision.modifiers).items()},
        "asked": [_voice(v, place) for v, place in zip(trace.asked, places, strict=True)],
    }


def _voice(voice: Voice, place: str) -> dict[str, Any]:
    return {
        "name": voice.name, "level": voice.level, "where": place, "decided": not voice.misses,
        "rule": _rule(voice.rule) if voice.rule else None, "misses": [asdict(m) for m in voice.misses],
    }  # fmt: skip


def _rule(rule: Rule) -> dict[str, Any]:
    return {**asdict(rule), "text": str(rule)}


def tested(result: CaseResult | str) -> dict[str, Any]:
    """A case with what was decided; `problem` says why it can be no such change, which has nothing else then."""
    if isinstance(result, str):
        return {"problem": result}
    decision, asked = result.trace.decision, result.trace.asked
    return {
        **asdict(result.sample), "passed": not result.wrong, "wrong": list(result.wrong), "action": decision.action,
        "effect": decision.effect, "rule": decision.rule, "why": decision.why,
        "modifiers": asdict(decision.modifiers), "asked": [_voice(voice, "") for voice in asked],
    }  # fmt: skip


def simulated(s: Simulation) -> dict[str, Any]:
    """Times are as they are recorded."""
    return {
        "connection": s.connection, "policy": s.policy.name, "recorded": len(s.compared) + len(s.unread),
        "counts": [{"outcome": text, "then": then, "now": now} for text, (then, now) in s.counts.items()],
        "different": [_compared(c) for c in s.different], "unread": list(s.unread),
    }  # fmt: skip


def _compared(c: Compared) -> dict[str, Any]:
    r = c.review
    return {
        "id": r.id, "summary": r.summary, "kind": r.kind, "status": r.status, "first_seen": r.first_seen,
        "then": _outcome(c.then), "now": _outcome(c.now),
    }  # fmt: skip


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {"outcome": outcome.text, "action": outcome.action, "rule": outcome.rule, "why": outcome.why}
