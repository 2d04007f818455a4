"""The presets as one table: the action of each for each kind of change. Adding a preset adds a column.

A cell is an action, the modifiers that come with it, and an effect: what the action means for that kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from instep.errors import SchemaError
from instep.suggest import did_you_mean

Action = Literal["apply", "review", "ignore", "pause_table", "pause_connection"]
ACTIONS: tuple[Action, ...] = ("apply", "review", "ignore", "pause_table", "pause_connection")
Effect = Literal["", "off", "pending", "missing", "kept", "nullable", "generation", "recorded", "error", "waiting"]


@dataclass(frozen=True)
class PresetCell:
    """One cell."""

    action: Action
    effect: Effect = ""
    """Empty where the kind and the action say it all (see `effect_of`)."""
    modifiers: Mapping[str, Any] = field(default_factory=dict)


APPLY, REVIEW, IGNORE = PresetCell("apply"), PresetCell("review"), PresetCell("ignore")
RETAIN, DROP = PresetCell("apply", modifiers={"removed": "retain"}), PresetCell("apply", modifiers={"removed": "drop"})
HOLD = PresetCell("review", modifiers={"on_invalid_value": "quarantine"})
KEEP = PresetCell("ignore", modifiers={"on_invalid_value": "null"})
PENDING = PresetCell("ignore", "pending")
TABLE, STOP = PresetCell("pause_table"), PresetCell("pause_connection")

PRESETS = ("allow_all", "allow_columns", "block_all", "propagate_all", "propagate_columns", "approve", "stop")
PRESET_TEXTS: Mapping[str, str] = {
    "allow_all": "new tables and columns are added automatically; what the source removes stays at the destination",
    "allow_columns": "new columns are added automatically, new tables are not; what the source removes stays",
    "block_all": "new tables and columns are left out, renames wait for a review; what the source removes stays",
    "propagate_all": "new tables, new columns and renames are applied, and removed columns are dropped",
    "propagate_columns": "changes of columns are applied, and removed columns dropped; new tables are left pending",
    "approve": "every change of tables, columns and types waits for a person",
    "stop": "every change of tables, columns and types pauses the connection",
}
"""Each preset in one line."""
DEFAULT_PRESET = "allow_all"
SUSPECTED = "rename.suspected"
"""Not a kind of change: a removal and an addition that look like one rename. `apply` leaves both as decided."""

TABLE_OF_PRESETS: Mapping[str, tuple[PresetCell, ...]] = {
    "schema.added table.added": (APPLY, IGNORE, IGNORE, APPLY, PENDING, REVIEW, STOP),
    "column.added": (APPLY, APPLY, IGNORE, APPLY, APPLY, REVIEW, STOP),
    "column.removed": (RETAIN, RETAIN, RETAIN, DROP, DROP, REVIEW, STOP),
    "schema.removed table.removed": (RETAIN, RETAIN, RETAIN, RETAIN, IGNORE, REVIEW, STOP),
    "column.renamed": (APPLY, APPLY, REVIEW, APPLY, APPLY, REVIEW, STOP),
    "table.renamed": (APPLY, APPLY, REVIEW, APPLY, IGNORE, REVIEW, STOP),
    "column.widened": (APPLY, APPLY, APPLY, APPLY, APPLY, REVIEW, STOP),
    "column.narrowed": (IGNORE, IGNORE, IGNORE, IGNORE, IGNORE, REVIEW, STOP),
    "column.retyped": (HOLD, HOLD, HOLD, KEEP, KEEP, REVIEW, STOP),
    "column.nullability": (APPLY, APPLY, APPLY, APPLY, APPLY, REVIEW, STOP),
    "column.default column.comment table.comment column.reordered": (APPLY,) * 7,
    "key.removed cursor.removed": (TABLE, TABLE, TABLE, STOP, STOP, STOP, STOP),
    "key.changed cursor.changed": (TABLE, TABLE, TABLE, STOP, STOP, STOP, STOP),
    "table.replaced": (APPLY, APPLY, REVIEW, APPLY, APPLY, REVIEW, STOP),
    "destination.drifted name.collided": (REVIEW, REVIEW, REVIEW, REVIEW, REVIEW, REVIEW, STOP),
    "access.lost": (IGNORE,) * 7,
    SUSPECTED: (APPLY, APPLY, REVIEW, APPLY, APPLY, REVIEW, APPLY),
}
_CELLS = {
    (kind, preset): choice
    for kinds, row in TABLE_OF_PRESETS.items()
    for kind in kinds.split()
    for preset, choice in zip(PRESETS, row, strict=True)
}
KINDS: tuple[str, ...] = tuple(kind for kinds in TABLE_OF_PRESETS if kinds != SUSPECTED for kind in kinds.split())

_EFFECTS: Mapping[tuple[str, Action], Effect] = {
    **{(k, "ignore"): "off" for k in ("schema.added", "table.added", "column.added")},
    **{(k, "ignore"): "missing" for k in ("schema.removed", "table.removed")},
    **{(k, "ignore"): "kept" for k in ("column.narrowed", "column.retyped")},
    **{(k, "apply"): "recorded" for k in ("column.default", "column.comment", "table.comment", "column.reordered")},
    ("column.nullability", "apply"): "nullable",
    ("table.replaced", "apply"): "generation",
    ("access.lost", "ignore"): "error",
}

_ALIASES: Mapping[str, str] = {
    "propagate all": "propagate_all",
    "propagate all field and stream changes": "propagate_all",
    "propagate fully": "propagate_all",
    "propagate field changes only": "propagate_columns",
    "approve all changes myself": "approve",
    "ignore": "approve",
    "stop future syncs": "stop",
    "disable": "stop",
    "disable connection": "stop",
}


def effect_of(kind: str, action: Action) -> Effect:
    """Return the effect of `action` for this kind, beyond the action itself."""
    return _EFFECTS.get((kind, action), "")


def choice(kind: str, preset: str) -> PresetCell:
    """Return the cell of the table. `preset` may be an alias; raises SchemaError for an unknown preset or kind."""
    cell = _CELLS.get((kind, preset)) or _CELLS.get((kind, preset_named(preset)))
    if cell is None:
        raise unknown("kind of change", kind, KINDS)
    return cell


def preset_named(text: str) -> str:
    """Return the preset of that name or of a name that other products use (`ALLOW_ALL`, `propagate field changes
    only`)."""
    words = re.sub(r"[\s_-]+", " ", text.strip().casefold())
    name = _ALIASES.get(words, words.replace(" ", "_"))
    if name not in PRESETS:
        raise unknown("preset", text, PRESETS)
    return name


def unknown(what: str, text: str, words: tuple[str, ...]) -> SchemaError:
    """Return the error for a word that is none of `words`, with the nearest one as the next step."""
    hint = did_you_mean(text, words, f"one of: {', '.join(words)}", form="did you mean {!r}?")
    return SchemaError(f"unknown {what} {text!r}", hint=hint)
