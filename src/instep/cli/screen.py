"""The console of a command: styled text, tables and messages for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from instep.cli.text import folded
from instep.errors import one_line, visible

LOG_WIDTH = 10_000
"""Columns where no terminal tells its own: nothing is cut or folded in logs and pipes."""

NARROW = 100


def cell(value: object, style: str = "") -> Text:
    """Return a table's cell: one line."""
    return Text(one_line(str(value)), style=style)


class Screen(Console):
    """Neither markup nor emoji codes nor control characters in a text mean anything to it."""

    def __init__(self, *, stderr: bool, plain: bool) -> None:
        super().__init__(
            stderr=stderr,
            color_system=None if plain else "auto",
            markup=False,
            emoji=False,
            highlight=False,
            soft_wrap=True,
        )
        if not self.is_terminal:
            self.width = LOG_WIDTH

    @property
    def narrow(self) -> bool:
        """A terminal that is too small for wide tables."""
        return self.width < NARROW

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def write(self, text: str, style: str = "") -> None:
        """Write one line, whatever the names in the text hold; on a terminal it is folded at its width, with
        commands kept in one piece."""
        line = one_line(text)
        self.print(folded(line, self.width) if self.is_terminal else line, style=style)

    def on_broken_pipe(self) -> None:
        """Report to the entry point that the reader has closed the pipe."""
        raise BrokenPipeError
