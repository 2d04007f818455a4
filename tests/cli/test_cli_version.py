"""What answers without a project, and what is said where there is nothing to do."""

from __future__ import annotations

import pytest
from cli_world import Shop

from instep import __version__


@pytest.mark.parametrize("words", [("--version",), ("version",)])
def test_the_version(shop: Shop, words: tuple[str, ...]) -> None:
    (shop.folder / "instep.yml").unlink()
    assert shop.ok(*words).out == f"instep {__version__}\n"


def test_an_export_of_nothing(shop: Shop) -> None:
    """What instep.yml says is not kept by a server."""
    shop.ok("secrets", "new-key")
    said = shop.ok("export")
    assert "nothing to export: the server keeps nothing beside what instep.yml says" in " ".join(said.err.split())
    assert said.out == "{version: 1}\n"
