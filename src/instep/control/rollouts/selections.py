"""Tables and columns switched on, off or hashed over many connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from instep.control.rollouts.patch import CompatibilityLine
from instep.control.selection.selections import (
    WORDS,
    SwitchedConnection,
    SwitchTarget,
    place_of,
    steps,
    switch,
    targets,
)
from instep.control.selection.selections import SwitchStep as Turn
from instep.errors import InstepError
from instep.events import SelectionChanged
from instep.operations.values import Verb
from instep.project.project import Project
from instep.schema.selection.overrides import Switch
from instep.schema.selection.selection import column_is_on, hashed, is_on
from instep.store.store import Store

_FIELDS = ("schema", "table", "column", "enabled", "hashed", "table_id", "column_id", "identity", "listed_off")

NO_SUCH_OBJECT = "its source has no such object"
"""Reason for which nothing is to be switched off."""


@dataclass(frozen=True)
class SelectionPatch:
    """Switches for the connections of a rollout."""

    project: Project
    store: Store
    turns: tuple[tuple[Verb, str], ...]
    """Switches in order: (on, off, hash or unhash; schema, schema.table or schema.table.column)."""

    @property
    def text(self) -> str:
        return ", ".join(f"{path} {WORDS[verb]}" for verb, path in self.turns)

    def to_dict(self) -> dict[str, Any]:
        return {"selection": [list(turn) for turn in self.turns]}

    def line(self, connection: str) -> CompatibilityLine:
        place = place_of(self.project, self.store, connection)
        if not place.known.tables:
            return CompatibilityLine("conflict", "nothing is known of its source yet: detect it first")
        try:
            turned = self._steps(place)
        except InstepError as error:
            return CompatibilityLine("conflict", f"{error.message}; {error.hint}".rstrip("; "))
        if all(_stands(place, step) for step in turned):
            return CompatibilityLine("already", f"{self.text} already" if turned else NO_SUCH_OBJECT)
        if pause := self.store.pauses.connection(connection):
            return CompatibilityLine("undecided", f"it is paused: {pause.reason}")
        return CompatibilityLine("applies", _texts(turned))

    def _steps(self, place: SwitchedConnection) -> list[Turn]:
        """Return each verb over its objects; what there is not needs no switching off. Raises InstepError for any other
        name that there is not, Blocked for what instep.yml says otherwise."""
        there = {p for t in place.known.tables for p in (t.schema, t.path, *(f"{t.path}.{c.name}" for c in t.live))}
        there |= {s.path for s in self.store.switches.of(place.connection) if s.is_chosen}
        turns = [(verb, path) for verb, path in self.turns if verb != "off" or path in there]
        return [step for verb, path in turns for step in steps(place, verb, targets(place, [path], []))]

    def apply(self, connection: str, who: str) -> Mapping[str, Any]:
        place = place_of(self.project, self.store, connection)
        turned = self._steps(place)
        switches = {s.path: s for s in self.store.switches.of(connection)}
        before = [
            [step.verb, step.target.path, _data(switches.get(step.target.path)), _stands(place, step)]
            for step in turned
        ]
        switch(place, turned, who)
        return {"switches": before}

    def undone_by(self, connection: str, before: Mapping[str, Any]) -> str:
        return ""

    def take_back(self, connection: str, before: Mapping[str, Any], who: str) -> None:
        """Switch back what the patch has switched, and switch off what was not read before: it is accepted by now, and
        would be read on. Nothing that was loaded goes."""
        place = place_of(self.project, self.store, connection)
        for verb, path, was, existed in reversed(before["switches"]):
            self._put_back(connection, path, was, off=verb == "on" and not existed, who=who)
            self.store.events.add(SelectionChanged(connection, path, "as before", who))
            if verb in ("hash", "unhash"):
                self._read_again(place, path)

    def _put_back(self, connection: str, path: str, was: Mapping[str, Any] | None, *, off: bool, who: str) -> None:
        now = next((s for s in self.store.switches.of(connection) if s.path == path), None)
        back = Switch(**was) if was is not None else None
        if off and (chosen := back or now) and (back is None or back.enabled is None):
            back = replace(chosen, enabled=False)  # by now it is accepted: to be listed off holds nothing back
        if back is not None:
            self.store.switches.set(connection, [back], who)
        elif now is not None:
            self.store.switches.forget(connection, [now])

    def _read_again(self, place: SwitchedConnection, path: str) -> None:
        """Request a reload of a table whose rows were loaded hashed and are in clear afterwards, or the other way
        round."""
        table = next((t for t in place.accepted.tables if path.startswith(f"{t.path}.") and not t.retained), None)
        if table is not None:
            self.store.backfills.request(place.connection, table.ref, why=f"{path} is as before a rollout")


def _data(made: Switch | None) -> dict[str, Any] | None:
    return {name: getattr(made, name) for name in _FIELDS} if made else None


def _texts(turned: Sequence[Turn]) -> str:
    return "; ".join(f"{step.target.path}: {line}" for step in turned for line in step.lines)


def _stands(place: SwitchedConnection, step: Turn) -> bool:
    """Return whether it is so, by whatever made it so: what is on has to be accepted, too."""
    target, table = step.target, step.target.table
    if step.same and (step.verb != "on" or table is None):
        return True
    if table is None:
        return step.verb == "off" and target.schema in place.now.schemas_off
    on = _is_on(place, target)
    if step.verb in ("on", "off"):
        return on == (step.verb == "on") and (not on or _accepted(place, target))
    column = target.column
    return column is not None and hashed(place.now, table.ref, column.name) == (step.verb == "hash") and on


def _is_on(place: SwitchedConnection, target: SwitchTarget) -> bool:
    table, column = target.table, target.column
    if table is None or not is_on(place.now, table)[0]:
        return False
    return column is None or column_is_on(place.now, table, column)[0]


def _accepted(place: SwitchedConnection, target: SwitchTarget) -> bool:
    table = place.accepted.get(target.table.ref) if target.table else None
    if table is None or table.retained:
        return False
    column = table.by_name.get(target.column.name) if target.column else None
    return target.column is None or (column is not None and not column.retained)
