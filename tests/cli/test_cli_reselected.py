"""What the file chooses otherwise, and a namespace that it changes, are said before anything is read."""

from __future__ import annotations

import pytest
from cli_world import PROJECT, Shop

from instep.schema.planning.projection import LoadedColumn

REF = ("main", "customer")
LOADED = (LoadedColumn("id"), LoadedColumn("name", read=False), LoadedColumn("city"))


def written(shop: Shop, *lines: str) -> None:
    """More of the connection in instep.yml."""
    entry = "  shop: {source: db, destination: lake, policy: careful}\n"
    shop.write(text=PROJECT.replace(entry, "  shop:\n    policy: careful\n" + "".join(f"    {x}\n" for x in lines)))


@pytest.fixture
def loaded(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """As after a load without the name."""
    monkeypatch.setenv("SALT", "secret")
    shop.applied()
    with shop.store() as store:
        store.loaded.save("shop", {REF: LOADED})
    return shop


def test_status_says_what_the_next_sync_reads_again(loaded: Shop) -> None:
    written(loaded, "salt: ${env:SALT}", "hash: [main.customer.city]")
    [shop] = loaded.json("status")["connections"]
    assert shop["reselected"] == [
        {"column": "main.customer.name", "is": "on", "reads_table": False},
        {"column": "main.customer.city", "is": "hashed", "reads_table": True},
    ]
    said = loaded.ok("status").out
    assert "main.customer.city was hashed after the last load; the next sync reloads its table" in said
    assert "main.customer.name was re-enabled after the last load; existing rows were not backfilled" in said
    assert "secret" not in said
    assert "it is hashed now, so a sync reads the whole table" in loaded.ok("plan").out


def test_status_says_what_is_in_clear_until_hashes_fit(loaded: Shop) -> None:
    """The name has 30 characters, and hashes 64: that is a change of type."""
    written(loaded, "salt: ${env:SALT}", "hash: [main.customer.name]")
    said = loaded.ok("status").out
    assert "main.customer.name will be hashed; existing rows stay in clear until" in said


def test_a_column_that_the_source_has_dropped_is_not_chosen(shop: Shop) -> None:
    """Its removal waits for a decision; nobody has switched it on."""
    shop.ok("sync")
    shop.sql("alter table customer drop column city")
    for _ in range(2):
        shop.run("sync")
    assert shop.json("status")["connections"][0]["reselected"] == []
    assert "after the last load" not in shop.ok("status").out


def test_a_retained_column_that_is_hashed_is_said_until_it_is_dropped(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SALT", "secret")
    shop.write(text=PROJECT.replace("policy: careful}", "policy: allow_all, salt: '${env:SALT}'}"))
    shop.ok("sync")
    shop.sql("alter table customer drop column city")
    shop.ok("sync"), shop.ok("sync")
    command = "instep sync shop --drop-column main.customer.city"
    dry = shop.ok("selection", "hash", "main.customer.city", "--dry-run")
    assert "its loaded values stay in clear" in dry.out
    assert command in " ".join(dry.out.split())
    assert shop.json("status")["connections"][0]["reselected"] == []
    said = shop.ok("selection", "hash", "main.customer.city")
    assert command in " ".join(said.err.split())
    for _ in range(2):
        found = shop.json("status")["connections"][0]["reselected"]
        assert found == [{"column": "main.customer.city", "is": "retained", "reads_table": False}]
        assert command in " ".join(shop.ok("status").out.split())
        assert command in " ".join(shop.ok("plan").out.split())
        assert any(command in note for note in shop.json("sync")["notes"])
    shop.ok(*command.split()[1:])
    assert shop.json("status")["connections"][0]["reselected"] == []
    assert "city" not in str(shop.json("query", "select * from shop.customer")["columns"])


@pytest.mark.parametrize(("accepted", "is_said"), [("string", False), ("int32", True)])
def test_a_type_of_the_source_that_was_kept_out_is_no_retype(shop: Shop, accepted: str, is_said: bool) -> None:
    """The last load has read `city` as another type than the accepted one, into a column of `accepted`."""
    shop.applied()
    with shop.store() as store:
        store.loaded.save("shop", {REF: (LoadedColumn("city", native="integer", type=accepted),)})
    assert ("was retyped after the last load" in shop.ok("status").out) is is_said


def test_what_is_read_as_a_whole_anyway_is_said_once(loaded: Shop) -> None:
    with loaded.store() as store:
        store.backfills.request("shop", REF, why="asked for")
    assert loaded.json("status")["connections"][0]["reselected"] == []


@pytest.mark.parametrize("command", [("plan",), ("apply", "--yes")])
def test_another_namespace_is_refused(loaded: Shop, command: tuple[str, ...]) -> None:
    written(loaded, "namespace: elsewhere")
    said = loaded.run(*command)
    assert said.code == 3
    assert "already loaded into namespace 'shop', which stays" in said.err
    assert "write `namespace: shop` under it in instep.yml" in said.err
    written(loaded, "namespace: shop")
    loaded.ok("plan")


def test_status_goes_on_saying_that_older_rows_lack_a_column(shop: Shop) -> None:
    text = PROJECT.replace("policy: careful}", "policy: careful, tables: {main.customer: {cursor: id}}}")
    shop.write(text=text)
    shop.ok("sync")
    shop.sql("alter table customer add column tier int default 3; insert into customer values (9, 'Cy', 'Rome', 4)")
    lacks = "main.customer.tier: rows that do not change keep NULL in it until `instep backfill main.customer --column"
    for _ in range(3):
        assert [note for note in shop.json("sync")["notes"] if lacks in note] == [f"{lacks} tier`"]
        assert shop.json("status")["connections"][0]["partial"] == [
            {"table": "main.customer", "column": "tier", "command": "instep backfill main.customer --column tier"}
        ]
    found = shop.run("verify")
    assert (found.code, lacks in " ".join(found.out.split())) == (1, True)
    said = shop.ok("status").out
    assert "main.customer.tier: existing rows lack its values until they change; to backfill them run" in said
    assert "`instep backfill main.customer --column tier`" in said.replace("\n", " ")
    shop.ok("backfill", "main.customer", "--column", "tier")
    assert not [note for note in shop.json("sync")["notes"] if "tier" in note]
    assert shop.run("verify").code == 0
    assert shop.json("status")["connections"][0]["partial"] == []


@pytest.mark.parametrize("by", ["command", "file"])
def test_what_is_hashed_no_more_is_open_until_its_table_is_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("SALT", "secret")
    salted = PROJECT.replace("policy: careful}", "policy: allow_all, salt: '${env:SALT}', MORE}")
    hashed = salted.replace("MORE", "hash: [main.customer.city]" if by == "file" else "tags: [x]")
    shop.write(text=hashed)
    if by == "command":
        shop.ok("detect")
        shop.ok("selection", "hash", "main.customer.city")
    shop.ok("sync")
    assert shop.run("verify").code == 0
    shop.write(text=salted.replace("MORE", "tags: [x]"))
    if by == "command":
        shop.ok("selection", "unhash", "main.customer.city")
    for _ in range(2):
        [status] = shop.json("status")["connections"]
        pending = [".".join(b["table"]) for b in status["backfills"]] + [r["column"] for r in status["reselected"]]
        assert pending in (["main.customer"], ["main.customer.city"]), by
        assert shop.run("verify").code == 1, "clear values at the source, hashes at the destination"
        shop.ok("sync", "--table", "main.order")
    shop.ok("sync")
    [status] = shop.json("status")["connections"]
    assert (status["backfills"], status["reselected"], shop.run("verify").code) == ([], [], 0)


def test_a_plan_tells_what_the_next_sync_reads_again(loaded: Shop) -> None:
    nothing = loaded.ok("plan").out
    assert nothing.startswith("nothing to do")
    with loaded.store() as store:
        store.backfills.request("shop", REF, why="main.customer.city is hashed")
        store.backfills.request("shop", ("main", "order"), column="amount", why="asked for by ann")
        store.backfills.request("shop", ("main", "order"), column="id", why="asked for by bob")
    lines = loaded.ok("plan").out.splitlines()
    assert lines == [
        "main.customer: a sync reads the whole table again: main.customer.city is hashed",
        "main.order.amount: a sync fills it in rows that were loaded before: asked for by ann",
        "main.order.id: a sync reads the whole table again to fill it, because the column is part of its key: "
        "asked for by bob",
    ]
    loaded.ok("sync")
    assert loaded.ok("plan").out == nothing
