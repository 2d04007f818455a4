"""One scenario under one preset, run for real, and what a person would see of it afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from changes.scenarios import Scenario
from contract.sources import SOURCES
from instep.errors import InstepError
from instep.model import Review
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Table
from instep.schema.policy.presets import effect_of
from sync_world import PREFIX, World, preset

OURS = ("other", "o", "o1")
QUIET = ("run.started", "run.ended", "table.loaded")
EFFECTS: Mapping[str, str] = {
    "off": "listed off", "pending": "listed off, pending", "missing": "skipped as missing", "kept": "type kept",
    "nullable": "as nullable", "generation": "new generation", "recorded": "recorded", "error": "table in error",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A row of the page: what was decided, the lake's columns, what became of the rows, what was recorded."""

    decision: str
    columns: str
    untouched: str
    updated: str
    deleted: str
    new: str
    events: str

    def cells(self) -> tuple[str, ...]:
        return astuple(self)


def play(world: World, scenario: Scenario, name: str) -> Outcome:
    """Syncs, makes the change, syncs until it is believed, and tells what is there. Errors are part of the story."""
    source = world.case.kind
    world.policy = preset(name)
    if scenario.cursor:
        world.settings["t"] = TableSettings(cursor=scenario.cursor)
    world.restricted = bool(scenario.denied)
    world.run(*scenario.starts(source))
    _sync(world)
    before = _types(world)
    known = frozenset(r.id for r in world.store.reviews.find("shop", ()))
    last = max((e.number for e in world.store.events.after(0, connection="shop")), default=0)
    if scenario.denied:
        assert world.case.deny
        world.case.deny(scenario.denied)
    if scenario.lake:
        edit(world, scenario.lake)
    world.run(*scenario.change[source], *scenario.more)
    _sync(world)
    _sync(world)
    return _tell(world, scenario, before, known, last)


def edit(world: World, what: str) -> None:
    """Edit the destination as a person would: `drop COLUMN`."""
    verb, column = what.split()
    assert verb == "drop"
    table = world.destination.lake.load(("shop", "t"))
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(column)


def _sync(world: World) -> str:
    try:
        return world.sync().status
    except InstepError as error:
        return type(error).__name__


def _tell(world: World, scenario: Scenario, before: Mapping[str, str], known: frozenset[str], last: int) -> Outcome:
    kinds = scenario.kinds[world.case.kind]
    found = [r for r in world.store.reviews.find("shop", ()) if r.kind in kinds and r.id not in known]
    rows = _rows(world)
    return Outcome(
        "; ".join(_decision(r, several=len(kinds) > 1) for r in sorted(found, key=lambda r: kinds.index(r.kind))),
        _columns(world, before),
        *(_row(rows, number) for number in (1, 2, 3, 4)),
        ", ".join(_events(world, last)),
    )


def _decision(review: Review, *, several: bool) -> str:
    effect = effect_of(review.kind, review.action)  # type: ignore[arg-type]
    removed = review.modifiers.get("removed", "retain") if review.kind.endswith(".removed") else ""
    parts = [review.action, EFFECTS.get(effect, ""), removed if review.action == "apply" else ""]
    text = ": ".join([parts[0], ", ".join(filter(None, parts[1:]))]) if any(parts[1:]) else parts[0]
    return f"{review.kind}: {text}" if several else text


def _types(world: World) -> dict[str, str]:
    return {f"{t.alias}.{c.alias}": str(c.type) for t in world.store.accepted.catalog("shop").tables for c in t.columns}


def _columns(world: World, before: Mapping[str, str]) -> str:
    """The lake's tables with their columns: `~` for what is kept after its removal, a type where it is another one."""
    told = []
    for table in _loaded(world):
        names = []
        for column in table.columns:
            kept, now = "~" if column.retained else "", str(column.type)
            was = before.get(f"{table.alias}.{column.alias}", now)
            names.append(f"{column.alias}{kept}{f' {now}' if was != now else ''}")
        told.append(f"{table.alias}{'~' if table.retained else ''}({', '.join(names)})")
    return "; ".join(told)


def _loaded(world: World) -> list[Table]:
    tables = world.store.accepted.catalog("shop").tables
    return [t for t in tables if t.name not in OURS and world.destination.schema.state(("shop", t.alias)) is not None]


def _rows(world: World) -> dict[int, list[str]]:
    """The lake's rows by number; with their table's name where there are several."""
    found: dict[int, list[str]] = {}
    tables = _loaded(world)
    for table in tables:
        for row in world.destination.write.read(("shop", table.alias)).read_all().to_pylist():
            gone = " deleted" if row.get(f"{PREFIX}deleted") else ""
            values = ", ".join(_value(v) for n, v in row.items() if not n.startswith(PREFIX))
            told = f"{table.alias}({values})" if len(tables) > 1 else values
            found.setdefault(_number(row), []).append(f"{told}{gone}")
    return found


def _number(row: Mapping[str, Any]) -> int:
    """1 to 4: which of the scenario's rows it is."""
    if row.get("id") is not None:
        return int(row["id"])
    return int(row["b"]) // 100


def _value(value: Any) -> str:
    return "NULL" if value is None else str(value)


def _row(rows: Mapping[int, Iterable[str]], number: int) -> str:
    return "; ".join(sorted(rows.get(number, ())))


def _events(world: World, last: int) -> list[str]:
    found = (e.event.type for e in world.store.events.after(last, connection="shop"))
    return list(dict.fromkeys(t for t in found if t not in QUIET))


__all__ = ["SOURCES", "Outcome", "play"]
