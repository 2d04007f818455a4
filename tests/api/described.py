"""Requests made from a description: values that a JSON schema allows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
FREE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def followed(document: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """A part of a description, followed to where it stands."""
    if "$ref" not in said:
        return said
    found: Any = document
    for part in said["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def values(document: dict[str, Any], schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What the schema allows: small, of every form that it has."""
    schema = followed(document, schema)
    if forms := schema.get("anyOf"):
        return st.one_of([values(document, form) for form in forms])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    match schema.get("type"):
        case "string":
            return _texts(schema)
        case "integer":
            return st.integers(schema.get("minimum", -(2**40)), schema.get("maximum", 2**40))
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            least = schema.get("minItems", 0)
            most = min(schema.get("maxItems", 3), max(3, least))
            return st.lists(values(document, schema.get("items", {})), min_size=least, max_size=most)
        case "object" if "properties" in schema:
            return _objects(document, schema)
        case "object":
            return st.dictionaries(TEXT, FREE, max_size=3)
    return FREE


def _texts(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    if pattern := schema.get("pattern"):
        return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(text) <= schema.get("maxLength", 99))
    least = schema.get("minLength", 0)
    made = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=least, max_size=max(12, least))
    return made | st.sampled_from(["eu", "lake", "db", "strict", "main.item", "approve", "c-1", "3d", "2030-01-01"])


def _objects(document: dict[str, Any], schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    needed = set(schema.get("required", ()))
    fields = {name: values(document, said) for name, said in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: made for name, made in fields.items() if name in needed},
        optional={name: made for name, made in fields.items() if name not in needed},
    )
