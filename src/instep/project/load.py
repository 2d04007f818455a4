"""Reads `instep.yml`: syntax, keys, values and references between sections, all problems at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from instep.errors import ProjectError, check_current_folder, unwritable
from instep.project.project import Project
from instep.project.sections.models import ProjectFile
from instep.project.sections.policies import CHOOSERS, is_word
from instep.project.text import tree as yaml_tree
from instep.project.text.problems import Problem, dotted, placed_problems, problems_of, raise_all, suggestion_or_list
from instep.project.text.references import Environment, Reference, digest_of
from instep.project.text.tree import Path as Place
from instep.project.text.tree import Tree

FILE_NAME = "instep.yml"
MAX_BYTES = 4 << 20


def find(start: Path | None = None) -> Path:
    """Return the project file in `start` (default: here) or the nearest folder above; ProjectError if there is none."""
    if start is None or not start.is_absolute():
        check_current_folder()
    base = (start or Path.cwd()).resolve()
    for folder in (base, *base.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        if (folder / "instep.yaml").is_file():
            raise ProjectError(f"{folder / 'instep.yaml'} is not read", hint=f"rename it to {FILE_NAME}")
    raise ProjectError(
        f"no {FILE_NAME} in {base} or above", hint="make one with `instep init`, or name its folder with --project"
    )


def load(path: Path, variables: Mapping[str, str] | None = None) -> Project:
    """Return the project of a file, or of a folder with an instep.yml. `variables` replaces the process environment.

    Raises one ProjectError that lists every problem as `instep.yml:<line>: <where>: <what>`.
    """
    file = (path / FILE_NAME if path.is_dir() else path).resolve()
    digest = digest_of(file)  # first, so that what is written after it is seen as another text
    tree = yaml_tree.parse(text_of(file))
    if not tree.problems and (tree.data is None or tree.data == {}):
        raise ProjectError(
            f"{file.name} is empty", hint="write a source, a destination and a connection, or run `instep init`"
        )
    project = _project(file, tree, variables, digest)
    if not (project.model.sources or project.model.destinations or project.model.connections):
        raise ProjectError(
            f"{file.name} has no sources, destinations or connections",
            hint="write them, or run `instep init` in an empty folder to see an example",
        )
    return project


def _project(file: Path, tree: Tree, variables: Mapping[str, str] | None, digest: str) -> Project:
    raise_all(file.name, tree.problems if tree.data is None else ())
    model, problems = _validate(tree)
    raise_all(file.name, [*tree.problems, *problems])
    assert model is not None  # what is not valid has problems
    return Project(file, model, tree, Environment.of(file.parent, variables), digest)


def problems_in(text: str) -> list[tuple[Place, str]]:
    """Return the place and the text of every problem of a project file that is not written yet."""
    tree = yaml_tree.parse(text)
    if tree.problems:
        return [((), problem) for _, problem in tree.problems]
    problems = [(path, f"{dotted(path)}: {problem}") for path, problem in _links(tree)]
    seen: dict[object, object] = {}
    try:
        ProjectFile.model_validate(tree.data, context=seen)
    except ValidationError as error:
        wrong = placed_problems(error, tree, seen)
        problems = [*((path, f"{dotted(path)}: {problem}") for path, problem in wrong), *problems]
    return problems


def load_beside(folder: Path, variables: Mapping[str, str] | None = None) -> Project:
    """Return the project of a server, which keeps sections itself: the file may have none, and may be missing. Its
    folder is the one given, or that of the nearest file above. ProjectError as `load`."""
    base = folder.resolve()
    file = next((f / FILE_NAME for f in (base, *base.parents) if (f / FILE_NAME).is_file()), base / FILE_NAME)
    digest = digest_of(file)
    tree = yaml_tree.parse(text_of(file) if file.is_file() else "{}")
    tree.data = {} if tree.data is None and not tree.problems else tree.data
    return _project(file, tree, variables, digest)


def changed_text(project: Project, path: Place, value: str) -> str:
    """Return the text of the project file with another value at one place; all else is as it was, comments included.

    Raises ProjectError if that place is a reference, or shares its text with another one.
    """
    file, place = project.file, dotted(path)
    text_of(file)  # its errors are told in our words
    text = file.read_bytes().decode("utf-8-sig")
    if isinstance(_at(yaml_tree.parse(text).data, path), Reference):
        raise ProjectError(f"{project.location_of(path)} is a reference", hint=f"set what it leads to: {value}")
    if (changed := yaml_tree.with_scalar(text, path, value)) is None:
        raise ProjectError(
            f"{project.location_of(path)} cannot be changed here: it does not have its own text on one line",
            hint=f"write it yourself: {place}: {value}",
        )
    return changed


def replace_text(project: Project, text: str) -> None:
    """Replace the project file at once; ProjectError if it cannot be written."""
    file = project.file
    new = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        new.write_bytes(text.encode())
        shutil.copymode(file, new)
        new.replace(file)
    except OSError as error:
        raise unwritable(file, error) from None
    finally:
        new.unlink(missing_ok=True)


def _at(data: Any, path: Place) -> Any:
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def text_of(file: Path, missing: str = "make a project with `instep init`") -> str:
    """Return the text of a YAML file; ProjectError if it cannot be read. `missing`: what to do if there is none."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ProjectError(f"{file} is larger than {MAX_BYTES >> 20} MB", hint="this is not a project file")
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ProjectError(f"{file} does not exist", hint=missing) from None
    except UnicodeDecodeError as error:
        raise ProjectError(f"{file} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None
    except OSError as error:
        raise ProjectError(f"{file} cannot be read: {error.strerror}", hint="check who may read it") from None


def _validate(tree: Tree) -> tuple[ProjectFile | None, list[Problem]]:
    seen: dict[object, object] = {}
    links = [(tree.line(path), f"{dotted(path)}: {problem}") for path, problem in _links(tree)]
    try:
        return ProjectFile.model_validate(tree.data, context=seen), links
    except ValidationError as error:
        return None, [*problems_of(error, tree, seen), *links]


def _links(tree: Tree) -> Iterator[tuple[Place, str]]:
    """Yield what one section says of another, read from the data so that other errors hide none of it."""
    for name, connection in _section(tree.data, "connections").items():
        if isinstance(connection, dict):
            for problem, field in connection_links(tree.data, connection):
                yield ("connections", name, *field), problem
    for problem, field in _notice_links(tree.data, tree.data):
        yield field, problem
    for problem, name in _shard_links(tree.data):
        yield ("connections", name, "shard"), problem
    for problem, name, key in _log_links(tree.data):
        yield ("connections", name, "log", key), problem


def _log_links(data: Any) -> Iterator[tuple[str, str, str]]:
    """Yield conflicts of connections of one source, which cannot share a slot or a publication."""
    owners: dict[tuple[str, str, str], str] = {}
    for name, connection in _section(data, "connections").items():
        of = str(_source(data, connection))
        for field, name_of_field in _section(connection, "log").items():
            if field not in ("slot", "publication") or not isinstance(name_of_field, str) or not name_of_field:
                continue
            if (of, field, name_of_field) in owners:
                other = owners[of, field, name_of_field]
                yield f"connections.{other} of source {of} has the {field} {name_of_field!r} already", name, field
            owners.setdefault((of, field, name_of_field), name)


def _source(data: Any, connection: Any) -> Any:
    name = connection.get("source") if isinstance(connection, dict) else None
    return name or next(iter(_section(data, "sources")), "")


def _shard_links(data: Any) -> Iterator[tuple[str, str]]:
    """Yield conflicts of shards: those of one table share a namespace, and each needs a name of its own."""
    connections, destinations = _section(data, "connections"), _section(data, "destinations")
    owners: dict[tuple[str, str, str], str] = {}
    for name, connection in connections.items():
        shard = connection.get("shard") if isinstance(connection, dict) else None
        if not isinstance(shard, str) or not shard:
            continue
        to = str(connection.get("destination") or next(iter(destinations), ""))
        namespace = connection.get("namespace") or _section(destinations, to).get("namespace")
        if not namespace:
            yield "needs a `namespace`, which it shares with the other shards", name
        elif (to, str(namespace), shard) in owners:
            yield f"connections.{owners[to, str(namespace), shard]} is shard {shard!r} of {namespace} already", name
        owners.setdefault((to, str(namespace), shard), name)


def connection_links(data: Any, connection: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    """Yield (problem, place within the connection) of its references to other sections; only the names of those
    count."""
    for field in ("source", "destination"):
        defined, named = _section(data, f"{field}s"), connection.get(field)
        if isinstance(named, str) and named not in defined:
            yield f"unknown {field} {named!r}{suggestion_or_list(named, defined)}", (field,)
        elif named is None and len(defined) != 1:
            yield f"is required ({len(defined) or 'no'} {field}s are defined)", (field,)
    policy, policies = connection.get("policy"), _section(data, "policies")
    if isinstance(policy, str) and policy not in policies and not is_word(policy):
        yield f"unknown policy {policy!r}{suggestion_or_list(policy, policies)}", ("policy",)
    first, *more = [key for key in CHOOSERS if connection.get(key)] or [""]
    for key in more:
        yield f"{first} already decides what happens to changes: use one of the two", (key,)
    if connection.get("hash") and not connection.get("salt"):
        yield "is required for hashed columns: write ${env:INSTEP_SALT} and set it in .env", ("salt",)
    yield from _notice_links(data, connection)
    yield from _table_links(connection)


def _notice_links(data: Any, connection: Any) -> Iterator[tuple[str, Place]]:
    channels, notices = _section(data, "channels"), connection.get("notify") if isinstance(connection, dict) else None
    for at, notice in enumerate(notices if isinstance(notices, list) else ()):
        to = notice.get("to") if isinstance(notice, dict) else None
        if isinstance(to, str) and to not in channels:
            yield f"unknown channel {to!r}{suggestion_or_list(to, channels)}", ("notify", at, "to")


def _table_links(connection: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    for pattern, table in _section(connection, "tables").items():
        if not isinstance(table, dict):
            continue
        if table.get("mode") == "full_refresh" and table.get("cursor"):
            yield "a full refresh reads every row and has no cursor", ("tables", pattern, "cursor")
        if table.get("lookback") and not table.get("cursor"):
            yield "a look-back window needs a cursor", ("tables", pattern, "lookback")


def _section(data: Any, name: str) -> Mapping[str, Any]:
    section = data.get(name) if isinstance(data, dict) else None
    return section if isinstance(section, dict) else {}
