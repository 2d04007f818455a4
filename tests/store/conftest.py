from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import URL
from store_world import Clock

from instep.store import migrations
from instep.store.engine import migrate
from instep.store.store import Store

LATER = """
import sqlalchemy as sa
from alembic import op

revision = "{after}"
down_revision = "{before}"


def upgrade():
    op.add_column("connections", sa.Column("shouted", sa.Text(), server_default="", nullable=False))
    op.execute("UPDATE connections SET shouted = upper(name), namespace = 'moved'")
    op.create_index("ix_connections_shouted", "connections", ["shouted"])


def downgrade():
    op.drop_index("ix_connections_shouted", "connections")
    op.drop_column("connections", "shouted")
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[Store]:
    with Store(url, now=clock) as opened:
        yield opened


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.drawn(3))])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both databases that the SQL is written for."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state.db'}"
    config = request.getfixturevalue("postgres").config
    place = URL.create("postgresql+psycopg", config.user, config.password, config.host, config.port, config.database)
    return place.render_as_string(hide_password=False)


@pytest.fixture
def any_store(any_url: str, clock: Clock) -> Iterator[Store]:
    with Store(any_url, now=clock) as opened:
        yield opened


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Let this code know one more migration, in a folder of the test; return the revisions before and after it."""
    before, after = migrate.HEAD, f"{int(migrate.HEAD) + 1:04}"
    shutil.copytree(Path(migrations.__file__).parent, tmp_path / "migrations")
    file = tmp_path / "migrations" / "versions" / f"m{after}_later.py"
    file.write_text(LATER.format(before=before, after=after))
    monkeypatch.setattr(migrate, "PLACE", str(tmp_path / "migrations"))
    monkeypatch.setattr(migrate, "HEAD", after)
    return before, after
