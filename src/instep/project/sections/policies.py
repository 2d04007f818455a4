"""Policies in the project file, and their translation to `instep.schema.policy.policy`.

Settings of other products for a whole connection, as presets and modifiers of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from instep.errors import SchemaError
from instep.project.sections.values import Patterns, Section, Words
from instep.schema.policy.policy import Action, Backfill, InvalidValue, Modifiers, Override, Policy, Removed, Rule
from instep.schema.policy.presets import preset_named

_MODIFIERS = ("backfill", "removed", "on_invalid_value", "rename_threshold")


def _preset(value: str) -> str:
    try:
        return preset_named(value) if value else ""
    except SchemaError as error:
        raise _as_problem(error) from None


def _kinds(value: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Rule(on=value, decide="apply")
    except SchemaError as error:
        raise _as_problem(error) from None
    return value


def _as_problem(error: SchemaError) -> PydanticCustomError:
    return PydanticCustomError("policy", "{text}", {"text": f"{error.message}; {error.hint}"})


def _backfill(value: Any) -> Any:
    """Accept `new_columns` for `column` where the change is an added column."""
    return "column" if value == "new_columns" else value


class ModifierSection(Section):
    """Modifiers of an action; unset ones come from the policy or preset."""

    backfill: Annotated[Backfill, BeforeValidator(_backfill)] | None = None
    removed: Removed | None = None
    on_invalid_value: InvalidValue | None = None
    rename_threshold: Annotated[float, Field(ge=0, le=1)] | None = None

    def modifiers(self) -> Mapping[str, Any]:
        values = {name: getattr(self, name) for name in _MODIFIERS}
        return {name: value for name, value in values.items() if value is not None}


class RuleSection(ModifierSection):
    """The first rule that matches decides. `on`: kinds, families or globs; `match`: names of tables or columns."""

    on: Annotated[Words, Field(min_length=1), AfterValidator(_kinds)]
    decide: Action
    match: Patterns = ()
    tags: Words = ()

    def rule(self) -> Rule:
        return Rule(self.on, self.decide, self.match, self.tags, self.modifiers())


class OverrideSection(ModifierSection):
    """Settings that differ for some tables."""

    preset: Annotated[str, AfterValidator(_preset)] = ""
    rules: tuple[RuleSection, ...] = ()

    def override(self, match: str) -> Override | None:
        """Return the override; None if nothing differs."""
        if not (self.preset or self.rules or self.modifiers()):
            return None
        return Override(match, self.preset, tuple(rule.rule() for rule in self.rules), self.modifiers())


class PolicySection(OverrideSection):
    """Ordered rules over a preset."""

    preset: Annotated[str, AfterValidator(_preset)] = "allow_all"


def to_policy(
    name: str, section: PolicySection | None, tables: Mapping[str, OverrideSection], options: tuple[Rule, ...] = ()
) -> Policy:
    """Return the policy of a connection: the named one (None: the default preset) with the tables' overrides. `options`
    are rules that other settings were translated to; they come after the policy's own."""
    section = section or PolicySection()
    overrides = tuple(override for pattern, table in tables.items() if (override := table.override(pattern)))
    rules = tuple(rule.rule() for rule in section.rules)
    return Policy(name, section.preset, (*rules, *options), overrides, section.modifiers())


Handling = Literal["ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL"]
PROPAGATION = (
    "Propagate field changes only",
    "Propagate all field and stream changes",
    "Approve all changes myself",
    "Stop future syncs",
)
API_WORDS = ("propagate_columns", "propagate_fully", "ignore", "disable", "disable_connection")
CHOOSERS = ("policy", "schema_change_handling", "detect_and_propagate_schema_changes")
"""The keys of a connection that say what happens to changes; one of them at most."""
DAY = 86_400.0
"""Seconds that a detection is fresh where the four words are used: their product looks once a day."""
_PRESETS = ("propagate_columns", "propagate_all", "approve", "stop")


def _propagation(value: str) -> str:
    """Return the preset of one of the four words, or of the word that the interface for programs has for it."""
    if not value:
        return value
    try:
        preset = preset_named(value)
    except SchemaError:
        preset = ""
    if preset not in _PRESETS:
        words = ", ".join(repr(word) for word in (*PROPAGATION, *API_WORDS))
        raise PydanticCustomError("word", "{text}", {"text": f"must be one of {words}"})
    return preset


def _foreign_backfill(value: Any) -> Any:
    return {"enabled": "column", "new_columns": "column", "disabled": "none"}.get(value, value)


Propagation = Annotated[str, AfterValidator(_propagation)]
Backfilled = Annotated[
    Backfill,
    BeforeValidator(
        _foreign_backfill,
        json_schema_input_type=Literal["none", "column", "table", "enabled", "disabled", "new_columns"],
    ),
]


def is_word(text: str) -> bool:
    """Return whether `policy:` may say this without a policy of that name: a preset, under any name."""
    try:
        return bool(preset_named(text))
    except SchemaError:
        return False


__all__ = ["Modifiers", "OverrideSection", "PolicySection", "RuleSection", "to_policy"]
