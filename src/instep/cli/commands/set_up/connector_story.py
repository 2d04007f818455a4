"""`instep connector demo`: five days of a shop whose records change shape, with plan, decision and result of each."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable
from pathlib import Path

from instep.cli.commands.set_up.story import Story
from instep.cli.context import console, options

MORE = ("status", "changes list --all", "history --plans", "schema show", "query 'select * from shop.customer'")
Chapter = Callable[[Story], None]


def play(folder: Path) -> None:
    """Make the demo in `folder` and plays it; InstepError where a command fails."""
    from instep.project.connector_demo.days import begin_day, days, make

    make(folder)
    story = Story(options.color)
    with contextlib.chdir(folder):
        for day, (title, chapter) in zip(days(), _DAYS, strict=True):
            story.tell(title)
            # the last record of each table, as the connector sends it
            out = console()
            out.print()
            for table, records in day["records"].items():
                out.write(f"{table}> {json.dumps(records[-1], ensure_ascii=False)}", "magenta")
            begin_day(Path(), day)
            chapter(story)
    _end(folder)


def _first(story: Story) -> None:
    story.run("plan")
    story.run("sync")
    story.run("schema", "show")


def _more(story: Story) -> None:
    story.run("sync")
    story.run("history", "--plans", "-n", "1")
    story.run("query", "select id, pieces, coupon from shop.order order by id")


def _types(story: Story) -> None:
    story.run("plan")
    story.run("sync")
    story.run("quarantine", "list", "--limit", "1")
    story.run("changes", "approve", "--match", "order.pieces", "-c", "shop", "--yes")
    story.run("apply", "shop", "--yes")
    story.run("quarantine", "replay", "-c", "shop")
    story.run("query", "select id, total, pieces from shop.order order by id")


def _renamed(story: Story) -> None:
    story.run("sync")
    story.run("changes", "map", "customer.mail", "customer.email", "--yes")
    story.run("sync")
    story.run("query", "select id, name, email from shop.customer order by id")


def _key(story: Story) -> None:
    story.run("plan")
    story.run("sync")
    story.run("table", "set-key", "order", "shop,id", "-c", "shop", "--rebuild", "--yes")
    story.run("sync")
    story.run("query", "select shop, id, customer_id, total, pieces from shop.order order by shop, id")
    story.run("status")


_DAYS: tuple[tuple[str, Chapter], ...] = (
    ("Day 1. Tables as they are declared; what is not declared is inferred.", _first),
    ("Day 2. A column and a table that nobody has declared, in mid-sync.", _more),
    ("Day 3. Declared types grow, and are widened. A number that becomes text waits for a person.", _types),
    ("Day 4. A column is renamed. A person declares that it is the same one.", _renamed),
    ("Day 5. The key changes: that table pauses, its operations are kept, the others continue.", _key),
)


def _end(folder: Path) -> None:
    out = console()
    out.print()
    out.print(f"The project stays in {folder}. Try:", style="bold")
    out.print(f"  cd {shlex.quote(str(folder))}")
    for command in MORE:
        out.print(f"  instep {command}")
