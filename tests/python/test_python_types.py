"""What users see of the Python API: a script of theirs type-checks strictly, docstrings say what there is to know."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import instep
from instep.operations.spec import Preview

SCRIPT = """\
from pathlib import Path

import instep
from instep.errors import Blocked, InstepError


def rows(done: instep.SyncResult) -> dict[str, int]:
    return {".".join(one.table): one.inserted for one in done.tables}


def main(folder: Path) -> int:
    with instep.open(folder) as project:
        shop = project.connection("shop")
        reveal_type(shop.sync(on_progress=lambda now: print(now.table, now.rows)))
        reveal_type(shop.detect().changes[0].summary)
        reveal_type(shop.plan().apply(allow=["main.orders.*"]))
        reveal_type(shop.table("main.orders").savepoints()[0].id)
        reveal_type(shop.verify()[0].equal)
        reveal_type(shop.policy.test([{"change": "column.removed"}]).failed[0].wrong)
        reveal_type(project.query("select 1").rows)
        reveal_type(shop.quarantine.entries()[0])
        try:
            shop.run(shop.preview(instep.RestoreRequest(table="main.orders", snapshot="1")))
        except Blocked as error:
            print(error.message)
        except InstepError:
            return 1
    return len(rows(shop.sync()))
"""
REVEALED = [
    "SyncResult", "str", "int", "int", "bool", "Sequence[str]", "list[tuple[Any, ...]]", "Document",
]  # fmt: skip


def check(folder: Path, script: str) -> tuple[int, str]:
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "script.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_script_of_a_user_type_checks_strictly(tmp_path: Path) -> None:
    code, said = check(tmp_path, SCRIPT)
    assert code == 0, said
    found = [re.sub(r"[\w.]+\.(?=\w+)", "", text) for text in re.findall(r'Revealed type is "(.*)"', said)]
    assert found == REVEALED
    wrong = SCRIPT.replace("shop.verify()[0].equal", "shop.verify()[0].equals").replace("full", "ful")
    code, said = check(tmp_path, wrong)
    assert code == 1
    assert '"VerifyResult" has no attribute "equals"' in said


def public() -> Iterator[tuple[str, Any]]:
    """Every public function, class, method and property, by its name."""
    for name in instep.__all__:
        thing = getattr(instep, name)
        yield name, thing
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and isinstance(value, FunctionType | property | classmethod):
                    yield f"{name}.{member}", value


PUBLIC = dict(public())


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_are_imperative_and_name_every_parameter(name: str) -> None:
    thing = PUBLIC[name]
    text = inspect.getdoc(thing)
    assert text, name
    first = text.splitlines()[0].split()[0]
    if inspect.isclass(thing):
        return
    assert re.fullmatch(r"[A-Z][a-z]+", first), f"{name} begins with {first}"
    assert not first.endswith("s") or first in ("Pass", "Compress"), (
        f"{name} begins with {first}, which is no imperative"
    )
    function = thing if isinstance(thing, FunctionType) else None
    if function is not None and len(text) > 200:
        named = [p for p in inspect.signature(function).parameters if p not in ("self", "on_progress")]
        missing = [p for p in named if f"`{p}`" not in text and p not in text]
        assert not missing, f"{name} does not say what {missing} are"


SHOWN = [name for name, thing in PUBLIC.items() if inspect.isclass(thing) and hasattr(thing, "_repr_html_")]


def test_results_are_shown_in_notebooks() -> None:
    results = {"BackfillEstimate", "Changes", "Detection", "Document", "Plan", "PolicyTest", "QueryResult", "Records"}
    assert results | {"SyncResult"} == set(SHOWN)
    assert hasattr(Preview, "_repr_html_")


def test_each_class_has_an_example_that_compiles() -> None:
    found = 0
    for name in ("Connection", "Plan", "Policy", "PolicyTest", "Progress", "Project", "Quarantine", "QueryResult",
                 "Records", "Selection", "SyncResult", "Table"):  # fmt: skip
        text = inspect.getdoc(getattr(instep, name)) or ""
        [example] = re.findall(r"Example:\n((?:    .*\n?|\n)+)", text)
        compile(textwrap.dedent(example), name, "exec")
        found += 1
    assert found == 12
