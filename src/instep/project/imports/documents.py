"""Files of an export: JSON of a product's API, or a state of Terraform. Their content is not trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NoReturn

from instep.errors import ProjectError, quoted
from instep.project.documents import is_too_deep

MAX_BYTES = 64 << 20
"""Size of the largest file that is read."""
MAX_ATTRIBUTE = 1 << 20
"""Characters of the longest attribute that is read as JSON."""


@dataclass(frozen=True)
class ExportDocument:
    """One file."""

    file: str
    name: str
    """Name of the file without folder and ending."""
    data: Any


@dataclass(frozen=True)
class TerraformResource:
    """One instance of a resource."""

    address: str
    type: str
    attributes: Mapping[str, Any]
    sensitive: frozenset[tuple[str, ...]] = frozenset()
    """Places of attributes that Terraform calls sensitive."""


def documents_of(files: Mapping[str, Any]) -> list[ExportDocument]:
    """Return the documents of an export, which are given by the names of their files."""
    return [ExportDocument(quoted(file, 200), PurePath(file).stem, data) for file, data in files.items()]


def read_files(files: Sequence[Path]) -> dict[str, Any]:
    """Return what the files of an export have, by their paths. ProjectError for a file that is missing, too large or
    not JSON."""
    if not files:
        raise ProjectError("no file is named", hint="name the files of the export")
    return {str(file): _parsed(file) for file in files}


def _parsed(file: Path) -> Any:
    try:
        if not file.is_file():
            why = "is not a file" if file.exists() else "does not exist"
            raise ProjectError(f"{file} {why}", hint="name the JSON files of the export")
        if file.stat().st_size > MAX_BYTES:
            hint = "export fewer objects at a time, each into its own file"
            raise ProjectError(f"{file} is larger than {MAX_BYTES >> 20} MB", hint=hint)
        return parse_json(file.read_text(encoding="utf-8-sig"), str(file))
    except UnicodeDecodeError as error:
        raise ProjectError(f"{file} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        why = str(error.strerror) if isinstance(error, OSError) else "it is not a path"
        raise ProjectError(f"{str(file)!r} cannot be read: {why}", hint="check the path and who may read it") from None


def parse_json(text: str, where: str) -> Any:
    """Return a JSON document. ProjectError without its text, which may hold secrets."""

    def no_number(word: str) -> NoReturn:
        raise ProjectError(f"{where} is not JSON: it has {word}", hint="export it again")

    try:
        if is_too_deep(document := json.loads(text, parse_constant=no_number)):
            raise RecursionError
        return document
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ProjectError(f"{where} is not JSON ({place})", hint="export it again; YAML is not read") from None
    except RecursionError:
        raise ProjectError(f"{where} is nested too deeply", hint="this is not an export") from None
    except ValueError:
        raise ProjectError(f"{where} has a number that is too long", hint="this is not an export") from None


def text_at(data: Any, *names: str) -> str:
    """Return the first text or number below one of these names; "" for anything else."""
    for name in names:
        value = data.get(name) if isinstance(data, Mapping) else None
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def mapping_at(data: Any, *names: str) -> Mapping[str, Any]:
    """Return the first mapping below one of these names, else an empty one."""
    values = (data.get(name) for name in names) if isinstance(data, Mapping) else ()
    return next((value for value in values if isinstance(value, Mapping)), {})


def list_at(data: Any, *names: str) -> list[Any]:
    """Return the first list below one of these names, else an empty one."""
    values = (data.get(name) for name in names) if isinstance(data, Mapping) else ()
    return next((value for value in values if isinstance(value, list)), [])


def words_of(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, or one text by itself."""
    values = value if isinstance(value, list) else [value]
    return tuple(word for word in values if isinstance(word, str) and word)


def paths_of(value: Any) -> tuple[tuple[str, ...], ...]:
    """Return the paths of a list of lists of texts, such as a primary key."""
    values = value if isinstance(value, list) else []
    return tuple(path for path_value in values if (path := words_of(path_value)))


def mappings_of(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def is_terraform(data: Any) -> bool:
    """True for a state file of Terraform, or what `terraform show -json` prints."""
    if not isinstance(data, Mapping):
        return False
    state = isinstance(data.get("resources"), list) and ("terraform_version" in data or "lineage" in data)
    return state or isinstance(mapping_at(data, "values").get("root_module"), Mapping)


def terraform_resources(document: ExportDocument) -> Iterator[TerraformResource]:
    """Yield every managed resource of a state, without those that have no attributes."""
    root = mapping_at(document.data, "values").get("root_module")
    if isinstance(root, Mapping):
        yield from _shown_resources(root)
        return
    for resource in mappings_of(list_at(document.data, "resources")):
        if resource.get("mode", "managed") != "managed":
            continue
        kind, name = text_at(resource, "type"), text_at(resource, "name")
        for number, instance in enumerate(mappings_of(list_at(resource, "instances"))):
            key = instance.get("index_key", number if number else None)
            address = ".".join(filter(None, (text_at(resource, "module"), kind, name)))
            yield TerraformResource(
                address if key is None else f"{address}[{key!r}]",
                kind,
                mapping_at(instance, "attributes"),
                frozenset(_sensitive(list_at(instance, "sensitive_attributes"))),
            )


def _shown_resources(module: Mapping[str, Any]) -> Iterator[TerraformResource]:
    modules = [module]
    while modules:
        current = modules.pop()
        for resource in mappings_of(list_at(current, "resources")):
            if resource.get("mode", "managed") == "managed":
                places = frozenset(_true_places(mapping_at(resource, "sensitive_values")))
                values = mapping_at(resource, "values")
                yield TerraformResource(text_at(resource, "address"), text_at(resource, "type"), values, places)
        modules += mappings_of(list_at(current, "child_modules"))


def _sensitive(paths: Sequence[Any]) -> Iterator[tuple[str, ...]]:
    for path in paths:
        yield tuple(text_at(step, "value") for step in mappings_of(path))


def _true_places(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if value is True:
        yield path
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in items:
        yield from _true_places(entry, (*path, str(key)))


def json_attribute(value: Any, where: str) -> Mapping[str, Any]:
    """Return a mapping, or the one that an attribute has as the text of a JSON document."""
    if isinstance(value, str) and len(value) <= MAX_ATTRIBUTE and value.lstrip().startswith("{"):
        value = parse_json(value, where)
    return value if isinstance(value, Mapping) else {}
