"""Checks the size budgets of the code and what may not stand in the repository's texts.

    python scripts/size_check.py [ROOT]

Prints one line per budget and one line per offender; exits 1 if a budget is broken.
Lines are physical lines. A function counts from its `def` to its last line, the functions inside it included.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

FILE_MEDIAN, FILE_MOST = 400, 600
FUNCTION_MEDIAN, FUNCTION_P90, FUNCTION_MOST = 10, 30, 80
RATIO_WISHED, RATIO_ALLOWED = (1.0, 1.6), (0.8, 1.8)
FOLDER_MOST = 22
UNFORMATTED_MOST = 40
FORBIDDEN_WORDS = frozenset({"manager", "handler", "helper", "processor", "util"})
HOUSE_WORDS = frozenset(
    {
        "afar", "amend", "amendment", "asked", "brought", "cursoring", "desk", "fate", "heard", "held", "impacting",
        "keying", "kept", "lend", "likeness", "meant", "misfit", "patience", "recall", "recursor", "refill", "revival",
        "revive", "said", "standing", "stood", "sweep", "takeback", "told", "unborn", "unheeded", "voice", "wanted",
        "wish", "wishe",
    }
)  # fmt: skip
"""Words that docs/GLOSSARY.md has replaced, in names of the product."""
SERIALIZED = frozenset(
    {
        "DeletedConnection.kept", "LogState.kept", "Replayed.held", "TableHealth.held", "VerifyResult.held",
        "VerifyResult.held_rows", "VerifyResult.kept",
    }
)  # fmt: skip
"""Fields with such words that are keys of documents, which programs read."""
TWICE = frozenset(
    {
        "AcceptedVersion", "ConnectorLimits", "FileOptions", "Operations", "Options", "Plan", "Policy", "Progress",
        "Project", "RunOutcome", "SchemaVersion", "Selection", "SharedTable", "Table", "Wire",
    }
)  # fmt: skip
"""Class names that stand for two things: what Python users are given beside what it is made of, a section of a project
file beside what it configures, a record that is stored beside the one that is sent."""
# Written so that this file does not match itself.
REGISTRY_HOSTS = re.compile(
    r"python[h]osted|pypi\.org/[s]imple|(?:repo1?|search|central|oss)\.(?:[m]aven|[s]onatype)|[m]aven\.org|[m]aven-central\.",
    re.IGNORECASE,
)
FRAGMENT = re.compile(
    r"\(|`|[a-z]|(?:The|An?|All|One|What|Whether|Whoever|Of|For|With|In|Nothing|Everything|Its|Our)\b|\w+Error\b"
)
"""The beginning of a docstring that is no imperative sentence."""
CODE_FOLDERS = ("src", "tests", "scripts", "bench")


@dataclass(frozen=True)
class Sized:
    """A file or function with its length in lines; `where` is path or path:line name."""

    where: str
    lines: int


@dataclass(frozen=True)
class Finding:
    """One budget: what was measured, what is allowed, who breaks it."""

    budget: str
    measured: str
    ok: bool
    offenders: tuple[str, ...] = ()
    note: str = ""


def python_files(root: Path, folder: str) -> list[Path]:
    return sorted(path for path in (root / folder).rglob("*.py") if path.stat().st_size)


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(path: Path, shown: str) -> Iterator[Sized]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=shown)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Sized(f"{shown}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(share * 100) // 100) - 1)]


def largest(items: Sequence[Sized], count: int = 5) -> tuple[str, ...]:
    return tuple(f"{item.where}: {item.lines} lines" for item in sorted(items, key=lambda i: -i.lines)[:count])


def at_most(budget: str, value: float, limit: int, items: Sequence[Sized]) -> Finding:
    ok = value <= limit
    return Finding(f"{budget} at most {limit}", f"{value:g}", ok, () if ok else largest(items))


def none_over(budget: str, limit: int, items: Sequence[Sized]) -> Finding:
    over = [item for item in items if item.lines > limit]
    return Finding(f"{budget} over {limit}", str(len(over)) if over else "none", not over, largest(over, len(over)))


def check_files(root: Path) -> list[Finding]:
    files = [Sized(str(path.relative_to(root)), line_count(path)) for path in python_files(root, "src")]
    if not files:
        return []
    return [
        at_most("file median", median(item.lines for item in files), FILE_MEDIAN, files),
        none_over("files", FILE_MOST, files),
    ]


def check_functions(root: Path) -> list[Finding]:
    found = [item for path in python_files(root, "src") for item in functions(path, str(path.relative_to(root)))]
    if not found:
        return []
    lengths = [item.lines for item in found]
    return [
        at_most("function median", median(lengths), FUNCTION_MEDIAN, found),
        at_most("function p90", percentile(lengths, 0.9), FUNCTION_P90, found),
        none_over("functions", FUNCTION_MOST, found),
    ]


def check_ratio(root: Path) -> list[Finding]:
    """Lines of tests per line of source; per room the ratio is only shown when the whole is out of bounds."""
    source = sum(map(line_count, python_files(root, "src")))
    if not source:
        return []
    tests = sum(map(line_count, python_files(root, "tests")))
    ratio = tests / source
    low, high = RATIO_ALLOWED
    ok = low <= ratio <= high
    wished = RATIO_WISHED[0] <= ratio <= RATIO_WISHED[1]
    return [
        Finding(
            f"test lines per source line {low} to {high}",
            f"{ratio:.2f} ({tests} / {source})",
            ok,
            () if ok else tuple(room_ratios(root)),
            "" if wished else f"wished: {RATIO_WISHED[0]} to {RATIO_WISHED[1]}",
        )
    ]


def room_ratios(root: Path) -> Iterator[str]:
    package = next((path.parent for path in python_files(root, "src") if path.name == "__init__.py"), root / "src")
    for room in sorted(path for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"):
        source = sum(map(line_count, python_files(root, str(room.relative_to(root)))))
        tests = sum(map(line_count, python_files(root, f"tests/{room.name}")))
        if source:
            yield f"{room.relative_to(root)}: {tests / source:.2f} ({tests} / {source})"


def words(name: str) -> set[str]:
    """The words of a snake_case or CamelCase name, lower case, plural s cut."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {part.lower().removesuffix("s") for part in parts}


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names that the file makes itself; names that it only uses belong to others."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                yield from ((node.lineno, alias.asname) for alias in names if alias.asname)


