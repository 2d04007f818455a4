"""The decision about a change: ordered rules over a preset, per-table overrides, and the answer of a person.

Precedence: an explicit choice of a person, then the table's override, then the first rule that matches, then
the preset. A decision carries the rule that made it and why, in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, get_args

from instep.errors import SchemaError
from instep.schema.catalog.globs import fits_glob
from instep.schema.catalog.regex import expression
from instep.schema.changes.describe import (
    Change,
    ColumnRenamed,
    KeyChanged,
    SchemaAdded,
    SchemaRemoved,
    TableRenamed,
    TableReplaced,
    column_of,
    family,
    table_of,
)
from instep.schema.policy.presets import (
    ACTIONS,
    DEFAULT_PRESET,
    KINDS,
    PRESETS,
    Action,
    Effect,
    PresetCell,
    choice,
    effect_of,
    preset_named,
    unknown,
)

Backfill = Literal["none", "column", "table"]
Removed = Literal["retain", "drop"]
InvalidValue = Literal["quarantine", "null", "fail"]
Explicit = Literal["on", "off", "hashed", "mapped", "typed", "approved", "rejected"]
TYPES = "types"
"""`Decision.rule` where the project file chooses the column's type."""
OPTION = "option "
"""The beginning of `Decision.rule` where a setting decided that was translated to a rule."""

_WORDS: Mapping[str, tuple[str, ...]] = {
    "backfill": get_args(Backfill),
    "removed": get_args(Removed),
    "on_invalid_value": get_args(InvalidValue),
}


@dataclass(frozen=True)
class Modifiers:
    """Modifiers of an action."""

    backfill: Backfill = "none"
    removed: Removed = "retain"
    on_invalid_value: InvalidValue = "quarantine"
    rename_threshold: float = 0.8
    """(0 to 1) is how similar a removed and an added column without ids must be to be suspected of being one renamed
    column."""

    def with_changes(self, changes: Mapping[str, Any]) -> Modifiers:
        """Return the modifiers with `changes` applied; raises SchemaError for an unknown modifier or word."""
        names = tuple(f.name for f in fields(self))
        for name, value in changes.items():
            if name not in names:
                raise unknown("modifier", name, names)
            if name in _WORDS and value not in _WORDS[name]:
                raise unknown(f"{name} setting", str(value), _WORDS[name])
            if name == "rename_threshold" and not 0 <= value <= 1:
                raise SchemaError(f"rename_threshold is {value}", hint="use a number from 0 to 1")
        return replace(self, **changes)


@dataclass(frozen=True)
class Mismatch:
    """Reason why a rule does not match a change: which part of it (`kind`, `schema`, `table`, `column` or `tag`), in
    words."""

    part: str
    why: str


@dataclass(frozen=True)
class Rule:
    """A rule of a policy."""

    on: tuple[str, ...]
    """Kinds (`column.added`), families (`column`) or globs (`*.removed`)."""
    decide: Action
    match: tuple[str, ...] = ()
    """Globs or `re:` patterns on `schema.table` or `schema.table.column`; none matches all."""
    tags: tuple[str, ...] = ()
    """All of them must be on the connection."""
    modifiers: Mapping[str, Any] = field(default_factory=dict)
    option: str = ""
    """The setting that this rule was translated from, by name, and `origin` its path in the project file."""
    origin: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.decide not in ACTIONS:
            raise unknown("action", self.decide, ACTIONS)
        for pattern in self.on:
            if not any(_is_kind(pattern, kind) for kind in KINDS):
                raise unknown("kind of change", pattern, KINDS)
        check_patterns(self.match)
        Modifiers().with_changes(self.modifiers)

    def matches(self, change: Change, tags: Collection[str] = ()) -> bool:
        return self._has_kind(change) and self._has_name(change) and not self._absent(tags)

    def misses(self, change: Change, tags: Collection[str] = ()) -> Iterator[Mismatch]:
        """Yield all that keeps this rule from deciding about `change`; nothing if it matches."""
        if not self._has_kind(change):
            yield Mismatch("kind", f"it is about {', '.join(self.on)}")
        if not self._has_name(change):
            yield Mismatch(_named_by(change), f"{', '.join(self.match)} does not name {' or '.join(_paths(change))}")
        if absent := self._absent(tags):
            yield Mismatch("tag", f"the connection has no tag {', '.join(absent)}")

    def _has_kind(self, change: Change) -> bool:
        return any(_is_kind(pattern, change.kind) or pattern == family(change) for pattern in self.on)

    def _has_name(self, change: Change) -> bool:
        return not self.match or any(names(pattern, change) for pattern in self.match)

    def _absent(self, tags: Collection[str]) -> list[str]:
        return [tag for tag in self.tags if tag not in tags]

    def __str__(self) -> str:
        """Return the rule as the project file has it."""
        match = f", match: [{', '.join(map(_quoted, self.match))}]" if self.match else ""
        tags = f", tags: [{', '.join(map(_quoted, self.tags))}]" if self.tags else ""
        more = "".join(f", {name}: {_quoted(value)}" for name, value in self.modifiers.items())
        return f"{{on: [{', '.join(map(_quoted, self.on))}]{match}{tags}, decide: {self.decide}{more}}}"


