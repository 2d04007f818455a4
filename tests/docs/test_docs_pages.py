"""Pages that are made from the code, and pages that must not fall behind it."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

from instep import errors
from instep.cli import context
from instep.cli.main import app
from instep.project.load import load
from instep.schema.policy.presets import ACTIONS, KINDS, PRESETS, SUSPECTED, TABLE_OF_PRESETS
from instep.sources.mysql import types as mysql_types
from instep.sources.postgres import types as postgres_types
from instep.sources.sqlite import types as sqlite_types

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def script(name: str) -> ModuleType:
    """A script as a module; scripts may import each other."""
    if str(ROOT / "scripts") not in sys.path:
        sys.path.append(str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def pages() -> list[Path]:
    """Every page of the site, and the README."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", ["types_page", "policies_page", "selection_page", "api_keys_page"])
def test_made_pages_are_up_to_date(name: str) -> None:
    assert script(name).main(["--check"]) == 0, f"run: python scripts/{name}.py"


def test_a_page_that_fell_behind_is_noticed_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    types, policies = script("types_page"), script("policies_page")
    for module, name in ((types, "reference/types.md"), (policies, "guides/policies.md")):
        page = tmp_path / Path(name).name
        page.write_text(
            read(name).replace("decimal", "dezimal").replace("| column.added | apply |", "| column.added |")
        )
        monkeypatch.setattr(module, "PAGE", page)
        assert module.main(["--check"]) == 1
        assert module.main([]) == 0
        assert page.read_text() == read(name)
    with pytest.raises(ValueError, match="no marks"):
        policies.page("# Policies\n")


def test_every_type_that_a_source_knows_is_on_the_page() -> None:
    page = read("reference/types.md")
    named = [
        *postgres_types._PLAIN, *postgres_types._LOOSE, *sqlite_types._NAMED, *mysql_types._PLAIN,
        *mysql_types._INTEGERS, *(f"{base} unsigned" for base in mysql_types._UNSIGNED),
    ]  # fmt: skip
    assert [name for name in named if f"| `{name}` |" not in page] == []
    for base in (*mysql_types._TEXTS, *mysql_types._BYTES):
        assert f"| `{base}` |" in page or f"| `{base}(n)` |" in page, base