def forbidden_names(path: Path, shown: str) -> Iterator[str]:
    if bad := words(path.stem) & FORBIDDEN_WORDS:
        yield f"{shown}: the file's name holds {', '.join(sorted(bad))}"
    for line, name in defined_names(ast.parse(path.read_text(encoding="utf-8"), filename=shown)):
        if bad := words(name) & FORBIDDEN_WORDS:
            yield f"{shown}:{line} {name}: holds {', '.join(sorted(bad))}"


def check_names(root: Path) -> list[Finding]:
    offenders = [
        text
        for folder in CODE_FOLDERS
        for path in python_files(root, folder)
        for text in forbidden_names(path, str(path.relative_to(root)))
    ]
    budget = f"names without {', '.join(sorted(FORBIDDEN_WORDS))}"
    return [Finding(budget, f"{len(offenders)} found" if offenders else "none", not offenders, tuple(offenders))]


def serialized_lines(tree: ast.Module) -> set[int]:
    """Return the lines of fields that are keys of documents."""
    return {
        field.lineno
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and f"{node.name}.{field.target.id}" in SERIALIZED
    }


def replaced_words(path: Path, shown: str) -> Iterator[str]:
    """Return the names of a file, its own included, with words that the glossary has replaced."""
    if bad := words(path.stem) & HOUSE_WORDS:
        yield f"{shown}: the glossary has another word for {', '.join(sorted(bad))}"
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=shown)
    serialized = serialized_lines(tree)
    for line, name in defined_names(tree):
        if (bad := words(name) & HOUSE_WORDS) and line not in serialized:
            yield f"{shown}:{line} {name}: the glossary has another word for {', '.join(sorted(bad))}"


def check_house_words(root: Path) -> list[Finding]:
    offenders = [
        text for path in python_files(root, "src") for text in replaced_words(path, str(path.relative_to(root)))
    ]
    measured = f"{len(offenders)} found" if offenders else "none"
    return [Finding("names with words that the glossary has replaced", measured, not offenders, tuple(offenders))]


