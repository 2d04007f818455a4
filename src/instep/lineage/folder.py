"""Views and models as SQL files: each is called by its file's name, or by what it creates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from instep.errors import ProjectError
from instep.lineage.model import Model
from instep.lineage.parse import UnreadableSql, parse, target


def read_sql(paths: Sequence[Path], dialect: str) -> list[Model]:
    """Return the models of files and of folders, at any depth; ProjectError if there is none."""
    return [model for path in paths for file, name in _files(path) for model in _models(file, name, dialect)]


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """(file, the name that messages show)."""
    if path.is_file():
        yield path, path.name
        return
    if not path.is_dir():
        raise ProjectError(f"there is not a folder {path}", hint="name a folder of .sql files, or one such file")
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() == ".sql" and file.is_file())
    if not found:
        raise ProjectError(f"{path} has no .sql files", hint="name the folder that holds the views")
    yield from ((file, file.relative_to(path).as_posix()) for file in found)


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
