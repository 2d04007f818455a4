from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from project_types import Loads

from instep.project.load import load
from instep.project.project import Project


@pytest.fixture
def loads(tmp_path: Path) -> Loads:
    """Loads a project from text, with an environment of its own."""

    def run(text: str, variables: Mapping[str, str] | None = None) -> Project:
        (tmp_path / "instep.yml").write_text(text, encoding="utf-8")
        return load(tmp_path, variables or {})

    return run
