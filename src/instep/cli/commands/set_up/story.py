"""The demo's story: chapters of real commands, in one process so that Spark starts once."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from instep.cli.context import console, options, run_command
from instep.errors import InstepError

MORE = (
    "status",
    "changes list --all",
    "history public.customer.phone -c shop",
    "history shop --plans",
    "policy explain public.order.note column.removed -c shop",
    "restore public.order --list -c shop",
    "query 'select * from shop.coupon limit 5'",
    "demo down",
)


def play(folder: Path) -> None:
    """Play the whole story, each command as a user would type it in `folder`; raises InstepError where one fails."""
    story = Story(options.color)
    with contextlib.chdir(folder):
        for chapter in _CHAPTERS:
            chapter(story)
    out = console()
    out.print()
    out.print(f"The project stays in {folder}, and its server is up. Try:", style="bold")
    out.print(f"  cd {shlex.quote(str(folder))}")
    for command in MORE:
        out.print(f"  instep {command}")
    out.print("Two changes wait for a review. Open the page, where one click decides:", style="bold")
    out.print("  instep ui")


class Story:
    """Tells chapters and runs the commands in them."""

    def __init__(self, color: bool) -> None:
        self.number, self.color = 0, color

    def tell(self, title: str) -> None:
        self.number += 1
        out = console()
        out.print()
        out.write(f"{self.number}. {title}", "bold cyan")

    def run(self, *words: str) -> None:
        out = console()
        out.print()
        out.print(f"$ instep {shlex.join(words)}", style="bold")
        code = run_command([*words, *([] if self.color else ["--no-color"])])
        if code != 0:
            raise InstepError(f"the demo stopped: `instep {words[0]}` ended with {code}", hint="see the lines above")

    def sql(self, where: str, text: str) -> None:
        out = console()
        out.print()
        for line in text.splitlines():
            if line.startswith(("alter", "create table")):
                out.print(f"{where}> {line}", style="magenta")


def _first_sync(story: Story) -> None:
    story.tell("A PostgreSQL shop and a SQLite till are replicated into one destination.")
    story.run("sync", "shop")
    story.run("sync", "till")


def _sources_change(story: Story) -> None:
    from instep.project.demo import databases
    from instep.project.demo.databases import change_sources

    story.tell("Their developers change the schemas without asking anybody.")
    story.sql("shop", databases.changes_sql())
    story.sql("till", databases.till_changes_sql())
    change_sources(Path())


def _plan(story: Story) -> None:
    story.tell("What will happen, which rule decides, what it touches, which models break.")
    story.run("plan", "shop", "-o", "plan.json")


def _apply(story: Story) -> None:
    story.tell("The plan is applied as reviewed. Open changes stop nothing else.")
    story.run("apply", "plan.json", "--yes")


def _fill(story: Story) -> None:
    story.tell("Old orders have no discount yet. Reload the table, or backfill a column:")
    story.run("backfill", "public.order", "-c", "shop", "--dry-run")
    story.run("backfill", "public.order", "-c", "shop", "--column", "discount", "--dry-run")


def _second_sync(story: Story) -> None:
    story.tell("instep.yml says `backfill: column`, so the sync fills it, without asking.")
    story.run("sync", "shop")


def _undo(story: Story) -> None:
    story.tell("The view call_list needs its phone: the rename is undone, in all rows.")
    story.run("undo", change_of("shop", "column.renamed"), "--yes")
    story.run("query", "select id, name, phone from shop.customer order by id limit 3")


def _list(story: Story) -> None:
    story.tell("40 warranties are not numbers: rows are loaded, the values quarantined.")
    story.run("quarantine", "list", "public.product", "-c", "shop", "--limit", "2")


def _approve(story: Story) -> None:
    story.tell("A person approves the new type, and keeps the dropped column's values.")
    story.run("changes", "approve", "--match", "public.product.*", "-c", "shop", "--yes")
    story.run("apply", "shop", "--yes")


def _replay(story: Story) -> None:
    story.tell("The quarantined values fit now: each is written back into its row.")
    story.run("quarantine", "replay", "-c", "shop")
    story.run("query", "select id, warranty, legacy_code from shop.product where id in (49, 50) order by id")


def _evidence(story: Story) -> None:
    story.tell("SQLite has no column IDs: is it a rename? The data tells.")
    story.run("plan", "till")


def _map(story: Story) -> None:
    story.tell("A person says yes: one column with all its values, under its new name.")
    story.run("changes", "map", change_of("till", ""), "--yes")
    story.run("sync", "till")


def _prove(story: Story) -> None:
    story.tell("Source and destination are equal: counts and checksums of every column.")
    story.run("verify", "shop")
    story.run("verify", "till")


def _leave_a_review(story: Story) -> None:
    from instep.project.demo.databases import change_shop_later, text

    story.tell("The shop changes once more, and rule 1 of the policy leaves it to you.")
    story.sql("shop", text("later.sql"))
    change_shop_later(Path())
    story.run("detect", "shop")


_CHAPTERS = (
    _first_sync, _sources_change, _plan, _apply, _fill, _second_sync, _undo, _list, _approve, _replay, _evidence, _map,
    _prove, _leave_a_review,
)  # fmt: skip


def change_of(connection: str, kind: str) -> str:
    """Return the id of the applied change of this kind; without a kind, of the proposal that is open."""
    from instep.bootstrap import open_project
    from instep.schema.policy.similarity import PROPOSAL

    with open_project(Path()) as app:
        reviews = app.store.reviews.find(connection)
    return next(r.id for r in reviews if (r.kind == kind and r.status == "applied" if kind else r.rule == PROPOSAL))