def fragments(path: Path, shown: str) -> Iterator[str]:
    """Yield the functions, properties aside, whose docstring begins as no imperative sentence does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=shown)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_property = any("property" in ast.unparse(one) for one in node.decorator_list)
            if not is_property and FRAGMENT.match(ast.get_docstring(node) or ""):
                yield f"{shown}:{node.lineno} {node.name}: its docstring is no imperative sentence"


def check_docstrings(root: Path) -> list[Finding]:
    offenders = tuple(
        text for path in python_files(root, "src") for text in fragments(path, str(path.relative_to(root)))
    )
    measured = f"{len(offenders)} found" if offenders else "none"
    return [Finding("docstrings of functions that are fragments", measured, not offenders, offenders)]


def check_classes(root: Path) -> list[Finding]:
    places = defaultdict[str, list[str]](list)
    for path in python_files(root, "src"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(root)}:{node.lineno}")
    twice = {name: where for name, where in places.items() if len(where) > 1 and name not in TWICE}
    offenders = tuple(f"{name}: {', '.join(where)}" for name, where in sorted(twice.items()))
    return [Finding("class names that are defined twice", str(len(twice)) if twice else "none", not twice, offenders)]


def check_folders(root: Path) -> list[Finding]:
    count = Counter(str(path.parent.relative_to(root)) for path in python_files(root, "src"))
    crowded = tuple(f"{folder}: {files} files" for folder, files in sorted(count.items()) if files > FOLDER_MOST)
    return [
        Finding(f"folders over {FOLDER_MOST} files", str(len(crowded)) if crowded else "none", not crowded, crowded)
    ]


def check_formatter(root: Path) -> list[Finding]:
    """The formatter is off for large tables of data alone: they stand at the margin, and there are few."""
    off = [
        (f"{path.relative_to(root)}:{number}", line)
        for path in python_files(root, "src")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"# fmt: (skip|off)", line)
    ]
    offenders = tuple(place for place, line in off if line[:1].isspace() or re.search(r":\s+# fmt: skip", line))
    measured = f"{len(offenders)} found" if offenders else "none"
    return [
        Finding("formatter off outside tables of data", measured, not offenders, offenders),
        Finding(
            f"tables without the formatter at most {UNFORMATTED_MOST}",
            str(len(off)),
            len(off) <= UNFORMATTED_MOST,
            tuple(place for place, _ in off) if len(off) > UNFORMATTED_MOST else (),
        ),
    ]


def repository_files(root: Path) -> list[Path]:
    """Files that Git tracks or would add; outside a repository every file."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"], capture_output=True, text=True, check=False
    )
    if listed.returncode:
        return sorted(path for path in root.rglob("*") if path.is_file())
    return sorted(path for name in listed.stdout.split("\0") if name and (path := root / name).is_file())


def host_lines(path: Path, shown: str) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if found := REGISTRY_HOSTS.search(line):
            yield f"{shown}:{number} names the registry host {found.group()}"


def check_hosts(root: Path) -> list[Finding]:
    offenders = [text for path in repository_files(root) for text in host_lines(path, str(path.relative_to(root)))]
    measured = f"{len(offenders)} found" if offenders else "none"
    return [Finding("registry hosts in texts", measured, not offenders, tuple(offenders))]


def findings(root: Path) -> list[Finding]:
    checks = (
        check_files, check_functions, check_folders, check_ratio, check_names, check_house_words, check_classes,
        check_docstrings, check_formatter, check_hosts,
    )  # fmt: skip
    return [finding for check in checks for finding in check(root)]


def show(found: Sequence[Finding]) -> str:
    lines = []
    for finding in found:
        mark = "ok  " if finding.ok else "FAIL"
        note = f"  ({finding.note})" if finding.note else ""
        lines.append(f"{mark} {finding.budget}: {finding.measured}{note}")
        lines += [f"       {offender}" for offender in finding.offenders]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    found = findings(root)
    print(show(found))
    return 0 if all(finding.ok for finding in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
