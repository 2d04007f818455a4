"""The commands: a folder for each group of `instep --help`, and in it a file for each command or family of commands."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import typer


def register_commands(app: typer.Typer) -> None:
    """Add the commands of every module that has a function `register`."""
    for group in iter_modules(__path__, f"{__name__}."):
        for module in iter_modules(import_module(group.name).__path__, f"{group.name}."):
            if register := getattr(import_module(module.name), "register", None):
                register(app)
