"""The documentation builds as a site without a warning, and the site loads nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_docs_pages import pages, script
from typer.main import get_command

from instep.cli.main import app

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [str(Path(sys.executable).parent / "properdocs"), "build", "--quiet", "--config-file", "mkdocs.yml"]
    done = subprocess.run([*command, "--site-dir", str(folder)], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_loads_nothing_from_elsewhere_and_renders(site: Path) -> None:
    assert list(script("site_check").findings(site)) == []


def test_every_page_is_found_by_the_offline_search(site: Path) -> None:
    known = {entry["location"] for entry in json.loads((site / "search" / "search_index.json").read_text())["docs"]}
    wanted = {page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for page in pages()[1:]}
    assert wanted - known == set()


FAULTS = [
    (
        "a font",
        '<link href="https://fonts.example.org/x.css" rel="stylesheet">',
        "loads https://fonts.example.org/x.css",
    ),
    ("a script of the same scheme", '<script src="//cdn.example.org/x.js"></script>', "loads //cdn.example.org/x.js"),
    ("a picture", '<p><img src="http://example.org/x.png"></p>', "loads http://example.org/x.png"),
    ("a style", '<p style="background: url(https://example.org/x.png)">x</p>', "loads https://example.org/x.png"),
    ("a list", "<p>These:\n- one\n- two</p>", "shows Markdown as text: - one"),
    ("a table", "<p>These:\n| a | b |\n| --- | --- |</p>", "shows Markdown as text: | a | b |"),
]


@pytest.mark.parametrize(("name", "html", "finding"), FAULTS, ids=[f[0] for f in FAULTS])
def test_what_a_site_must_not_have_is_found(tmp_path: Path, name: str, html: str, finding: str) -> None:
    (tmp_path / "page.html").write_text(f"<html><body>{html}</body></html>")
    assert list(script("site_check").findings(tmp_path)) == [f"page.html {finding}"]
    assert script("site_check").main([str(tmp_path)]) == 1


def test_links_that_readers_follow_and_code_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<a href="https://example.org">x</a><p>x <code>- a\n- b</code></p>')
    (tmp_path / "x.css").write_text(
        "@font-face { src: url(../x.woff2) } a { background: url(data:image/png;base64,x) }"
    )
    assert script("site_check").main([str(tmp_path)]) == 0
    (tmp_path / "x.css").write_text("@import 'https://example.org/x.css';")
    assert list(script("site_check").findings(tmp_path)) == ["x.css loads https://example.org/x.css"]


def typed() -> Iterator[tuple[str, str]]:
    """Every command line in a block of a page: the page, and the line without its prompt and comment."""
    for page in pages():
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for line in re.findall(r"^(?:\$ )?(instep [a-z-].*)$", block, re.MULTILINE):
                yield page.name, re.split(r" {2,}#| [|>&;]", line)[0]


def unknown(line: str) -> str:
    """What of a command line there is not: a command or an option; empty if all of it is there."""
    root: Any = get_command(app)
    found, options = root, {o for p in root.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
    for word in shlex.split(line)[1:]:
        if word.startswith("-"):
            if word.split("=")[0] not in options:
                return word
        elif hasattr(found, "commands"):
            if word not in found.commands:
                return word
            found = found.commands[word]
            options |= {o for p in found.params for o in (*p.opts, *p.secondary_opts)}
    return ""


def test_every_command_of_a_page_is_there_with_its_options() -> None:
    lines = list(typed())
    assert len(lines) > 40
    assert [(page, line, unknown(line)) for page, line in lines if unknown(line)] == []


def test_a_command_that_is_not_there_is_noticed() -> None:
    assert unknown("instep changes approve c-1 --yes") == ""
    assert unknown("instep changes agree c-1") == "agree"
    assert unknown("instep sync --ful") == "--ful"
