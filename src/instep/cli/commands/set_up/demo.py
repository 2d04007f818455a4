"""`instep init --demo` and `instep demo ...`: a shop that changes under a running pipeline."""

from __future__ import annotations

import shutil
from pathlib import Path

import typer

from instep.cli.arguments import examples
from instep.cli.context import options, say
from instep.errors import ProjectError

demo = typer.Typer(
    help="Start, stop and change the demo's PostgreSQL server.",
    epilog=examples("instep demo up --project demo"),
    no_args_is_help=True,
)
VIEWS = ("call_list.sql", "revenue.sql")


def register(app: typer.Typer) -> None:
    app.add_typer(demo, name="demo")


@demo.command(epilog=examples("instep demo up --project demo"))
def up() -> None:
    """Start the demo's server; its data is kept between starts."""
    where = _up(options.project)
    say(f"the shop's server is up: host {where['host']}, port {where['port']}, database shop")


@demo.command(epilog=examples("instep demo down --project demo"))
def down() -> None:
    """Stop the demo's server."""
    from instep.project.demo import databases

    say("stopped" if databases.down(databases.state(options.project)) else "not running")


@demo.command(epilog=examples("instep demo change --project demo"))
def change() -> None:
    """Change schemas and rows of the demo's sources, as developers would."""
    from instep.project.demo.databases import change_sources

    change_sources(options.project)


@demo.command(epilog=examples("instep demo play --project demo"))
def play() -> None:
    """Run the demo's story in a project that `init --demo` has just made.

    Useful after a change of `spark:` in its instep.yml.
    """
    from instep.cli.commands.set_up.story import play as play_story

    _up(options.project)
    play_story(options.project)


def make(folder: Path) -> None:
    """Create a project with a database of its own in `folder`; an earlier demo there is replaced."""
    from instep.project.demo import databases
    from instep.project.files.starter import write_project

    _clear(folder)
    write_project(folder, databases.text("instep.yml"))  # first, so that a demo that was interrupted is replaced, too
    databases.create_till(folder)
    say("starting a PostgreSQL server of the demo's own")
    where = _up(folder)
    databases.create_shop(where)
    (folder / "views").mkdir()
    for name in VIEWS:
        (folder / "views" / name).write_text(databases.text(f"views/{name}"), encoding="utf-8")
    (folder / ".env").write_text(
        f"SHOP_HOST={where['host']}\nSHOP_PORT={where['port']}\nSHOP_USER={where['user']}\n", encoding="utf-8"
    )
    say(f"created {folder}: a shop in PostgreSQL (8 tables, 200,000 rows), a till in SQLite, instep.yml")


def _clear(folder: Path) -> None:
    from instep.project.demo import databases

    if not (folder / "instep.yml").exists():
        return
    if "the demo's own server" not in (folder / "instep.yml").read_text(encoding="utf-8"):
        raise ProjectError(f"{folder} holds a project that is not the demo", hint="choose another --project folder")
    databases.down(databases.state(folder))
    shutil.rmtree(folder)


def _up(folder: Path) -> dict[str, str]:
    from instep.project.demo import databases

    return databases.up(databases.state(folder))
