from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rollouts_world import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[[int], Fleet]]:
    made: list[Fleet] = []

    def make(count: int) -> Fleet:
        made.append(Fleet(tmp_path, count))
        return made[-1]

    yield make
    for one in made:
        one.store.close()