def cells(text: str) -> Iterator[list[str]]:
    """The rows of the Markdown tables in a text, without heads and rulers."""
    rows = [[c.strip() for c in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")]
    for before, row in zip([[], *rows], rows, strict=False):
        if not set("".join(row)) <= {"-", " ", "|"} and before:
            yield row


def test_every_preset_kind_and_action_is_in_the_policies() -> None:
    text = read("guides/policies.md")
    table = text.partition("<!-- made by")[2].partition("<!-- end -->")[0]
    assert table.splitlines()[1].count("|") == len(PRESETS) + 2
    assert all(f"{name} |" in table or f"{name} (default) |" in table for name in PRESETS)
    shown = [kind for row in cells(table) for kind in row[0].split(", ")]
    assert sorted(shown) == sorted([*KINDS, "suspected rename"])
    assert all(f"| `{action}` |" in text for action in ACTIONS)


def test_the_table_of_presets_says_what_the_code_says() -> None:
    table = read("guides/policies.md").partition("<!-- made by")[2].partition("<!-- end -->")[0]
    shown = {row[0]: [re.split(r"[:|]", cell)[0].strip() for cell in row[1:]] for row in cells(table)}
    wanted = {
        "suspected rename" if kinds == SUSPECTED else ", ".join(kinds.split()): [c.action for c in row]
        for kinds, row in TABLE_OF_PRESETS.items()
    }
    assert shown == wanted


def commands() -> Iterator[str]:
    """Every command as it is typed, such as `changes list`."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        yield from (f"{name} {word}" for word in below) if below else (name,)


def test_every_command_is_documented() -> None:
    rows = [row[0] for row in cells(read("reference/commands.md").partition("## Exit codes")[0])]
    said: set[str] = set()
    for text in re.findall(r"`([^`]+)`", " ".join(rows)):
        words = re.sub(r"\[.*\]|\".*?\"|--\S+|\b[A-Z]+\b", "", text).split(",")
        group = words[0].split()[0]
        grouped = len(words) > 1 or len(words[0].split()) > 1
        said |= {f"{group} {w.split()[-1]}" for w in words} if grouped else {group}
    assert said == set(commands())


def test_every_exit_code_is_documented() -> None:
    said = {
        int(row[0]) for row in cells(read("reference/commands.md").partition("## Exit codes")[2]) if row[0].isdigit()
    }
    mine = {context.USAGE, context.INTERRUPTED, context.CHANGES, context.BLOCKED, context.PARTIAL, context.QUARANTINED}
    kinds = (e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.InstepError))
    assert said == {0, *mine, *(kind.exit_code for kind in kinds)}


def test_every_global_option_is_documented() -> None:
    text = read("reference/commands.md").partition("| command")[0]
    options = {o for p in get_command(app).params for o in p.opts if o.startswith("--")}
    assert {o for o in options if o not in text} == {"--install-completion", "--show-completion"}


def every_option() -> Iterator[tuple[str, str]]:
    """Every long option with the command that has it, such as (`notify log`, `--limit`)."""

    def below(command: Any, path: str) -> Iterator[tuple[str, str]]:
        for name, one in getattr(command, "commands", {}).items():
            yield from below(one, f"{path} {name}".strip())
        if not hasattr(command, "commands") and not command.hidden:
            shown = (p for p in command.params if not getattr(p, "hidden", False))
            yield from ((path, o) for p in shown for o in (*p.opts, *p.secondary_opts) if o.startswith("--"))

    return below(get_command(app), "")


def test_every_option_of_every_command_is_documented() -> None:
    """Some section of some page names the option and its command."""
    sections = [part for page in pages() for part in re.split(r"^#+ ", page.read_text(encoding="utf-8"), flags=re.M)]
    named = [frozenset(re.findall(r"(?<![\w-])(?:--)?\w[\w-]*", section)) for section in sections]
    missing = [(path, o) for path, o in every_option() if not any(n.issuperset((*path.split(), o)) for n in named)]
    assert missing == []


def test_the_readme_s_project_loads(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    tmp_path.joinpath("instep.yml").write_text(block)
    assert load(tmp_path, {}).connections == ("shop",)


def test_links_between_pages_lead_somewhere() -> None:
    for page in pages():
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            target, _, anchor = link.partition("#")
            file = (page.parent / target) if target else page
            assert link.startswith("http") or file.exists(), (page.name, link)
            if anchor:
                heads = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}, (
                    page.name,
                    link,
                )


def test_the_tests_that_pages_name_are_there() -> None:
    """docs/guides/security.md says of each protection which tests show it."""
    named = {
        (page.name, found)
        for page in DOCS.rglob("*.md")
        for found in re.findall(r"`(tests/[\w/.]+)`", page.read_text())
    }
    assert {page for page, _ in named} >= {"security.md"}
    assert [f"{page}: {path}" for page, path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_packages_of_the_architecture_are_those_of_the_import_contract() -> None:
    """Both name every package once, in the same order from the top to the bottom."""
    section = read("explanation/architecture.md").partition("## Packages")[2].partition("\n## ")[0]
    shown = [name for row in cells(section) for name in re.findall(r"`(\w+)`", row[0])]
    contract = (ROOT / ".importlinter").read_text().partition("layers =\n")[2].partition("\n\n")[0]
    layers = [{name.strip() for name in line.split("|")} for line in contract.splitlines()]
    assert sorted(shown) == sorted(name for layer in layers for name in layer)
    assert [next(i for i, layer in enumerate(layers) if name in layer) for name in shown] == sorted(
        next(i for i, layer in enumerate(layers) if name in layer) for name in shown
    )


def test_the_files_of_the_page_of_changes_are_there() -> None:
    rows = list(cells(read("explanation/where.md")))
    assert len(rows) >= 20
    missing = [
        path
        for row in rows
        for path in re.findall(r"`([\w/]+(?:\.py|/))`", row[1])
        if not (ROOT / "src" / "instep" / path).exists()
    ]
    assert missing == []


def test_the_figures_of_the_readme_are_those_of_the_benchmark() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Benchmark")[2].partition("\n## ")[0]
    rows = [row[1:] for row in cells(table)]
    assert len(rows) == 4
    targets = read("reference/benchmarks.md").partition("## Against the targets")[2]
    shown = {(ours, theirs) for ours, theirs in re.findall(r"\| (\S+ s) beside (\S+ s) ", targets)}
    assert {(row[0], " ".join(row[1].split()[:2])) for row in rows} <= shown


OURS_ALONE = re.compile(r"\b(misfits?|web hooks?|lets? in|by hand|(?:the|a|an|this|that) lakes?)\b", re.IGNORECASE)
"""Words of our own for which the field has one: docs/GLOSSARY.md."""


def test_the_pages_use_the_field_s_words() -> None:
    found = []
    for page in pages():
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [f"{page.name}: {match[0]}" for match in OURS_ALONE.finditer(prose)]
    assert found == []


def test_every_decision_is_in_the_index_and_has_its_three_parts() -> None:
    index = read("adr/index.md")
    for page in sorted((DOCS / "adr").glob("0*.md")):
        text = page.read_text(encoding="utf-8")
        number, title = re.match(r"# (\d+)\. (.*)", text).groups()  # type: ignore[union-attr]
        assert f"| {number} | [{title}]({page.name}) |" in index
        assert int(number) == int(page.name[:4])
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], page.name
