"""`instep init --demo` and `instep demo ...`: a shop that changes under a running pipeline."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import typer

from instep.cli.context import console, options, run_command, say
from instep.errors import InstepError, ProjectError

demo = typer.Typer(help="The demo's own PostgreSQL server.", no_args_is_help=True)
STATE = ".instep"

PROJECT = """\
# yaml-language-server: $schema=.instep/schema/project.json
version: 1
project: shop

sources:
  shop_pg:
    type: postgres
    host: ${env:SHOP_HOST}        # the demo's own server; see .env
    port: ${env:SHOP_PORT}
    database: shop
    user: ${env:SHOP_USER}
    include: ["public.*"]

destinations:
  lake: {type: iceberg, warehouse: lake}

policies:
  careful:
    preset: allow_all
    rules:                        # the first rule that matches decides, then the preset
      - {on: [column.removed], decide: review}

connections:
  shop:
    source: shop_pg
    destination: lake
    policy: careful
    tables:
      public.order: {cursor: updated_at}   # reads changed rows only; the others compare whole tables by key
"""


def register(app: typer.Typer) -> None:
    app.add_typer(demo, name="demo")


@demo.command(epilog="Example: instep demo up --project demo")
def up() -> None:
    """Start the demo's server (its data is kept between starts)."""
    where = _up(options.project)
    say(f"the shop's server is up: host {where['host']}, port {where['port']}, database shop")


@demo.command(epilog="Example: instep demo down --project demo")
def down() -> None:
    """Stop the demo's server."""
    from instep.project.demo import server

    say("stopped" if server.down(_state(options.project)) else "it was not running")


@demo.command(epilog="Example: instep demo change --project demo")
def change() -> None:
    """Change the shop's schema and rows, as its developers would."""
    from instep.project.demo import server

    server.change_shop(_up(options.project))


def make(folder: Path) -> None:
    """A project with a database of its own in `folder`; an earlier demo there is replaced."""
    from instep.project.demo import server
    from instep.project.write import write_project

    _clear(folder)
    where = _up(folder)
    server.create_shop(where)
    write_project(folder, PROJECT)
    (folder / ".env").write_text(
        f"SHOP_HOST={where['host']}\nSHOP_PORT={where['port']}\nSHOP_USER={where['user']}\n", encoding="utf-8"
    )
    say(f"made {folder}: a shop database with 8 tables and 200,000 rows, and its instep.yml")


def _clear(folder: Path) -> None:
    from instep.project.demo import server

    if not (folder / "instep.yml").exists():
        return
    if "the demo's own server" not in (folder / "instep.yml").read_text(encoding="utf-8"):
        raise ProjectError(f"{folder} holds a project that is not the demo", hint="choose another --project folder")
    server.down(_state(folder))
    shutil.rmtree(folder)


def _state(folder: Path) -> Path:
    return folder / STATE


def _up(folder: Path) -> dict[str, str]:
    from instep.project.demo import server

    return server.up(_state(folder))


def play(folder: Path) -> None:
    """The whole story, each command as a user would type it, in one process so that Spark starts once."""
    story = _Story(folder)
    story.tell("A shop database is replicated into an Iceberg lake.")
    story.run("plan")
    story.run("sync")
    story.run("verify")
    story.tell("Its developers change the schema, and nobody asks the pipeline. What they did:")
    story.show_changes()
    story.run("plan")
    story.tell("A dropped column waits for a review, as instep.yml asks. It is approved: the lake keeps its values.")
    story.approve()
    story.run("apply", "--yes")
    story.run("sync")
    story.tell("Rows of public.order that did not change have no discount yet: the plan said so. verify agrees.")
    story.run("verify", "--table", "public.order", expect=1)
    story.run("backfill", "public.order")
    story.run("verify")
    story.run("query", 'select status, count(*) as orders, sum(amount) as amount, avg(discount) as discount '
                       'from shop."order" group by 1 order by 1')  # fmt: skip
    story.tell("An applied change can be taken back: the lake calls the column phone again, in old rows and in new.")
    story.undo("column.renamed")
    story.run("sync", "--table", "public.customer")
    story.run("verify", "--table", "public.customer")
    story.run("query", "select id, name, phone from shop.customer order by id limit 3")
    story.run("history", "public.customer.phone")
    story.end()


class _Story:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tell(self, text: str) -> None:
        out = console()
        out.print()
        out.print(text, style="bold cyan")

    def run(self, *words: str, expect: int = 0) -> None:
        out = console()
        out.print()
        out.print(f"$ instep {shlex.join(words)}", style="bold")
        code = run_command(["--project", str(self.folder), *words])
        if code != expect:
            raise InstepError(f"the demo stopped: `instep {words[0]}` ended with {code}", hint="see the lines above")

    def show_changes(self) -> None:
        from instep.project.demo import server

        out = console()
        for line in server.changes_sql().splitlines():
            if line.startswith(("alter", "create table")):
                out.print(f"  {line}", style="magenta")
        server.change_shop(_up(self.folder))

    def approve(self) -> None:
        self.run("changes", "list")
        self.run("changes", "approve", "--match", "public.product.*")

    def undo(self, kind: str) -> None:
        from instep.bootstrap import open_project

        with open_project(self.folder) as app:
            change = next(r for r in app.store.reviews.find("shop", ("applied",)) if r.kind == kind)
        self.run("undo", change.id, "--yes")

    def end(self) -> None:
        out = console()
        name = shlex.quote(str(self.folder))
        out.print()
        out.print(f"The project stays in {name}, and its server is up. Try:", style="bold")
        for command in (
            "status", "changes list --all", "history --schema", "policy explain public.order.note column.removed",
            "query 'select * from shop.coupon limit 5'", "demo down",
        ):  # fmt: skip
            out.print(f"  instep --project {name} {command}")
