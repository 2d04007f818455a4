"""`instep secrets`: master keys, and which secrets they have sealed. No command shows a secret."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.arguments import examples
from instep.cli.context import emit, options, say

if TYPE_CHECKING:
    from instep.cli.screen import Screen


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Create and rotate the master keys that encrypt secrets.",
        epilog=examples("instep secrets status"),
        no_args_is_help=True,
    )
    group.command("new-key", epilog=examples("instep secrets new-key", "instep secrets new-key k2"))(new_key)
    group.command(epilog=examples("instep secrets status"))(status)
    group.command(epilog=examples("instep secrets rotate"))(rotate)
    app.add_typer(group, name="secrets")


def new_key(
    id: Annotated[str, typer.Argument(help="The key's name; the default is k1, k2, ...", show_default=False)] = "",
) -> None:
    """Create a master key and make it the current one of the key file.

    The key is not shown: keep a copy of the file.
    """
    from instep.project.load import load_beside
    from instep.store.engine.keyring import FILE, add_key

    file = load_beside(options.project).root / FILE
    others = file.exists()
    made = add_key(file, id)
    emit({"key": made, "file": str(file)}, lambda out: out.write(f"{made} is the current key of {file}"))
    say("next: keep a copy of the file apart from backups of the store")
    if others:
        say("then run `instep secrets rotate`: it encrypts all secrets with the new key")


def status() -> None:
    """Count the secrets that each master key encrypts."""
    from instep.bootstrap import open_server

    with open_server(options.project) as app:
        keys, states = app.store.secrets.keys, app.store.connectors.by_key()
        earlier = app.store.connector_versions.by_key()
        counts = Counter(app.store.secrets.by_key()) + Counter(states) + Counter(earlier)
    rows = [
        {"key": id, "secrets": counts.get(id, 0), "current": id == keys.current, "present": id in keys.keys}
        for id in dict.fromkeys([*keys.keys, *counts])
    ]

    def render(out: Screen) -> None:
        for row in rows:
            state = "current" if row["current"] else "present" if row["present"] else "MISSING"
            out.write(f"{row['key']}: {row['secrets']} secret(s), {state}")

    emit({"keys": rows}, render)


def rotate(
    insecure_dev: Annotated[
        bool, typer.Option("--insecure-dev", help="Also secrets that a server without a master key has encrypted.")
    ] = False,
) -> None:
    """Encrypt all secrets with the current master key.

    You can stop it at any time; the next run continues there.
    """
    from instep.bootstrap import open_server

    with open_server(options.project, insecure_dev=insecure_dev) as app:
        done = app.store.secrets.rotate() + app.store.connectors.rotate() + app.store.connector_versions.rotate()
        current = app.store.secrets.keys.current
    emit({"key": current, "secrets": done}, lambda out: out.write(f"{done} secret(s) re-encrypted with {current}"))
