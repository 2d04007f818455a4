"""dbt's `manifest.json`: models and snapshots with their SQL, exposures by what they depend on.

Views and models as SQL files: each is called by its file's name, or by what it creates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlglot

from instep.errors import ProjectError
from instep.lineage.model import Model
from instep.lineage.parse import UnreadableSql, parse, target

KINDS = ("model", "snapshot", "test", "analysis")
_CALL = re.compile(r"\{\{-?\s*(ref|source)\(\s*(['\"])([^'\"]+)\2\s*(?:,\s*(['\"])([^'\"]+)\4\s*)?\)\s*-?\}\}")
_CONFIG = re.compile(r"\{\{-?\s*config\([^{}]*\)\s*-?\}\}|\{#.*?#\}", re.DOTALL)
_JINJA = re.compile(r"\{[{%#]")
_HINT = "make it with `dbt compile`, then name target/manifest.json"
Part = Mapping[str, Any]


def read_manifest(path: Path, dialect: str = "") -> list[Model]:
    """Return the models of a manifest; the dialect is that of dbt's adapter unless one is given.

    Raises ProjectError for a file that is not there or is no manifest.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return list(_Manifest(data, dialect).models())
    except OSError as error:
        raise ProjectError(f"{path}: {error.strerror or error}", hint=_HINT) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProjectError(f"{path} is not a dbt manifest: {type(error).__name__} {error}", hint=_HINT) from None


class _Manifest:
    """A manifest in memory."""

    def __init__(self, data: Part, dialect: str) -> None:
        self._nodes: Part = data["nodes"]
        self._parts: Part = {**data.get("sources", {}), **self._nodes}
        self._exposures: Part = data.get("exposures", {})
        adapter = data["metadata"].get("adapter_type") or ""
        adapter_dialect = adapter if adapter in sqlglot.Dialect.classes else ""
        self._dialect = dialect or adapter_dialect or "spark"

    def models(self) -> Iterator[Model]:
        for node in self._nodes.values():
            if node["resource_type"] in KINDS:
                yield self._model(node)
        for exposure in self._exposures.values():
            name, depends = exposure["name"], self._depends(exposure)
            yield Model(
                name,
                (exposure["unique_id"],),
                None,
                kind="exposure",
                depends=depends,
                problem="an exposure has no SQL: only what it depends on is known",
            )

    def _model(self, node: Part) -> Model:
        name, depends, file = node["name"], self._depends(node), node.get("original_file_path", "")
        kind, dialect = node["resource_type"], self._dialect
        relation = _relation(node) if kind in ("model", "snapshot") else (node["unique_id"],)
        try:
            statements = parse(self._sql(node), dialect)
            if len(statements) != 1:
                raise UnreadableSql(f"it has {len(statements)} statements")
        except UnreadableSql as error:
            return Model(name, relation, None, dialect, kind, file, str(error), depends)
        return Model(name, relation, statements[0], dialect, kind, file, "", depends)

    def _sql(self, node: Part) -> str:
        """Return the compiled SQL, or the raw one once its references are resolved."""
        if node.get("language", "sql") != "sql":
            raise UnreadableSql(f"it is {node['language']}: only what it depends on is known")
        if compiled := node.get("compiled_code") or node.get("compiled_sql"):
            return str(compiled)
        raw = str(node.get("raw_code") or node.get("raw_sql") or "")
        text = _CALL.sub(lambda call: self._called(call, node), _CONFIG.sub(_lines, raw))
        if _JINJA.search(text):
            raise UnreadableSql(
                "it is not compiled and has Jinja: only what it depends on is known (run `dbt compile`)"
            )
        return text

    def _called(self, call: re.Match[str], node: Part) -> str:
        """Return the relation that `ref` or `source` stands for; as it was, if the manifest does not tell."""
        function, first, second = call[1], call[3], call[5]
        for id in node["depends_on"]["nodes"]:
            part = self._parts.get(id, {})
            named = part.get("name") == (second or first)
            if named and (function == "ref" or part.get("source_name") == first):
                return _quoted(_relation(part), self._dialect)
        return call[0]

    def _depends(self, node: Part) -> tuple[tuple[str, ...], ...]:
        ids = node.get("depends_on", {}).get("nodes", [])
        return tuple(_relation(self._parts[id]) for id in ids if id in self._parts)


def _relation(part: Part) -> tuple[str, ...]:
    """Return the relation's name, from the widest part to the narrowest."""
    name = part.get("identifier") or part.get("alias") or part["name"]
    return tuple(filter(None, (part.get("database"), part.get("schema"), name)))


def _quoted(relation: tuple[str, ...], dialect: str) -> str:
    return ".".join(sqlglot.exp.to_identifier(name, quoted=True).sql(dialect=dialect) for name in relation)


def _lines(match: re.Match[str]) -> str:
    """Return only the newlines of a match, so that line numbers stay valid."""
    return "\n" * match[0].count("\n")


def read_sql(paths: Sequence[Path], dialect: str) -> list[Model]:
    """Return the models of files and of folders, at any depth; ProjectError if there is none."""
    return [model for path in paths for file, name in _files(path) for model in _models(file, name, dialect)]


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, the name that messages show)."""
    if path.is_file():
        yield path, path.name
        return
    if not path.is_dir():
        raise ProjectError(f"there is no folder or file {path}", hint="name a folder of .sql files, or one such file")
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() == ".sql" and file.is_file())
    if not files:
        raise ProjectError(f"{path} has no .sql files", hint="name the folder that holds the views")
    yield from ((file, file.relative_to(path).as_posix()) for file in files)


def _models(file: Path, shown: str, dialect: str) -> list[Model]:
    try:
        statements = parse(file.read_text(encoding="utf-8-sig"), dialect)
    except UnicodeDecodeError as error:
        return [Model(shown, (file.stem,), None, file=shown, problem=f"it is not UTF-8: {error.reason}")]
    except UnreadableSql as error:
        return [Model(shown, (file.stem,), None, file=shown, problem=str(error))]
    if not statements:
        return [Model(shown, (file.stem,), None, file=shown, problem="it has no statement that reads anything")]
    return [
        Model(".".join(relation), relation, statement, dialect, file=shown)
        for statement in statements
        for relation in [target(statement) or tuple(file.stem.split("."))]
    ]
