"""`instep ui`: the page of the project in this folder, for the person at this machine."""

from __future__ import annotations

import getpass
import os
import secrets
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.arguments import Grace, Lanes, examples
from instep.cli.commands.serve.log_options import LogFormat, LogLevel
from instep.cli.commands.serve.server import ListenAddress, LogOptions, serve
from instep.cli.context import options, say

if TYPE_CHECKING:
    from instep.bootstrap import App


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep ui", "instep ui --port 8400 --no-browser"))(ui)


def ui(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0 takes any free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Also open the page in a browser.")] = True,
    lanes: Lanes = 2,
    grace: Grace = 60,
    log_format: LogFormat = "auto",
    log_level: LogLevel = "warning",
) -> None:
    """Open the web page of this project, without an account.

    It is served on loopback until Ctrl-C, with a worker that runs the jobs you start there. The printed link signs in
    once, within 15 minutes; your actions are recorded under the name of your account on this machine.
    """
    from instep.bootstrap import open_page

    opener = partial(open_page, options.project.resolve())
    with ExitStack() as at_end:
        links = list[str]()
        begin, end = partial(_show, browser, at_end, links), partial(_end_sessions, links)
        place, logs = ListenAddress("127.0.0.1", port), LogOptions(log_format, log_level)
        serve(opener, place, logs, (lanes, grace), begin, end)


def _name() -> str:
    from instep.store.server.persons import AT_PAGE

    return f"{getpass.getuser()}{AT_PAGE}"


def _end_sessions(links: Sequence[str], app: App, sessions: Sequence[str]) -> None:
    """Sign out who came by a link of this command: a server that opens this store later does not know the browser.
    Another `instep ui` of the project goes on, as do its sessions and its link."""
    from instep.control.resources.sign_in import end, withdraw_link

    for token in sessions:
        end(app.store, token)
    for token in links:
        withdraw_link(app.store, token)


def _show(browser: bool, at_end: ExitStack, links: list[str], app: App, address: str) -> None:
    """Print the link, note its token, and open it where there is a browser that is not one of the terminal.

    The browser is started with the path of a file that leads to the link: everybody on this machine sees the arguments
    of programs.
    """
    from instep.control.resources.sign_in import make_link
    from instep.private import write_private
    from instep.store.server.api_keys import PAGE_COMMAND

    name = _name()
    with app.store.transaction():
        key = app.store.api_keys.named(name) or app.store.api_keys.add(
            f"k-{secrets.token_hex(6)}", name, "admin", (), PAGE_COMMAND
        )
        links.append(make_link(app.store, key))
    link = f"{address}/sign-in/once/{links[-1]}"
    say("the page, until Ctrl-C; the link signs in once within 15 minutes:")
    typer.echo(link)
    if not browser:
        return
    if "microsoft" in os.uname().release.lower():  # the browser is one of Windows, where this path says nothing
        webbrowser.open(link)
        return
    file = app.project.root / ".instep" / "sign-in.html"
    file.unlink(missing_ok=True)
    write_private(
        file, f'<!doctype html><meta http-equiv="refresh" content="0; url={link}"><a href="{link}">Sign in</a>\n'
    )
    at_end.callback(file.unlink, missing_ok=True)
    webbrowser.open(file.as_uri())
