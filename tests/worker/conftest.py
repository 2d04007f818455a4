from __future__ import annotations

from pathlib import Path

import pytest
from worker_world import Shop

TABLES = """
    create table item (id integer primary key, name text);
    create table box (id integer primary key, size int);
    insert into item values (1, 'pen'), (2, 'cup');
    insert into box values (1, 3);
"""


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write()
    made.sql(TABLES)
    made.store().close()  # tables are made by one thread of a process at a time
    return made


@pytest.fixture
def shops(tmp_path: Path) -> Shop:
    made = Shop(tmp_path, ("a", "b", "c"))
    made.write()
    made.sql(TABLES)
    made.store().close()  # tables are made by one thread of a process at a time
    return made
