"""Configuration of a connector: its code, its inputs, and its limits.

What a connector was given and must not be read in its texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from instep.logs import clean
from instep.project.sections.sources import ConnectorSourceSection
from instep.redaction import Redactor, hide, is_harmless, is_plain, is_referenced, names_secret, secrets_in
from instep.schema.selection.selection import patterns

MIB = 1 << 20


class ConnectorConfig(ConnectorSourceSection):
    """A connector's folder (the one with `connector.py`) and what it is given, which may be secret."""

    type: Literal["connector"] = "connector"
    name: str = "connector"
    """Name of the connection."""

    def is_lenient(self, table: str) -> bool:
        """Return whether invalid values of the table (`name` or `schema.name`) are kept as texts."""
        return any(p.matches(table) for p in patterns(self.keep_invalid_values))


class Hidden:
    """The secrets of one connector: values of its configuration and environment, and what its states keep under names
    of secrets. What is called like a secret is hidden in every text of this process, the rest in the connector's own
    texts alone: a value may as well be the name of a table."""

    def __init__(self, settings: Iterable[tuple[str, str]]) -> None:
        """Hide the secrets among `settings`, (name, value) pairs."""
        self._given: list[tuple[str, str]] = []
        self.note_given(settings)
        self._states: tuple[Mapping[str, Any], ...] = ()
        self._of_states: tuple[tuple[Mapping[str, Any], ...], Redactor] = ((), Redactor())

    def note_given(self, settings: Iterable[tuple[str, str]]) -> None:
        """Hide the secrets among these values, too, from now on."""
        self._given += settings
        hide(*(value for name, value in self._given if names_secret(name) and not is_harmless(value)))
        self._own = Redactor(*(value for name, value in self._given if _is_secret(name, value)))

    def note_state(self, state: Mapping[str, Any]) -> None:
        """Hide the tokens that a connector keeps for its next sync: those of its first state and of the last two."""
        self._states = (*self._states[:1], *self._states[1:][-1:], state)

    def clean(self, text: str) -> str:
        """Return a text of the connector's, fit to be logged, stored and shown."""
        states, (known_states, redactor) = self._states, self._of_states
        if known_states is not states:  # states come often, texts do not
            redactor = Redactor(*(s for state in states for s in secrets_in(state, named_only=True)))
            self._of_states = (states, redactor)
        return clean(redactor.clean(self._own.clean(text)))


def _is_secret(name: str, value: str) -> bool:
    if is_harmless(value):
        return False
    return names_secret(name) or is_referenced(value) or not is_plain(value)
