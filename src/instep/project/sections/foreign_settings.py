"""Settings of other products for a whole connection, as presets and modifiers of ours."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from instep.errors import SchemaError
from instep.schema.policy.policy import Backfill
from instep.schema.policy.presets import preset_named

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
"""How long a detection is fresh where the four words are used: their product looks once a day."""
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


def _backfill(value: Any) -> Any:
    return {"enabled": "column", "new_columns": "column", "disabled": "none"}.get(value, value)


Propagation = Annotated[str, AfterValidator(_propagation)]
Backfilled = Annotated[
    Backfill,
    BeforeValidator(
        _backfill, json_schema_input_type=Literal["none", "column", "table", "enabled", "disabled", "new_columns"]
    ),
]


def is_word(text: str) -> bool:
    """Return whether `policy:` may say this without a policy of that name: a preset, under any name."""
    try:
        return bool(preset_named(text))
    except SchemaError:
        return False
