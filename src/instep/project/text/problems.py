"""Validation errors in the words of the project file, each with its line. No message repeats a value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from instep.errors import ProjectError
from instep.project.text.references import Reference
from instep.project.text.tree import Path, Tree
from instep.suggest import did_you_mean, first_of

Problem = tuple[int, str]
MOST_SHOWN = 30
"""Problems of a file, and known names, that one message lists."""

_TEXTS: Mapping[str, str] = {
    "missing": "is required",
    "string_type": 'must be text; put it in quotes ("...")',
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "list_type": "must be a list: [a, b]",
    "tuple_type": "must be a list: [a, b]",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "model_attributes_type": "must be a mapping of names to values",
    "finite_number": "must be a number that is not infinite",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "union_tag_not_found": "needs a type",
}

_SPELLED: Mapping[str, str] = {
    "slot": "lower-case letters, digits and _ only (63 at most)",
    "prefix": "lower-case letters, digits and _ only; it starts and ends with _",
    "shard": "letters, digits, _ and - only (63 at most); it starts with a letter or a digit",
    "maven": "group:name:version",
    "sha256": "64 hexadecimal digits",
    "memory": "a size such as 500MB or 2GB, or 0 for no limit",
    "file": "a size such as 500MB or 2GB, or 0 for no limit",
}
"""Values that keys with a pattern take."""


def problems_of(error: ValidationError, tree: Tree, seen: Mapping[Any, Any]) -> list[Problem]:
    """Return (line, text) of every error; `seen` is the validation context, which knows the model of each mapping."""
    problems = [(tree.line(path), f"{dotted(path)}: {message}") for path, message in placed_problems(error, tree, seen)]
    return list(dict.fromkeys(problems))


def placed_problems(
    error: ValidationError, tree: Tree, seen: Mapping[Any, Any], most: int | None = None
) -> list[tuple[Path, str]]:
    """Return (place, text) of every error, as `problems_of`, or of the first `most`."""
    problems, details = [], error.errors(include_url=False)
    around = {place[:n] for place in (detail["loc"] for detail in details) for n in range(len(place))}
    for detail in details[:most]:
        if detail["type"] == "too_short" and detail["loc"] in around:
            continue  # pydantic does not count the items that are wrong
        path = data_path(tree.data, detail)
        problems.append((path, _text(detail, path, tree, seen)))
    return problems


def raise_all(file: str, problems: Iterable[Problem], hint: str = "") -> None:
    """Raise one ProjectError that lists the first problems by line; does nothing without any."""
    ordered = sorted(problems)
    if ordered:
        lines = [f"{file}:{line}: {message}" for line, message in ordered[:MOST_SHOWN]]
        more = len(ordered) - len(lines)
        text = "\n".join([*lines, *([f"and {more:,} more problems"] if more else [])])
        raise ProjectError(text, hint=hint or "correct the file, then run `instep validate`")


def data_path(data: Any, detail: ErrorDetails) -> Path:
    """Return the error's place without the parts that pydantic adds (the chosen type of a union, `[key]`)."""
    path: list[str | int] = []
    location = detail["loc"]
    for at, part in enumerate(location):
        inside = isinstance(data, dict) and part in data
        if inside or (isinstance(data, list) and isinstance(part, int)):
            path.append(part)
            data = data[part]
        elif at == len(location) - 1 and detail["type"] == "missing":
            path.append(part)
    named = detail.get("ctx", {}).get("name")
    return (*path, named) if named else tuple(path)


def dotted(path: Path) -> str:
    return ".".join(map(str, path)) or "the file"


def suggestion_or_list(word: str, names: Collection[str]) -> str:
    """Return `, did you mean 'x'?`, or the list of what is known."""
    listed = f" (known: {first_of(sorted(names), MOST_SHOWN)})" if names else ""
    return did_you_mean(word, names, listed, form=", did you mean {!r}?", like=0.5)


def _text(detail: ErrorDetails, path: Path, tree: Tree, seen: Mapping[Any, Any]) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown key{suggestion_or_list(str(path[-1]), _keys_at(path[:-1], tree, seen))}"
        case "plain_secret" | "property_secret":
            return f"a secret must not be in the file: write {suggestion(path)} and set it in .env"
        case "url_secret":
            return f"a password must not be in the URL: write {suggestion(path)} and set the whole URL in .env"
        case "conf_secret":
            return "Spark shows its configuration: a secret belongs to the source or the destination"
        case "greater_than_equal":
            return f"must be at least {context['ge']:.15g}"
        case "less_than_equal":
            return f"must be at most {context['le']:.15g}"
        case "greater_than":
            return f"must be more than {context['gt']:.15g}"
        case "too_long":
            return f"must have at most {context['max_length']} entries"
        case "string_too_long":
            return f"must have at most {context['max_length']} character(s)"
        case "string_pattern_mismatch" if str(detail["loc"][-1]) == "[key]":
            return "a name starts with a letter and has letters, digits, _ and - only (63 at most)"
        case "string_pattern_mismatch" if path and path[-1] in _SPELLED:
            return f"must be {_SPELLED[str(path[-1])]}"
        case "literal_error" | "union_tag_invalid":
            return f"must be one of {context.get('expected') or context.get('expected_tags')}{_close(detail, context)}"
        case _ if isinstance(detail.get("input"), Reference) and detail["type"] in _TEXTS:
            return "a reference is not possible here: write the value itself"
    return _TEXTS.get(detail["type"], detail["msg"].removeprefix("Value error, "))


def _close(detail: ErrorDetails, context: Mapping[str, Any]) -> str:
    listed = str(context.get("expected") or context.get("expected_tags"))
    expected = [word.strip(" '") for word in listed.replace(" or ", ",").split(",")]
    word = context.get("tag") or detail.get("input")
    return did_you_mean(word, expected, form=", did you mean {!r}?") if isinstance(word, str) else ""


def _keys_at(path: Path, tree: Tree, seen: Mapping[Any, Any]) -> list[str]:
    data = tree.data
    for part in path:
        data = data[part]
    model = seen.get(id(data))
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def suggestion(path: Path) -> str:
    """Return a reference to a variable that a secret at this place of the project may come from."""
    words = [str(part).upper() for part in path[1:] if part != "properties"] or [str(path[0]).upper()]
    return "${env:" + "_".join("".join(c if c.isalnum() else "_" for c in word) for word in words) + "}"
