"""The setup form of a connector, and the tests that it offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .form_field import FormField
from .test import Test

SetupTest = Callable[[dict[str, Any]], Any]


class ConfigurationForm:
    def __init__(self) -> None:
        self._fields: list[FormField] = []
        self._tests: list[tuple[str, SetupTest]] = []

    def add_field(self, field: FormField) -> ConfigurationForm:
        if not isinstance(field, FormField):
            raise TypeError("field must be a form_field, such as form_field.TextField(...)")
        if any(f.name == field.name for f in self._fields):
            raise ValueError(f"the form has two fields {field.name}")
        self._fields.append(field)
        return self

    def add_test(self, func: SetupTest, label: str | None = None) -> ConfigurationForm:
        if not callable(func):
            raise TypeError("add_test() takes a function of the configuration")
        self._tests.append((label or func.__name__, func))
        return self

    def document(self) -> dict[str, Any]:
        return {"fields": [f.document() for f in self._fields], "tests": [label for label, _ in self._tests]}

    def outcomes(self, configuration: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run every test: (label, ok, message) each."""
        return [{"label": label, **_outcome(test, dict(configuration))} for label, test in self._tests]


def _outcome(test: SetupTest, configuration: dict[str, Any]) -> dict[str, Any]:
    try:
        result = test(configuration)
    except Exception as error:
        return {"ok": False, "message": f"{type(error).__name__}: {error}"}
    if isinstance(result, Test):
        return {"ok": result.ok, "message": result.message}
    return {"ok": bool(result), "message": ""}
