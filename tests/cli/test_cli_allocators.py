"""Commands hand back the memory that they free, whatever allocators pyarrow and glibc would choose by themselves, and
leave no core files."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

LOOKS = """
import os
from instep.allocators import be_frugal, callers_environment
from instep.engine.address import library_variables
before = dict(os.environ), library_variables()
be_frugal()
import pyarrow
print(pyarrow.default_memory_pool().backend_name, (callers_environment(), library_variables()) == before)
"""


@pytest.mark.parametrize(
    ("given", "pool"),
    [
        ({}, "system"),
        ({"MALLOC_ARENA_MAX": "4"}, "system"),
        ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc"),
    ],
    ids=["nothing", "arenas", "a pool"],
)
def test_arrow_takes_the_systems_memory_unless_the_caller_says_otherwise(given: dict[str, str], pool: str) -> None:
    """What a child, or an engine, gets of the caller is as it was."""
    chosen = ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX", "OPENBLAS_NUM_THREADS")
    env = {name: value for name, value in os.environ.items() if name not in chosen} | given
    done = subprocess.run([sys.executable, "-c", LOOKS], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [pool, "True"]


def test_a_crash_leaves_no_core_file() -> None:
    """Neither of a command nor of what it starts: passwords would be in it."""
    shows = "import subprocess; from instep.cli import entry; entry.forbid_core_files(); {0}"
    asks = "subprocess.run(['sh', '-c', 'ulimit -S -c'], check=True)"
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    done = subprocess.run(
        [sys.executable, "-c", shows.format(asks)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
    )
    assert done.stdout.split() == ["0"]
