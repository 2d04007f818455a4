"""Value types of the project file: what a field accepts, and how a reference stands in for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from instep.errors import SchemaError
from instep.project.text.references import Reference
from instep.redaction import SECRET_NAME
from instep.schema.catalog.regex import check_regex
from instep.schema.catalog.types import parse
from instep.schema.selection import selection

T = TypeVar("T")
_OPENS = (
    r"(?:[\w.-]{0,40}(?:passw(?:or)?d|pwd|passphrase|secret|token|credentials?|signature"
    r"|(?:secret|api|access|account|shared).?key)|sig)"
)
_SECRET_TEXT = re.compile(
    r"://[^/@\s:]*:[^/@\s]+@"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY|\"private_key\"\s{0,9}:"
    rf"|(?:[?&;]|^(?=[^\s;]*;)){_OPENS}=(?!\$\{{)[^&;\s]"
    r"|(?:^|\s)(?:password|passwd|pwd)\s?=\s?(?!\$\{)[^\s;]"
    r"|^(?:Bearer|Basic) [A-Za-z0-9+/=._~-]{8,}$",
    re.IGNORECASE,
)
"""The password of a URL, a private key, a secret among the options of a URL or of a connection string, the value of an
`Authorization` header. What `${...}` stands for is not in the text."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_LONGEST_DAYS = 36_500


class Section(BaseModel):
    """A mapping of the file. Unknown keys are errors; a key without a value counts as absent.

    Validation with a context notes which model read which mapping, so that messages can name near keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)
    files: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _note(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        if info.context is not None:
            info.context[id(data)] = cls
        if "on_invalid_value" in data and "on_invalid_value" in cls.model_fields and data["on_invalid_value"] is None:
            raise ValueError('on_invalid_value has no value: write quarantine, "null" (in quotes) or fail')
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}

    def document(self) -> dict[str, Any]:
        """Return the settings that were given, as a project file has them."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def __repr__(self) -> str:
        """Show keys only: values may be secret."""
        return f"{type(self).__name__}({', '.join(n for n in type(self).model_fields if n in self.model_fields_set)})"

    __str__ = __repr__

    @classmethod
    def resolved(cls, **values: Any) -> Self:
        """Return the section of values that hold no reference, but secrets themselves."""
        return cls.model_validate(values, context={"resolved": True})

    @classmethod
    def of(cls, section: Section, **more: Any) -> Self:
        """Return a resolved section as one of the class that works with it, with what no file says."""
        return cls.model_construct({*section.model_fields_set, *more}, **{**dict(section), **more})

    def local_paths(self) -> tuple[str, ...]:
        """Return the fields that hold paths, which are relative to the project's folder."""
        return self.files


