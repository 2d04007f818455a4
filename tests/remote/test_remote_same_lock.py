"""The lock file: written and compared where it is, by what the project or its server has accepted."""

from __future__ import annotations

import pytest
from remote_world import Twins, alike

JSON = ("--output", "json")


@pytest.mark.slow
def test_the_lock_file_of_a_checkout_is_compared(twins: Twins) -> None:
    twins.both("plan", "--check", code=2)
    twins.both("apply", "--yes", *JSON)
    twins.both("schema", "lock", "--check", code=2)
    twins.both("schema", "lock", *JSON)
    near, far = (folder / "schemas" / "shop.lock.yml" for folder in (twins.near.folder, twins.far.folder / "elsewhere"))
    assert alike(near.read_text()) == alike(far.read_text())
    assert not (twins.far.folder / "schemas").exists(), "it stands where the command is typed"
    for words in (("plan", "--check"), ("schema", "lock", "--check"), ("plan", "--check", *JSON)):
        twins.both(*words)
    twins.sql("alter table item add column price numeric")
    _, there = twins.both("plan", "--check", *JSON, code=2)
    assert there.json["behind"] == ["not accepted yet: column main.item.price added (string)"]
    for file in (near, far):
        file.write_text(file.read_text().replace("name", "nome"))
    twins.both("schema", "lock", "--check", code=2)
    for file in (near, far):
        file.write_text("- no lock file\n")
    for run in (twins.near.here, twins.far.there):
        damaged = run("plan", "--check")
        assert (damaged.code, "shop.lock.yml" in damaged.err) == (1, True)
