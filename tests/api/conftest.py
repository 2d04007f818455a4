from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_world import Api, ListedWork, project, serve


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with project(tmp_path) as app:
        yield serve(app, queue=ListedWork())
