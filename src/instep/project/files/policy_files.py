"""Files beside instep.yml that are about policies: one policy on its own, and sample changes with what is expected.

Both are read as the project file is: every problem at once, each with its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from instep.errors import ProjectError, quoted
from instep.project.documents import MOST_PROBLEMS, InvalidDocument
from instep.project.files.imported import SchemaConfigDocument
from instep.project.load import text_of
from instep.project.sections.policies import ModifierSection, PolicySection
from instep.project.sections.values import Words
from instep.project.text import tree as yaml_tree
from instep.project.text.problems import Problem, dotted, problems_of, raise_all
from instep.schema.policy.policy import Action, Effect
from instep.schema.policy.presets import KINDS, unknown

T = TypeVar("T")
HINT = "correct the file and run the command again"


def _kind(value: str) -> str:
    if value not in KINDS:
        error = unknown("kind of change", value, KINDS)
        raise PydanticCustomError("policy", "{text}", {"text": f"{error.message}; {error.hint}"})
    return value


class SampleCase(ModifierSection):
    """A sample change with its expected decision; keys that are absent are not compared. `from` and `to` are types;
    for a rename, `to` is the new name."""

    change: Annotated[str, AfterValidator(_kind)]
    table: str
    column: str = ""
    before: Annotated[str, Field(alias="from")] = ""
    after: Annotated[str, Field(alias="to")] = ""
    tags: Words | None = None
    """Replace those of the connection."""
    expect: Action
    effect: Effect | None = None
    rule: str = ""


@dataclass(frozen=True)
class Located:
    """A case with its file and line."""

    file: str
    line: int
    case: SampleCase

    @property
    def location(self) -> str:
        return f"{self.file}:{self.line}"


def read_policy(file: Path) -> PolicySection:
    """Return the policy of a file that says what stands under one name of `policies:`. ProjectError if it is wrong."""
    section, _ = _read(file, PolicySection, "write a preset and rules, as under one name of policies: in instep.yml")
    return section


def read_cases(file: Path) -> list[Located]:
    """Return the sample changes of a file, at least one. ProjectError if any is wrong."""
    hint = "write a list: - {change: column.removed, table: public.order, column: note, expect: review}"
    cases, tree = _read(file, list[SampleCase], hint)
    if not cases:
        raise ProjectError(f"{file.name} has no cases", hint=hint)
    return [Located(file.name, tree.line((at,)), case) for at, case in enumerate(cases)]


class InvalidCases(InvalidDocument):
    """Sample changes are wrong. `problems` are the first MOST_PROBLEMS of them."""

    below = "/cases"

    def __init__(self, problems: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        self.problems = tuple(
            (tuple(quoted(part, 100) if isinstance(part, str) else part for part in place), quoted(text, 300))
            for place, text in problems[:MOST_PROBLEMS]
        )
        lines = [f"cases.{dotted(place)}: {text}" for place, text in self.problems[:5]]
        super().__init__("; ".join(lines), hint="see docs/reference/commands.md, policy test")


def sample_cases(documents: Sequence[Mapping[str, Any]]) -> list[SampleCase]:
    """Return the sample changes of these documents. ProjectError with the place of what is wrong, without its value."""
    try:
        return TypeAdapter(list[SampleCase]).validate_python(list(documents), context={})
    except ValidationError as error:
        raise InvalidCases([(e["loc"], e["msg"]) for e in error.errors(include_input=False)]) from None


def refuse_wrong(cases: Sequence[Located], problems: Sequence[str]) -> None:
    """Raise ProjectError, with lines, if one of these cases has a problem; the two sequences are parallel."""
    raise_all(cases[0].file, [(case.line, why) for case, why in zip(cases, problems, strict=True) if why], HINT)


def read_config(file: Path) -> SchemaConfigDocument:
    """Return a connector's schema config in JSON or YAML. ProjectError if it is wrong."""
    hint = "write it as {schema_change_handling: ALLOW_ALL, schemas: {...}}: see docs/guides/other-products.md"
    return _read(file, SchemaConfigDocument, hint)[0]


def _unsaid(tree: yaml_tree.Tree, data: Any, path: yaml_tree.Path) -> Iterator[Problem]:
    """Yield keys without a value: `on_invalid_value: null` would be left out silently, and mean its opposite."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, value in items:
        if value is None:
            yield tree.line((*path, name)), f'{dotted((*path, name))}: needs a value (the word null in quotes: "null")'
        yield from _unsaid(tree, value, (*path, name))


def _read(file: Path, kind: type[T], hint: str) -> tuple[T, yaml_tree.Tree]:
    text = text_of(file, "name a file that is there")
    tree = yaml_tree.parse(text.expandtabs() if file.suffix == ".json" else text)
    raise_all(file.name, [*tree.problems, *_unsaid(tree, tree.data, ())], HINT)
    if tree.data in (None, {}):
        raise ProjectError(f"{file.name} is empty", hint=hint)
    seen: dict[Any, Any] = {}
    try:
        return TypeAdapter(kind).validate_python(tree.data, context=seen), tree
    except ValidationError as error:
        raise_all(file.name, problems_of(error, tree, seen), HINT)
        raise
