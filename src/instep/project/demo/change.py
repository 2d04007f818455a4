"""What happens to the demo's databases between two syncs."""

from __future__ import annotations

from pathlib import Path

from instep.project.demo import server, till


def change_sources(folder: Path) -> None:
    """What the developers of both databases do; `folder` is the demo's, whose server is started if it is not up."""
    server.change_shop(server.up(server.state(folder)))
    till.change_till(folder)