@dataclass(frozen=True)
class Override:
    """Override for the tables that `match` names: rules of their own first, then a preset of their own."""

    match: str
    preset: str = ""
    rules: tuple[Rule, ...] = ()
    modifiers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_patterns((self.match,))
        Modifiers().with_changes(self.modifiers)
        if self.preset:
            object.__setattr__(self, "preset", preset_named(self.preset))


@dataclass(frozen=True)
class Policy:
    """`name` is how people call it, `modifiers` what is set for the whole policy; `preset` may be given by an alias."""

    name: str = ""
    preset: str = DEFAULT_PRESET
    rules: tuple[Rule, ...] = ()
    overrides: tuple[Override, ...] = ()
    modifiers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "preset", preset_named(self.preset))
        Modifiers().with_changes(self.modifiers)


@dataclass(frozen=True)
class Decision:
    """Decision on `change`; `rule` names who decided (`rule 2 of policy careful`, `preset allow_all`,
    `selection`, `review`), `why` says it as a sentence, `effect` is what the action means for this kind."""

    change: Change
    action: Action
    rule: str
    why: str
    modifiers: Modifiers = Modifiers()
    effect: Effect = ""

    @property
    def applied(self) -> bool:
        return self.action == "apply"

    @property
    def by_person(self) -> bool:
        """A person has said so, in a review or by selecting: no safeguard overrules it."""
        return self.rule in ("review", "selection")

    @property
    def pauses(self) -> bool:
        return self.action in ("pause_table", "pause_connection")

    @property
    def needs_review(self) -> bool:
        """A pause always opens a review."""
        return self.action == "review" or self.pauses


Level = Literal["person", "override", "policy", "preset"]


class RuleEvaluation(NamedTuple):
    """Evaluation of a change by one rule: `name` as in `Decision.rule`, the `level`, for an override what it
    `match`es, and for a rule its 1-based `number` and itself."""

    name: str
    level: Level
    match: str = ""
    number: int = 0
    rule: Rule | None = None
    misses: tuple[Mismatch, ...] = ()
    """Empty for the one that decided. A tuple: many are made."""


@dataclass(frozen=True)
class Trace:
    """A decision with how it came about: who was asked, in order, the last of whom decided, and who set each
    modifier (`default` where nobody did)."""

    decision: Decision
    evaluations: tuple[RuleEvaluation, ...]
    origins: Mapping[str, str]


def decide(change: Change, policy: Policy, *, explicit: Explicit | None = None, tags: Collection[str] = ()) -> Decision:
    """Return the decision about one change. `explicit` is what a person has said about this very object or change."""
    evaluation, pick = next((v, p) for v, p in _evaluations(change, policy, explicit, tags) if p is not None)
    return _decision(change, pick, evaluation.name, policy)


def trace(change: Change, policy: Policy, *, explicit: Explicit | None = None, tags: Collection[str] = ()) -> Trace:
    """Return the decision of `decide`, and why."""
    evaluations: list[RuleEvaluation] = []
    for evaluation, pick in _evaluations(change, policy, explicit, tags):
        if pick is not None:
            evaluations.append(evaluation)
            break
        misses = tuple(evaluation.rule.misses(change, tags)) if evaluation.rule else ()
        evaluations.append(evaluation._replace(misses=misses))
    assert pick is not None, "the preset decides every kind of change"
    origins = {f.name: "default" for f in fields(Modifiers)}
    origins |= {name: by for by, changes in _layers(change, policy, pick, evaluations[-1].name) for name in changes}
    return Trace(_decision(change, pick, evaluations[-1].name, policy), tuple(evaluations), origins)


