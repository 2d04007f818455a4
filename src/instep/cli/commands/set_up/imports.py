"""`instep import`: a project file into a server, or another product's configuration into a new project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import DryRun, examples
from instep.cli.backend import open_backend
from instep.cli.context import emit, options, say

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.control.imports import ImportedFiles
    from instep.operations.immediate.imports import ImportConfigurationRequest
    from instep.operations.values import ImportedProduct

FILE_NAME = "instep.yml"
_LISTS = ("sources", "destinations", "connections", "notes", "states_adopted", "catalogs_adopted")
family = typer.Typer(
    help="Load a project file into the server, or import from Airbyte or Fivetran.",
    epilog=examples("instep import project kept.yml --dry-run", "instep import airbyte sources.json connections.json"),
    no_args_is_help=True,
)
Files = Annotated[list[Path], typer.Argument(help="The files of the export, JSON.")]
Into = Annotated[
    Path | None, typer.Option("--into", metavar="NEWFILE", help="Write this new file instead of instep.yml.")
]
Warehouse = Annotated[
    str,
    typer.Option(
        "--warehouse",
        metavar="PLACE",
        help="An Iceberg warehouse for connections whose destination instep does not have.",
    ),
]


def register(app: typer.Typer) -> None:
    app.add_typer(family, name="import")


@family.command(epilog=examples("instep import project kept.yml --dry-run", "instep import project kept.yml --replace"))
def project(
    file: Annotated[
        Path, typer.Argument(help="A project file. Its secrets come from the .env file beside it and the environment.")
    ],
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite objects that exist already.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Load a project file into the server, all or nothing."""
    from instep.bootstrap import open_server, user
    from instep.control.resources.transfer import import_project
    from instep.project.load import load

    given = load(file)
    with open_server(options.project) as app:
        done = import_project(app.objects, given, who=user(), replace=replace, dry_run=dry_run)

    def render(out: Screen) -> None:
        for word, names in vars(done).items():
            for kind, name in names:
                out.write(f"{word:9} {kind} {name}")

    data = {word: [{"kind": k, "name": n} for k, n in names] for word, names in vars(done).items()}
    emit({**data, "dry_run": dry_run}, render)
    if dry_run:
        say("nothing was changed")


@family.command(
    epilog=examples(
        "instep import airbyte sources.json destinations.json connections.json --dry-run",
        "instep import airbyte terraform.tfstate --connector source-faker==7.2.1 --warehouse lake",
    )
)
def airbyte(
    files: Files,
    into: Into = None,
    connector: Annotated[
        list[str] | None,
        typer.Option(
            "--connector",
            metavar="NAME==VERSION",
            help="The version of a connector that the export does not tell, such as source-faker==7.2.1; repeatable.",
        ),
    ] = None,
    warehouse: Warehouse = "",
    dry_run: DryRun = False,
) -> None:
    """Write a project from an Airbyte configuration.

    FILES are responses of its API or Terraform states. Secrets become references. Lists the secrets to set and what
    cannot be converted. See docs/guides/other-products.md.
    """
    _import("airbyte", files, into, connector or [], warehouse, dry_run=dry_run)


@family.command(
    epilog=examples(
        "instep import fivetran account.json --dry-run",
        "instep import fivetran groups.json destinations.json connections.json schemas.iron_crow.json --warehouse lake",
    )
)
def fivetran(files: Files, into: Into = None, warehouse: Warehouse = "", dry_run: DryRun = False) -> None:
    """Write a project from a Fivetran account.

    FILES are responses of its management API. Secrets become references. Lists the secrets to set and what cannot be
    converted. See docs/guides/other-products.md.
    """
    _import("fivetran", files, into, [], warehouse, dry_run=dry_run)


def _import(
    product: ImportedProduct,
    files: list[Path],
    into: Path | None,
    packages: list[str],
    warehouse: str,
    *,
    dry_run: bool,
) -> None:
    from instep.operations.immediate.imports import ImportConfigurationRequest
    from instep.project.imports.documents import read_files

    request = ImportConfigurationRequest(product, read_files(files), tuple(packages), warehouse)
    if options.server:
        done = _import_at_server(request, into or options.project / FILE_NAME, dry_run=dry_run)
    else:
        from instep.backends.local import import_configuration

        done = import_configuration(request, options.project, into=into, dry_run=dry_run)
    configuration = done.configuration
    data: dict[str, Any] = {
        "product": product,
        **{name: list(getattr(configuration, name)) for name in _LISTS},
        "secrets": [vars(secret) for secret in configuration.secrets],
        "left_out": [vars(one) for one in configuration.left_out],
        "files": [str(file) for file in done.files],
        "written": [] if dry_run else [str(file) for file in done.new],
        "project": configuration.text,
        "dry_run": dry_run,
    }
    emit(data, lambda out: _show(out, done, dry_run=dry_run))
    if dry_run:
        say("nothing was written")
    elif into is None:
        say("next: set the variables in .env, then run `instep validate`, `instep plan` and `instep sync`")
    else:
        say(f"next: copy what you need from {into} into instep.yml, then run `instep validate`")


def _import_at_server(request: ImportConfigurationRequest, file: Path, *, dry_run: bool) -> ImportedFiles:
    """Let a server translate the export, and its connections adopt states and catalogs; write the project file here."""
    from instep.control.imports import ImportedFiles
    from instep.project.imports.imported_project import write_files

    with open_backend() as backend:
        imported = backend.operations.rehearse(request)
        new = write_files({file: imported.text}, dry_run=True)
        if not dry_run:
            imported = backend.operations.perform(request)
            write_files({file: imported.text})
    return ImportedFiles(imported, (file,), tuple(new))


def _show(out: Screen, done: ImportedFiles, *, dry_run: bool) -> None:
    configuration = done.configuration
    if dry_run:
        for line in configuration.text.splitlines():
            out.write(line)
    for file in done.files:
        word = "unchanged" if file not in done.new else "would write" if dry_run else "wrote"
        out.write(f"{word} {file}")
    counts = [(len(getattr(configuration, f"{kind}s")), kind) for kind in ("source", "destination", "connection")]
    text = ", ".join(f"{count} {kind}{'s' * (count != 1)}" for count, kind in counts)
    out.write(f"imported from {configuration.product.title()}: {text}")
    will = "would read" if dry_run else "reads"
    for name in configuration.states_adopted:
        out.write(f"connection {name}: its next sync {will} on from the state of {configuration.product.title()}")
    for name in configuration.catalogs_adopted:
        text = "would be compared" if dry_run else "is compared"
        out.write(
            f"connection {name}: its source {text} with the schema that was accepted at {configuration.product.title()}"
        )
    for secret in configuration.secrets:
        out.write(f"set {secret.variable}: {secret.key} of {secret.object} ({secret.found})")
    for note in configuration.notes:
        out.write(f"note: {note}")
    for one in configuration.left_out:
        out.write(f"not taken over: {one.object}: {one.reason}; {one.next}", "yellow")
