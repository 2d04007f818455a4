"""Health gates: after which connections a rollout does not go on by itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from instep.errors import InstepError
from instep.model import Measure, Member, RunOutcome, TableHealth


@dataclass(frozen=True)
class Gates:
    """Limits at which a wave halts; None: not checked."""

    failed: float | None = 0.0
    """Runs that failed, as a number (1.0 and above) or a share of the wave."""
    quarantined: float | None = 0.001
    """Values held as a share of the rows read of a table."""
    nulls: float | None = 5.0
    """Points by which the share of NULL in a column may rise."""
    rows: float | None = 0.2
    """Share by which the rows of a table may differ."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the text for people."""
        failed = "any run fails" if self.failed == 0 else f"more than {_amount(self.failed or 0)} of a wave's runs fail"
        texts = {
            "failed": failed,
            "quarantined": f"values of more than {_percent(self.quarantined or 0)} of a table's rows are quarantined",
            "nulls": f"the share of NULL in a column rises by more than {self.nulls or 0:g} points",
            "rows": f"the rows of a table differ by more than {_percent(self.rows or 0)}",
        }
        return tuple(text for name, text in texts.items() if getattr(self, name) is not None)


DEFAULT = Gates()


def gates_of(data: Mapping[str, Any]) -> Gates:
    """Return the gates that `Gates.to_dict` wrote."""
    return Gates(**data)


def gates(texts: Sequence[str]) -> Gates:
    """Parse gates such as `failed=10%`, `quarantined=0.5%`, `nulls=3`, `rows=off`; others keep their defaults.
    InstepError for anything else."""
    limits = DEFAULT
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in {f.name for f in fields(Gates)} or not value:
            raise InstepError(
                f"{text!r} is not a gate", hint="write failed=10%, quarantined=0.5%, nulls=3, rows=30%, or NAME=off"
            )
        limits = replace(limits, **{name: _limit(text, name, value)})
    return limits


def _limit(text: str, name: str, value: str) -> float | None:
    if value == "off":
        return None
    try:
        number = float(value.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6:
        raise InstepError(
            f"{text!r} is not a gate: {value!r} is not a limit", hint="write a number, a share such as 10%, or off"
        )
    return number / 100 if value.endswith("%") and name != "nulls" else number


def findings(outcome: RunOutcome, limits: Gates) -> tuple[str, ...]:
    """Return the problems after a run that went through."""
    return tuple(text for path, health in sorted(outcome.tables.items()) for text in _of_table(path, health, limits))


def _of_table(path: str, health: TableHealth, limits: Gates) -> Iterator[str]:
    share = health.held / health.read if health.read else 0.0
    if limits.quarantined is not None and share > limits.quarantined:
        yield f"{path}: {health.held:,} values quarantined of {health.read:,} rows, {_percent(share)} of them"
    before, after = health.before, health.after
    if before is None or after is None or not before.rows:
        return
    moved = (after.rows - before.rows) / before.rows
    if limits.rows is not None and abs(moved) > limits.rows:
        yield f"{path}: {before.rows:,} rows before, {after.rows:,} after ({moved:+.1%})"
    if limits.nulls is not None:
        yield from _nulls(path, before, after, limits.nulls)


def _nulls(path: str, before: Measure, after: Measure, limit: float) -> Iterator[str]:
    for column in sorted(before.nulls.keys() & after.nulls.keys()):
        was, now = (100 * m.nulls[column] / m.rows if m.rows else 0.0 for m in (before, after))
        if now - was > limit:
            yield f"{path}.{column}: NULL in {now:.1f} % of the rows, {was:.1f} % before"


def halt_reasons(members: Sequence[Member], limits: Gates) -> tuple[str, ...]:
    """Return why a wave of these connections does not go on: nothing if it may."""
    out = [f"{m.connection}: {text}" for m in members if not m.accepted for text in m.findings]
    failed = [m for m in members if m.status == "failed"]
    if failed and limits.failed is not None and len(failed) > _allowed(limits.failed, len(members)):
        first = failed[0]
        more = f", as {len(failed) - 1} more" if len(failed) > 1 else ""
        out.insert(0, f"the run of {first.connection} failed{more}: {first.error}")
    return tuple(out)


def _allowed(limit: float, of: int) -> float:
    return limit if limit >= 1 else limit * of


def _amount(limit: float) -> str:
    return f"{limit:g}" if limit >= 1 else _percent(limit)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
