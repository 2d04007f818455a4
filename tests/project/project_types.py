"""The type of the `loads` fixture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from instep.project.project import Project


class Loads(Protocol):
    def __call__(self, text: str, variables: Mapping[str, str] | None = None) -> Project: ...