def _decision(change: Change, pick: PresetCell, rule: str, policy: Policy) -> Decision:
    kind = _row(change)
    action: Action = "ignore" if kind == "access.lost" and pick.action == "apply" else pick.action
    effect = (pick.effect if action == pick.action else "") or effect_of(kind, action)
    modifiers = Modifiers()
    for _, changes in _layers(change, policy, pick, rule):
        modifiers = modifiers.with_changes(changes) if changes else modifiers
    return Decision(change, action, rule, f"{_WHY[action]}{_MEANS.get(effect, '')}", modifiers, effect)


def _layers(change: Change, policy: Policy, pick: PresetCell, rule: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the modifiers by layer, each over those before: preset, policy, override, what was picked."""
    override = override_of(change, policy)
    preset = (override and override.preset) or policy.preset
    yield f"preset {preset}", choice(_row(change), preset).modifiers
    yield f"policy {policy.name}".rstrip(), policy.modifiers
    if override:
        yield f"override {override.match}", override.modifiers
    yield rule, pick.modifiers


_WHY: Mapping[Action, str] = {
    "apply": "applied",
    "review": "waits for a review",
    "ignore": "not applied",
    "pause_table": "the table is paused until it is reviewed",
    "pause_connection": "the connection is paused until it is reviewed",
}
_MEANS: Mapping[Effect, str] = {
    "off": ": listed as switched off",
    "pending": ": listed as switched off and shown as pending",
    "missing": ": skipped with status missing, its data stays",
    "kept": ": the accepted type is kept",
    "nullable": " as nullable",
    "generation": " as a new generation of the table",
    "error": ": the table is in error, nothing is taken as removed",
}

LISTED_OFF = f"{_WHY['ignore']}: listed as switched off"
"""The beginning of `Decision.why` for an addition that is left out."""


def is_listed_off(why: str) -> bool:
    """Return whether a recorded `Decision.why` is that of an addition that is left out."""
    return why.startswith(LISTED_OFF)


def is_by_policy(why: str) -> bool:
    """Return whether a recorded `Decision.why` is what a policy says, not what holds a change back beside it."""
    return why.startswith((*_WHY.values(), "waits for"))


def _explicit(change: Change, explicit: Explicit | None) -> tuple[PresetCell, str] | None:
    """Return a person's choice: on and hashed answer additions, hashed and typed a new type, mapped renames, the
    others every change."""
    retyped = change.kind in ("column.widened", "column.narrowed", "column.retyped")
    added, renamed = change.kind.endswith(".added"), change.kind.endswith(".renamed")
    match explicit:
        case "approved":
            return PresetCell("apply"), "review"
        case "rejected":
            return PresetCell("ignore"), "review"
        case "off":
            return PresetCell("ignore"), "selection"
        case "on" | "hashed" if added:
            return PresetCell("apply"), "selection"
        case "hashed" if retyped:
            return PresetCell("apply"), "selection"
        case "typed" if retyped:
            return PresetCell("apply"), TYPES
        case "mapped" if renamed:
            return PresetCell("apply"), "selection"
    return None


def _evaluations(
    change: Change, policy: Policy, explicit: Explicit | None, tags: Collection[str]
) -> Iterator[tuple[RuleEvaluation, PresetCell | None]]:
    """Yield everybody who may decide, in order of precedence, with the decision of those who have one; the last
    always has. A person who approves or switches on agrees to what the policy would do: its modifiers hold."""
    if choice := _explicit(change, explicit):
        pick, name = choice
        if explicit in ("approved", "on", "hashed", "typed"):
            ruled = next(p for _, p in _ruled(change, policy, tags) if p is not None)
            pick = replace(pick, modifiers=ruled.modifiers)
        yield RuleEvaluation(name, "person"), pick
    yield from _ruled(change, policy, tags)


def _ruled(change: Change, policy: Policy, tags: Collection[str]) -> Iterator[tuple[RuleEvaluation, PresetCell | None]]:
    of = f" of policy {policy.name}" if policy.name else ""
    override = override_of(change, policy)
    if override:
        name = f"override {override.match}{of}"
        for number, rule in enumerate(override.rules, 1):
            evaluation = RuleEvaluation(f"rule {number} of {name}", "override", override.match, number, rule)
            yield evaluation, _picked(rule, change, tags)
        if override.preset:
            yield RuleEvaluation(name, "override", override.match), _cell(change, override.preset)
    for number, rule in enumerate(policy.rules, 1):
        name = f"{OPTION}{rule.option}" if rule.option else f"rule {number}{of}"
        yield RuleEvaluation(name, "policy", number=number, rule=rule), _picked(rule, change, tags)
    yield RuleEvaluation(f"preset {policy.preset}", "preset"), _cell(change, policy.preset)


def _picked(rule: Rule, change: Change, tags: Collection[str]) -> PresetCell | None:
    return PresetCell(rule.decide, modifiers=rule.modifiers) if rule.matches(change, tags) else None


def _cell(change: Change, preset: str) -> PresetCell:
    """Return the preset's action without its modifiers, which lie under those of the policy (see `_layers`)."""
    return replace(choice(_row(change), preset), modifiers={})


def _row(change: Change) -> str:
    """Return a replaced table whose key differs is a changed key; a key of the same columns in another order is
    none."""
    if isinstance(change, TableReplaced) and set(change.before.key) != set(change.after.key):
        return "key.changed"
    return "column.reordered" if is_reordered_key(change) else change.kind


def is_reordered_key(change: Change) -> bool:
    """Return whether a key has the columns that it had in another order: it tells the same rows apart."""
    if not isinstance(change, KeyChanged) or is_retyped_key(change):
        return False
    return bool(change.before) and set(change.before) == set(change.after)


def is_retyped_key(change: Change) -> bool:
    """Return whether a key has the columns that it had, with values of another type."""
    return isinstance(change, KeyChanged) and change.before == change.after


def override_of(change: Change, policy: Policy) -> Override | None:
    return next((o for o in policy.overrides if names(o.match, change)), None)


def _is_kind(pattern: str, kind: str) -> bool:
    return fits_glob(kind, pattern) or kind.partition(".")[0] == pattern


def names(pattern: str, change: Change) -> bool:
    """Return whether a pattern names the schema, table or column that a change is about, under its old or new name."""
    if pattern.startswith("re:"):
        return any(expression(pattern[3:]).search(path) for path in _paths(change))
    return any(fits_glob(path, pattern) for path in _paths(change))


def _named_by(change: Change) -> str:
    """Return the word for the object that a pattern has to name."""
    if isinstance(change, SchemaAdded | SchemaRemoved):
        return "schema"
    return "column" if column_of(change) else "table"


def _quoted(text: str | float) -> str:
    """Return the text as YAML wants it within brackets."""
    if not isinstance(text, str):
        return str(text)
    plain = re.fullmatch(r"[A-Za-z_][\w.-]*", text) and text.casefold() not in ("null", "true", "false")
    return text if plain else json.dumps(text, ensure_ascii=False)


def _paths(change: Change) -> list[str]:
    if isinstance(change, SchemaAdded | SchemaRemoved):
        return [change.name]
    if isinstance(change, TableRenamed):
        return [change.before.path, change.after.path]
    table = ".".join(filter(None, table_of(change) or ()))
    old = change.before.name if isinstance(change, ColumnRenamed) else ""
    return [table, *(f"{table}.{name}" for name in (column_of(change), old) if name)]


def check_patterns(patterns: Collection[str]) -> None:
    """Raise SchemaError for a regular expression that does not compile."""
    for pattern in patterns:
        if pattern.startswith("re:"):
            try:
                re.compile(pattern[3:])
            except re.error as error:
                raise SchemaError(f"pattern {pattern!r}: {error}", hint="correct the expression after 're:'") from None


__all__ = [
    "ACTIONS",
    "LISTED_OFF",
    "OPTION",
    "PRESETS",
    "Action",
    "Backfill",
    "Decision",
    "Effect",
    "Explicit",
    "InvalidValue",
    "Level",
    "Mismatch",
    "Modifiers",
    "Override",
    "Policy",
    "Removed",
    "Rule",
    "RuleEvaluation",
    "Trace",
    "check_patterns",
    "decide",
    "is_by_policy",
    "is_listed_off",
    "names",
    "override_of",
    "trace",
]
