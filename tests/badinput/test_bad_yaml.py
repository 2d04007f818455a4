"""Documents of a few lines that become gigabytes when aliases are followed, wherever YAML of others is read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from instep.errors import ProjectError
from instep.project.files.lock import read_lock
from instep.sources.airbyte.program import read_manifest
from instep.sources.versions import parse_breaking_changes, read_breaking_changes

LISTS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'lol'] * 9)}]" for n in range(9))
MERGES = "m0: &a0 {a: 1}\n" + "\n".join(f"m{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9))
TEXTS = f"a: &a {'x' * 500_000}\nb: &a8 [{', '.join(['*a'] * 1000)}]"
ITSELF = "a: &a8 [*a8]"
NUMBER = "a: &a8 1" + ":59" * 100_000
BOMBS = {"lists": LISTS, "merges": MERGES, "long texts": TEXTS, "itself": ITSELF, "a number": NUMBER}


def of_metadata(folder: Path, bomb: str) -> None:
    file = folder / "metadata.yaml"
    file.write_text(f"{bomb}\nreleases: {{breakingChanges: {{1.0.0: {{message: *a8}}}}}}\n")
    read_breaking_changes(file)


def of_manifest(folder: Path, bomb: str) -> None:
    file = folder / "manifest.yaml"
    file.write_text(f"{bomb}\nstreams: [{{type: *a8}}]\ncheck: {{}}\n")
    read_manifest(file, "shop")


def of_lock(folder: Path, bomb: str) -> None:
    (folder / "schemas").mkdir()
    (folder / "schemas" / "shop.lock.yml").write_text(f"{bomb}\nformat_version: 1\nconnection: *a8\ntables: []\n")
    read_lock(folder, "shop")


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("read", [of_metadata, of_manifest, of_lock])
def test_yaml_of_others_does_not_grow_without_bound(
    read: Callable[[Path, str], None], bomb: str, tmp_path: Path
) -> None:
    with pytest.raises(ProjectError, match="is not YAML"):
        read(tmp_path, bomb)


def test_a_bomb_takes_no_memory() -> None:
    """In a process of its own with little memory, which would end."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from instep.errors import ProjectError\n"
        "from instep.sources.versions import parse_breaking_changes\n"
        "import sys\n"
        "try: parse_breaking_changes(sys.stdin.read())\n"
        "except ProjectError: print('refused')\n"
    )
    text = f"{LISTS}\nreleases: {{breakingChanges: {{1.0.0: {{message: *a8}}}}}}\n"
    done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, timeout=60)
    assert done.stdout == "refused\n", done.stderr[-500:]


def test_what_is_repeated_within_the_bound_is_read() -> None:
    text = "a: &a {message: twice, <<: {deadlineAction: disable}}\nreleases: {breakingChanges: {1.0.0: *a, 2.0.0: *a}}"
    assert [one.message for one in parse_breaking_changes(text)] == ["twice", "twice"]
