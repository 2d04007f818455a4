"""Writes a connector that runs, as a beginning."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from instep.errors import ProjectError, unwritable

_FILES = {
    "connector.py": "connector.txt",
    "configuration.json": "configuration.json",
    "events.jsonl": "events.jsonl",
    "requirements.txt": "",
    ".gitignore": "gitignore.txt",
}
"""Files to write, each from a file beside this one, or empty."""


def write_connector(folder: Path) -> list[Path]:
    """Write connector.py and what belongs to it; ProjectError, with nothing written, if one of the files is there."""
    for name in _FILES:
        if name != ".gitignore" and (folder / name).exists():
            raise ProjectError(f"{folder / name} exists already", hint="choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(folder / name, source) for name, source in _FILES.items() if not (folder / name).exists()]
    except OSError as error:
        raise unwritable(folder, error) from None


def _write(file: Path, source: str) -> Path:
    text = files(__package__).joinpath(source).read_text(encoding="utf-8") if source else ""
    file.write_text(text, encoding="utf-8")
    return file
