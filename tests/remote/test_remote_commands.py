"""The same commands at the project and over its server: the same output, and the same exit codes."""

from __future__ import annotations

import json

from remote_world import World, steady

from command_runs import Said

LISTED = [
    ("status",),
    ("changes", "list"),
    ("changes", "list", "--all"),
    ("changes", "list", "shop"),
    ("changes", "show", "CHANGE", "--sample", "0"),
    ("changes", "show", "c-nothing"),
    ("history",),
    ("history", "shop", "--limit", "2"),
    ("history", "--runs"),
    ("history", "--plans"),
    ("history", "main.item"),
    ("history", "main.item.name"),
    ("schema", "show"),
    ("schema", "show", "--side", "source"),
    ("schema", "show", "--at", "1", "--format", "sql"),
    ("schema", "show", "--at", "99"),
    ("quarantine", "list", "--all"),
    ("queue", "list"),
    ("queue", "show", "JOB"),
    ("queue", "show", "j-nothing"),
    ("keys", "list"),
]
TEXT_ONLY = [("history", "--schema")]
NAMED_OTHERWISE = {("changes", "show", "c-nothing"), ("queue", "show", "j-nothing")}


def standing(world: World) -> dict[str, str]:
    """A first load, then a change that waits, a job and a pause of a table."""
    assert world.here("apply", "--yes").code == 0
    world.sql("alter table item add column price numeric")
    assert world.here("detect").code == 0
    assert world.here("pause", "--table", "main.item", "--reason", "a test").code == 0
    with world.store() as store:
        job, _ = store.jobs.enqueue("shop", "sync", options={"full": True}, who="ann", why="asked for")
        [change] = [r for r in store.reviews.find("shop", ("open",)) if r.column == "price"]
    return {"CHANGE": change.id, "JOB": job.id}


def alike(line: tuple[str, ...], here: Said, there: Said, form: str) -> bool:
    """The same output; of refusals in JSON all but the kind, of keys all but when they were used."""
    if here.code != there.code:
        return False
    if line in NAMED_OTHERWISE:
        return "nothing" in there.out + there.err
    if form == "table":
        return steady(here.out) == steady(there.out) and (here.code == 0 or here.err == there.err)
    found = [json.loads(steady(said.out)) for said in (here, there)]
    for one in found if here.code else ():
        del one["type"], one["title"]
    for key in (key for one in found for key in one.get("keys", ()) if "secrets" in key):
        key["secrets"] = len(key["secrets"])
    return found[0] == found[1]


def test_what_is_listed_is_the_same(world: World) -> None:
    names = standing(world)
    for line in [*LISTED, *TEXT_ONLY]:
        words = tuple(names.get(word, word) for word in line)
        for form in ("table", "json")[: 1 if line in TEXT_ONLY else 2]:
            here, there = world.here(*words, "--output", form), world.there(*words, "--output", form)
            assert alike(line, here, there, form), f"{words} {form}\n{here}\n{there}"
            assert world.key not in there.out + there.err
