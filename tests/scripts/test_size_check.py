"""The size check on small trees: each budget is broken once and names who broke it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "size_check.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("size_check", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["size_check"] = module
    spec.loader.exec_module(module)
    return module


size_check = load()


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def function(lines: int, name: str = "f") -> str:
    return f"def {name}():\n" + "    pass\n" * (lines - 1)


def lines(count: int) -> str:
    return "x = 1\n" * count


def broken(root: Path) -> dict[str, tuple[str, ...]]:
    return {finding.budget: finding.offenders for finding in size_check.findings(root) if not finding.ok}


def test_a_tree_within_all_budgets_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree(tmp_path, {"src/a/__init__.py": "", "src/a/b.py": function(8), "tests/test_b.py": lines(9)})
    assert size_check.main([str(tmp_path)]) == 0
    assert "FAIL" not in capsys.readouterr().out


SIZES = [
    ("file just small enough for the median", {"src/a.py": lines(400), "tests/t.py": lines(400)}, None, ""),
    ("file median", {"src/a.py": lines(401), "tests/t.py": lines(401)}, "file median", "src/a.py: 401 lines"),
    (
        "one long file among short ones",
        {"src/a.py": lines(601), "src/b.py": lines(5), "src/c.py": lines(5), "tests/t.py": lines(611)},
        "files over",
        "src/a.py: 601 lines",
    ),
    (
        "function median",
        {"src/a.py": function(11), "tests/t.py": lines(11)},
        "function median",
        "src/a.py:1 f: 11 lines",
    ),
    (
        "function p90",
        {
            "src/a.py": "".join(function(4, f"f{i}") for i in range(8)) + function(31, "g") + function(31, "h"),
            "tests/t.py": lines(94),
        },
        "function p90",
        "src/a.py:33 g: 31 lines",
    ),
    (
        "one long function among short ones",
        {
            "src/a.py": "".join(function(2, f"f{i}") for i in range(19)) + function(81, "long"),
            "tests/t.py": lines(119),
        },
        "functions over",
        "src/a.py:39 long: 81 lines",
    ),
    ("too few tests", {"src/a.py": lines(100), "tests/t.py": lines(79)}, "test lines", ""),
    ("few tests, still allowed", {"src/a.py": lines(100), "tests/t.py": lines(80)}, None, ""),
    ("many tests, still allowed", {"src/a.py": lines(100), "tests/t.py": lines(180)}, None, ""),
    ("too many tests", {"src/a.py": lines(100), "tests/t.py": lines(181)}, "test lines", ""),
]


@pytest.mark.parametrize(("files", "budget", "offender"), [c[1:] for c in SIZES], ids=[c[0] for c in SIZES])
def test_sizes(tmp_path: Path, files: dict[str, str], budget: str | None, offender: str) -> None:
    found = broken(tree(tmp_path, files))
    if budget is None:
        assert found == {}
        return
    matching = [offenders for name, offenders in found.items() if name.startswith(budget)]
    assert len(matching) == 1
    assert not offender or offender in matching[0]


def test_the_ratio_is_told_by_room_when_it_fails(tmp_path: Path) -> None:
    files = {"src/p/__init__.py": "x = 1\n", "src/p/one/a.py": lines(10), "tests/one/test_a.py": lines(2)}
    (offenders,) = broken(tree(tmp_path, files)).values()
    assert offenders == ("src/p/one: 0.20 (2 / 10)",)


def test_a_ratio_between_allowed_and_wished_is_noted(tmp_path: Path) -> None:
    (finding,) = size_check.check_ratio(tree(tmp_path, {"src/a.py": lines(10), "tests/t.py": lines(9)}))
    assert finding.ok
    assert "wished" in finding.note


NAMES = [
    ("function", "def load_helper(): ...\n", "src/a.py:1 load_helper: holds helper"),
    ("class, plural", "class PathUtils: ...\n", "src/a.py:1 PathUtils: holds util"),
    ("class after an acronym", "class HTTPHandler: ...\n", "src/a.py:1 HTTPHandler: holds handler"),
    ("argument", "def f(event_handler): ...\n", "src/a.py:1 event_handler: holds handler"),
    ("variable", "\nmanager = 1\n", "src/a.py:2 manager: holds manager"),
    ("attribute", "class A:\n    def f(self):\n        self.row_processor = 1\n", "row_processor: holds processor"),
    ("import as", "import os as util\n", "src/a.py:1 util: holds util"),
    ("used, not made", "import logging\nlogging.StreamHandler()\n", None),
    ("import of another's name", "from contextlib import contextmanager\n", None),
    ("a word within a word", "utility = process = processing = managed = 1\n", None),
]


@pytest.mark.parametrize(("source", "offender"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES])
def test_names(tmp_path: Path, source: str, offender: str | None) -> None:
    (finding,) = size_check.check_names(tree(tmp_path, {"src/a.py": source}))
    assert finding.ok is (offender is None)
    assert offender is None or any(offender in text for text in finding.offenders)


def test_a_file_name_counts_as_a_name(tmp_path: Path) -> None:
    (finding,) = size_check.check_names(tree(tmp_path, {"tests/path_utils.py": "x = 1\n"}))
    assert finding.offenders == ("tests/path_utils.py: the file's name holds util",)


GUARDS = [
    ("a word of the glossary's past", "check_house_words",
     {"src/a.py": "def open_desk(): ...\n"}, "src/a.py:1 open_desk"),
    ("a word within a word", "check_house_words", {"src/a.py": "desktop = 1\n"}, None),
    ("a file called by such a word", "check_house_words", {"src/held.py": "x = 1\n"}, "src/held.py"),
    (
        "a key of a document", "check_house_words",
        {"src/a.py": "class VerifyResult:\n    held_rows: int = 0\n    held_more: int = 0\n"}, "src/a.py:3 held_more",
    ),
    (
        "one class name in two rooms", "check_classes",
        {"src/a.py": "class Cut: ...\n", "src/b.py": "\nclass Cut: ...\n"}, "Cut: src/a.py:1, src/b.py:2",
    ),
    ("a class within another", "check_classes", {"src/a.py": "class A:\n    class A: ...\n"}, None),
    ("a name that stands for two things", "check_classes",
     {"src/a.py": "class Plan: ...\n", "src/b.py": "class Plan: ...\n"}, None),
    ("a fragment", "check_docstrings", {"src/a.py": 'def f():\n    """The rows."""\n'}, "src/a.py:1 f"),
    ("an error as a docstring", "check_docstrings",
     {"src/a.py": 'class A:\n    async def f():\n        """ReadError for no file."""\n'}, "src/a.py:2 f"),
    ("a sentence", "check_docstrings", {"src/a.py": 'def f():\n    """Return the rows."""\n'}, None),
    ("a property", "check_docstrings",
     {"src/a.py": 'class A:\n    @property\n    def f(self):\n        """The rows."""\n'}, None),
    ("a crowded folder", "check_folders", {f"src/a/n{i}.py": "x = 1\n" for i in range(23)}, "src/a: 23 files"),
    ("a full folder", "check_folders", {f"src/a/n{i}.py": "x = 1\n" for i in range(22)}, None),
    ("a line of code", "check_formatter", {"src/a.py": "def f():\n    x = 1  # fmt: skip\n"}, "src/a.py:2"),
    ("a block of code", "check_formatter", {"src/a.py": "def f():\n    # fmt: off\n    x = 1\n"}, "src/a.py:2"),
    ("a signature", "check_formatter",
     {"src/a.py": "def f(\n    x,\n) -> int:  # fmt: skip\n    return x\n"}, "src/a.py:3"),
    ("many tables of data", "check_formatter", {"src/a.py": "X = 1  # fmt: skip\n" * 41}, "src/a.py:41"),
    ("a table of data", "check_formatter", {"src/a.py": "X = (\n    1, 2,\n)  # fmt: skip\n"}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "files", "offender"), [case[1:] for case in GUARDS], ids=[case[0] for case in GUARDS]
)
def test_guards_of_the_house(tmp_path: Path, check: str, files: dict[str, str], offender: str | None) -> None:
    broken = [finding for finding in getattr(size_check, check)(tree(tmp_path, files)) if not finding.ok]
    assert bool(broken) is (offender is not None)
    assert offender is None or any(offender in text for finding in broken for text in finding.offenders)


HOSTS = [
    "https://files.python" + "hosted.org/packages/x.whl",
    "--index-url https://pypi.org/" + "simple",
    "https://repo1." + "mav" + "en.org/maven2",
    "https://repo." + "maven.apache.org/maven2/",
    "https://maven-" + "central.example/x",
    "https://oss." + "sonatype.org/content",
]


@pytest.mark.parametrize("host", HOSTS)
def test_registry_hosts_are_found_with_their_line(tmp_path: Path, host: str) -> None:
    (finding,) = size_check.check_hosts(tree(tmp_path, {"docs/setup.md": f"first\nsee {host}\n"}))
    assert not finding.ok
    assert finding.offenders[0].startswith("docs/setup.md:2 names the registry host")


def test_names_of_packages_and_projects_are_no_hosts(tmp_path: Path) -> None:
    text = "pip install instep\norg.apache.maven:plugin\nhttps://pypi.org/project/dlt\n"
    (finding,) = size_check.check_hosts(tree(tmp_path, {"docs/a.md": text, "logo.bin": "\x00"}))
    assert finding.ok


def test_binary_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\xff\xfe" + HOSTS[0].encode())
    assert size_check.check_hosts(tmp_path)[0].ok


def test_in_a_repository_ignored_files_are_not_read(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    tree(tmp_path, {".gitignore": "cache/\n", "cache/pip.log": HOSTS[0], "new.md": HOSTS[0]})
    (finding,) = size_check.check_hosts(tmp_path)
    assert [text.split(":")[0] for text in finding.offenders] == ["new.md"]


def test_failure_exits_1_and_prints_the_offender(tmp_path: Path) -> None:
    tree(tmp_path, {"src/a.py": function(100), "tests/t.py": lines(100)})
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAIL functions over 80: 1" in done.stdout
    assert "src/a.py:1 f: 100 lines" in done.stdout


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([1], 0.9, 1), ([1, 2], 0.5, 1), ([3, 1, 2], 0.9, 3), (list(range(1, 11)), 0.9, 9), (list(range(1, 21)), 0.9, 18)],
)
def test_percentile(values: list[int], share: float, expected: int) -> None:
    assert size_check.percentile(values, share) == expected
