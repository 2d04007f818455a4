"""Fields of a setup form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class FormField:
    """`kind` is text, password, hidden, dropdown, toggle or upload. `visible_when` names the field and the value with
    which it is shown."""

    kind = "text"

    def __init__(
        self,
        name: str,
        label: str,
        *,
        description: str | None = None,
        required: bool = False,
        placeholder: str | None = None,
        default: Any = None,
        visible_when: Any = None,
    ) -> None:
        if not name or not isinstance(name, str):
            raise ValueError("a form field needs a name")
        self.name, self.label, self.required = name, label, bool(required)
        self.description, self.placeholder = description or "", placeholder or ""
        self.default, self.visible_when = default, visible_when

    def document(self) -> dict[str, Any]:
        document = {"name": self.name, "label": self.label, "kind": self.kind, "required": self.required}
        more = {
            "description": self.description,
            "placeholder": self.placeholder,
            "default": self.default,
            "visible_when": self.visible_when,
        }
        return {**document, **{key: value for key, value in more.items() if value not in (None, "")}}


class TextField(FormField):
    """A line of text; what a `password` field holds is never shown."""

    plain_text = PlainText = "text"
    password = Password = "password"
    hidden = Hidden = "hidden"

    def __init__(self, name: str, label: str, field_type: str = "text", **more: Any) -> None:
        super().__init__(name, label, **more)
        self.kind = field_type


class DropdownFieldParam:
    def __init__(self, value: Any, label: str | None = None, description: str | None = None) -> None:
        self.value, self.description = str(value), description or ""
        self.label = label or self.value

    def document(self) -> dict[str, str]:
        return {"value": self.value, "label": self.label, "description": self.description}


class DropdownField(FormField):
    """One of several values, given as `fields` or as plain `values`."""

    kind = "dropdown"

    def __init__(
        self, name: str, label: str, fields: Iterable[Any] = (), values: Iterable[Any] = (), **more: Any
    ) -> None:
        super().__init__(name, label, **more)
        self.fields = [_param(value) for value in (*fields, *values)]
        if not self.fields:
            raise ValueError(f"form field {name}: a dropdown needs values")

    def document(self) -> dict[str, Any]:
        return {**super().document(), "values": [f.document() for f in self.fields]}


class DescriptiveDropdownField(DropdownField):
    pass


class ToggleField(FormField):
    kind = "toggle"


class UploadField(FormField):
    kind = "upload"


def _param(value: Any) -> DropdownFieldParam:
    if isinstance(value, DropdownFieldParam):
        return value
    return DropdownFieldParam(**value) if isinstance(value, Mapping) else DropdownFieldParam(value)
