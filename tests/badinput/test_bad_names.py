"""Names of a source in the commands that messages offer: who copies one runs that command, and nothing else."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import instep
from instep.errors import argument

SOURCE = Path(instep.__file__).parent
NAMED = re.compile(r"instep (?:backfill|sync|tables?|quarantine|restore|selection|verify|repair|maintain)\b[^`]*$")
"""The beginnings of commands that take names of a source."""
WORDS = frozenset(
    {"context.name", "self.context.name", "self.savepoint", "what", "way", "text", "option", "command", "names"}
)
"""What else stands in them: names of connections, ids, and words that are arguments already."""
PARTS = frozenset({"self.name", "self.path", "self._connection"})
"""What Python shows of its objects, which is no command."""
HOSTILE = [
    "public.x; touch pwned", "public.$(touch pwned)", "public.`touch pwned`", "public.a b", "public.it's", 'public."q"',
    "public.x && touch pwned", "public.x\ntouch pwned", "public.*", "public.~", "public.\x1b[2J", "public.\u202egnp",
    "public.x > pwned", "public.!x", "",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_one_argument_to_a_shell(tmp_path: Path, name: str) -> None:
    line = f"printf %s {argument(name)}"
    assert len(shlex.split(line)) == 3
    assert line.isprintable()
    told = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout == name or not name.isprintable()
    assert not list(tmp_path.iterdir())


def test_a_plain_name_is_written_as_it_is() -> None:
    assert [argument(name) for name in ("public.order", "order_2", "id,day")] == ["public.order", "order_2", "id,day"]


def _unquoted() -> Iterator[str]:
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            text = ""
            for part in node.values if isinstance(node, ast.JoinedStr) else ():
                if isinstance(part, ast.Constant):
                    text += str(part.value)
                    continue
                inner = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
                if NAMED.search(text) and inner not in WORDS | PARTS and "argument(" not in inner:
                    yield f"{file.relative_to(SOURCE)}:{node.lineno}: {inner}"
                text += "NAME"


def test_messages_offer_no_command_with_a_name_as_it_is() -> None:
    assert list(_unquoted()) == []
