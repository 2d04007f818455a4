"""The demo's folder, and what its shop answers on each day."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

from instep.errors import ProjectError
from instep.project.files.starter import write_project
from instep.project.load import FILE_NAME

_MARK = "made by `instep connector demo`"


def make(folder: Path) -> None:
    """Create a project with a connector in it; an earlier demo there is replaced, any other project is not."""
    file = folder / FILE_NAME
    if file.exists():
        if _MARK not in file.read_text(encoding="utf-8"):
            raise ProjectError(f"{folder} holds a project that is not the demo", hint="choose another --project folder")
        shutil.rmtree(folder)
    write_project(folder, _text("instep.yml"))
    (folder / "shop").mkdir()
    (folder / "shop" / "connector.py").write_text(_text("connector.txt"), encoding="utf-8")


def days() -> list[dict[str, Any]]:
    """Return the answers of the API: `tables`, as schema() declares them, and `records` by table."""
    answers: list[dict[str, Any]] = json.loads(_text("days.json"))
    return [{"day": number, **day} for number, day in enumerate(answers, 1)]


def begin_day(folder: Path, day: dict[str, Any]) -> None:
    """Switch the API to the answers of this day."""
    text = json.dumps(day, indent=2, ensure_ascii=False)
    (folder / "shop" / "api.json").write_text(text + "\n", encoding="utf-8")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