class _Referable:
    """Accepts a well-formed reference in the place of the type; with `secret`, nothing else."""

    def __init__(self, kind: Any, secret: bool = False) -> None:
        self._kind, self._secret = kind, secret

    def __get_pydantic_core_schema__(self, source: Any, follow: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(self._accept, follow.generate_schema(self._kind))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, follow: GetJsonSchemaHandler) -> dict[str, Any]:
        reference = {"type": "string", "pattern": r"\$\{(env|file):[^}]+\}"}
        if self._secret:
            return {**reference, "description": "A secret reference: ${env:NAME} or ${file:/path}"}
        plain = follow(schema["schema"])
        return plain if plain.get("type") == "string" and "enum" not in plain else {"anyOf": [plain, reference]}

    def _accept(self, value: Any, inner: core_schema.ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if isinstance(value, Reference):
            if problem := value.problem():
                raise PydanticCustomError("reference", "{problem}", {"problem": problem})
            if self._secret and not value.pure:
                raise PydanticCustomError("plain_secret", "the file contains a secret")
            return value
        if self._secret and not (info.context and info.context.get("resolved")):
            raise PydanticCustomError("plain_secret", "the file contains a secret")
        return inner(value)


def _no_password(value: str | Reference, info: ValidationInfo) -> str | Reference:
    if looks_secret(str(value)) and not (info.context and info.context.get("resolved")):
        raise PydanticCustomError("url_secret", "the URL contains a password")
    return value


def seconds_of(value: Any) -> Any:
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if not match:
            raise PydanticCustomError("duration", "must be a duration such as 30, 90s, 15m, 2h or 1d")
        return float(match[1]) * _SECONDS[match[2]]
    return value


def _within_a_life(value: float) -> float:
    """Refuse durations beyond what clocks can count, some thousand years."""
    if value > _LONGEST_DAYS * 86400.0:
        raise PydanticCustomError("duration", f"must be at most {_LONGEST_DAYS}d")
    return value


def listed(value: Any) -> Any:
    """Accept one text as a list of it."""
    return [value] if isinstance(value, str) else value


def read_with(read: Callable[[str], T], text: str) -> T:
    """Parse a text by `read`; a SchemaError becomes a refusal with its reason."""
    try:
        return read(text)
    except SchemaError as error:
        raise PydanticCustomError("pattern", "{why}", {"why": f"{error.message}; {error.hint}"}) from None


def _pattern(value: str) -> str:
    read_with(selection.Pattern, value)
    return value


def expression(value: str) -> str:
    """Return a regular expression for a whole value, without `re:`."""
    read_with(check_regex, value)
    return value


def as_text(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return properties as the texts that catalogs and Spark expect; booleans in lower case."""
    return {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in properties.items()}


def looks_secret(text: str) -> bool:
    """Return whether a text is a secret, or has one in it, whatever it is called."""
    return _SECRET_TEXT.search(text) is not None


def is_secret(name: str, text: str) -> bool:
    """Return whether a value is a secret by its name or by its form."""
    return SECRET_NAME.search(name) is not None or looks_secret(text)


def check_property(name: str, value: Any) -> None:
    """Raise an error for a property whose name or form marks it as a secret, unless it is a reference."""
    if isinstance(value, bool) or value in ("", None) or (isinstance(value, Reference) and value.pure):
        return
    if is_secret(name, str(value)):
        raise PydanticCustomError("property_secret", "{name}", {"name": name})


# A file may say a reference in their place; whoever works with a section has it with every reference resolved.
Text = Annotated[str, _Referable(str)]
Url = Annotated[str, _Referable(str), AfterValidator(_no_password)]
Port = Annotated[int, _Referable(Annotated[int, Field(ge=1, le=65535)])]
Secret = Annotated[str, _Referable(str, secret=True)]
Seconds = Annotated[
    float, BeforeValidator(seconds_of, json_schema_input_type=float | str), Field(ge=0), AfterValidator(_within_a_life)
]
TablePattern = Annotated[str, AfterValidator(_pattern)]
Patterns = Annotated[tuple[TablePattern, ...], BeforeValidator(listed, json_schema_input_type=str | list[str])]
Words = Annotated[tuple[str, ...], BeforeValidator(listed, json_schema_input_type=str | list[str])]
Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]


def _unresolved_checked(value: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
    """Refuse a value that looks like a secret and is no reference."""
    if not (info.context and info.context.get("resolved")):
        for name, text in value.items():
            check_property(name, text)
    return value


Properties = Annotated[dict[str, Text | bool | int | float], AfterValidator(_unresolved_checked)]
Environment = Annotated[dict[str, Text], AfterValidator(_unresolved_checked)]


def _column_type(value: str) -> str:
    read_with(parse, value)
    return value


ColumnTypes = dict[Annotated[str, Field(min_length=1)], Annotated[str, AfterValidator(_column_type)]]


def folders(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of folders as they are; refuse URIs and empty ones."""
    for name in value:
        if not name or "://" in name:
            raise PydanticCustomError("shelves", "{text}", {"text": f"{name!r} is not a folder: write its path"})
    return value
