"""`instep preview`: a waiting change tried on a copy of the destination's tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.arguments import AllowDestructive, examples
from instep.cli.backend import open_backend
from instep.cli.context import CHANGES, confirm, emit, fail, say
from instep.errors import Blocked
from instep.operations.decide.preview_change import PreviewChangeRequest
from instep.operations.decide.publish_change import PublishChangeRequest
from instep.operations.queries.decisions import GetChange

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.plans.preview_change import ChangePreview, PreviewedColumn
    from instep.plans.publish_change import PublishedChange


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep preview c-3f9a21", "instep preview c-3f9a21 --publish"))(preview)


def preview(
    change: Annotated[str, typer.Argument(help="A change's id (c-...).")],
    publish: Annotated[
        bool, typer.Option("--publish", help="Then approve the change and make the previewed changes to the tables.")
    ] = False,
    allow: AllowDestructive = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 2 if a model no longer runs.")] = False,
) -> None:
    """Try a waiting change on a copy of the destination's tables, and compare.

    The copy refers to the same data files, so no row is copied, and it is deleted afterwards. Shows how columns, rows
    and the results of the connection's `downstream` models would change. Iceberg only.

    With --publish the change is then approved and carried out, if the tables have not changed since the preview.
    """
    with open_backend() as backend:
        review = backend.query(GetChange(change))
        shown: ChangePreview = backend.operations.run(review.connection, PreviewChangeRequest(change=review.id))
        emit({**asdict(shown), "breaks": list(shown.breaks)}, lambda out: _show(out, shown))
        if publish:
            if not confirm(f"Publish {review.id} ({review.summary})?"):
                raise Blocked("nothing was published", hint="confirm, or pass --yes")
            request = PublishChangeRequest(change=review.id, fingerprint=shown.fingerprint, allow=tuple(allow or ()))
            done: PublishedChange = backend.operations.run(review.connection, request)
            for note in done.notes:
                say(note, style="yellow")
            say(f"{review.id} is published: schema version {done.version}; to take it back: instep undo {review.id}")
    if exit_code and shown.breaks:
        raise fail(CHANGES)


def _show(out: Screen, shown: ChangePreview) -> None:
    out.write(f"{shown.change}  {shown.summary}", "bold")
    for step in shown.steps:
        out.write(f"  {step}")
    for table in shown.tables:
        out.write(f"{table.table}: {_count(table.rows_before)} rows before, {_count(table.rows_after)} after")
        for column in table.columns:
            out.write(f"  {_column(column)}")
    for model in shown.models:
        if model.error_after:
            word = "breaks" if model.breaks else "cannot be run"
            out.write(f"model {model.name}: {word}: {model.error_after}", "red" if model.breaks else "")
        else:
            out.write(f"model {model.name}: {_count(model.rows_before)} rows before, {_count(model.rows_after)} after")
    for note in shown.notes:
        out.write(f"note: {note}", "yellow")
    out.write("the copy is gone; nothing was changed", "dim")


def _column(column: PreviewedColumn) -> str:
    was = f" (was {column.was})" if column.was else ""
    before, after = column.before or "absent", column.after or "absent"
    facts = [after if before == after else f"{before} -> {after}"]
    if column.filled is not None and not column.before:
        facts.append(f"{column.filled:,} filled")
    if column.differs:
        facts.append(f"{column.differs:,} rows differ")
    return f"{column.name}{was}: {', '.join(facts)}"


def _count(rows: int | None) -> str:
    return "no" if rows is None else f"{rows:,}"
