"""What answers without a project, and what is said where there is nothing to do."""

from __future__ import annotations

import pytest
from cli_world import Shop

from instep import __version__


@pytest.mark.parametrize("words", [("--version",), ("version",)])
def test_the_version(shop: Shop, words: tuple[str, ...]) -> None:
    (shop.folder / "instep.yml").unlink()
    assert shop.ok(*words).out == f"instep {__version__}\n"


@pytest.mark.parametrize("keys", [False, True], ids=["without a master key", "with one"])
def test_an_export_of_nothing(shop: Shop, keys: bool) -> None:
    """What instep.yml says is not kept by a server."""
    if keys:
        shop.ok("secrets", "new-key")
    said = shop.ok("export")
    assert "nothing to export: the server has no configuration beyond instep.yml" in " ".join(said.err.split())
    assert said.out == "{version: 1}\n"


def test_an_export_of_something_needs_the_keys(shop: Shop) -> None:
    """It says so before it writes."""
    shop.ok("secrets", "new-key")
    file = shop.folder / "more.yml"
    file.write_text("sources: {more: {type: sqlite, path: data/more.db}}\n")
    shop.ok("import", "project", str(file))
    assert "more.db" in shop.ok("export").out
    (shop.folder / ".instep" / "keys").unlink()
    said = shop.run("export")
    assert (said.code, said.out) == (1, "")
    assert "there is no master key to encrypt secrets with" in said.err
