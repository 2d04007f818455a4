"""`instep migration check`: what a producer's migration SQL will do here, before it is run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import examples
from instep.cli.context import BLOCKED, CHANGES, emit, fail, open_app, options
from instep.errors import InstepError, ProjectError

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.lineage.migration.statements import FileLine, Migration, UnreadStatement
    from instep.plans.downstream import Downstream
    from instep.sync.context import SyncContext
    from instep.sync.operations.check_migration import Consequence, MigrationCheck
    from instep.sync.operations.impact import ImpactReport


MAX_BYTES = 16 << 20
_UNDO = re.compile(r"(^U\d.*__.*\.sql$)|(\.(down|undo|rollback)\.sql$)|(_down\.sql$)", re.I)


def scripts(given: Sequence[Path], base: str = "") -> list[tuple[str, str]]:
    """Return (name, text) of each script: named files in their order, all `.sql` files of named folders by number
    and name (down migrations left out), `-` for standard input. With `base`, only those that are new or changed in
    git since. Raises InstepError for what cannot be read."""
    if base:
        return [(path.as_posix(), _text(path)) for path in _changed_since(base, given)]
    if not given:
        raise InstepError(
            "no migration is named", hint="name its files or folders, - for standard input, or pass --git-diff main"
        )
    return [script for path in given for script in _scripts(path)]


def _changed_since(base: str, given: Sequence[Path]) -> list[Path]:
    """Return the scripts that git finds added or modified between where `base` was left and the files as they are."""
    if base.startswith("-"):
        raise InstepError(f"{base!r} is not a commit", hint="write --git-diff origin/main")
    start = _git("merge-base", base, "HEAD").strip()
    names = _git("diff", "--name-only", "--diff-filter=AMR", "--relative", "-z", start, "--", *map(str, given))
    paths = [Path(n) for n in names.split("\0") if n.endswith(".sql") and not _UNDO.search(Path(n).name)]
    return sorted(paths, key=_order)


def _scripts(path: Path) -> Iterator[tuple[str, str]]:
    if str(path) == "-":
        yield "stdin", sys.stdin.read()
    elif path.is_dir():
        files_in_order = sorted((p for p in path.rglob("*.sql") if not _UNDO.search(p.name)), key=_order)
        if not files_in_order:
            raise InstepError(f"{path} has no .sql files", hint="name the folder of the migration's scripts")
        yield from ((p.as_posix(), _text(p)) for p in files_in_order)
    else:
        yield path.as_posix(), _text(path)


def _order(path: Path) -> list[tuple[int, str]]:
    """Return the sort key by which V10 comes after V9."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InstepError(f"{path} is larger than {MAX_BYTES >> 20} MB", hint="a data dump is not a migration")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstepError(f"{path} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InstepError("git is not installed", hint="name the migration's files instead") from None
    if done.returncode:
        [*_, message] = done.stderr.strip().splitlines() or ["failed"]
        raise InstepError(
            f"git {words[0]}: {message}",
            hint="run it in a clone of the repository, or name the migration's files instead"
            if "not a git repository" in message
            else "fetch the base branch first",
        )
    return done.stdout


LEVELS = ("review", "breaks", "loses", "never")
_LOSES = ("loses data", "cannot be undone")
_BREAKS = ("breaks readers", *_LOSES)
migration = typer.Typer(
    help="Predict what a source's migration SQL will change here.",
    epilog=examples("instep migration check V7__orders.sql"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(migration, name="migration")


@migration.callback()
def _room() -> None:
    """Predict what a source's migration SQL will change here."""


@dataclass
class Checked:
    """One connection's check with what stands beside it."""

    found: MigrationCheck
    times: dict[str, str] = field(default_factory=dict)
    """Duration of backfills, by consequence."""
    report: ImpactReport | None = None
    unjudged: str = ""

    def models(self, id: str) -> tuple[str, ...]:
        """Return the models that a change breaks."""
        outcomes = self.report.outcomes if self.report else ()
        return next((o.models.get("breaks", ()) for o in outcomes if o.id == id), ())

    def fails(self, consequence: Consequence, levels: Sequence[str]) -> int:
        """Return the exit code that a change asks for, 0 if it is fine."""
        if "review" in levels and consequence.waits:
            return BLOCKED
        breaks = consequence.level in _BREAKS or bool(self.models(consequence.id))
        return CHANGES if ("breaks" in levels and breaks) or ("loses" in levels and consequence.level in _LOSES) else 0

    def code(self, levels: Sequence[str]) -> int:
        codes = [self.fails(c, levels) for c in self.found.consequences]
        return max([*codes, BLOCKED if "review" in levels and self.found.refused else 0])


@migration.command(
    epilog=examples(
        "instep migration check V7__orders.sql",
        "instep migration check db/migrations --git-diff origin/main --output github",
    )
)
def check(
    files: Annotated[
        list[Path] | None, typer.Argument(help="SQL files or folders, in order; - for standard input.")
    ] = None,
    connection: Annotated[
        list[str] | None,
        typer.Option(
            "--connection", "-c", help="Only this connection; repeatable. The default is all that have the tables."
        ),
    ] = None,
    dialect: Annotated[
        str, typer.Option("--dialect", help="postgres, mysql or sqlite; the default is the source's.")
    ] = "",
    base: Annotated[
        str, typer.Option("--git-diff", metavar="BASE", help="Only .sql files that changed since BASE.")
    ] = "",
    fail_on: Annotated[
        list[str] | None, typer.Option("--fail-on", help="review (the default), breaks, loses or never; repeatable.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a statement is not understood.")] = False,
) -> None:
    """Predict what migration SQL will change here, before it runs.

    Shows each change with its class, action and rule, what a sync reads again, and what breaks downstream. The SQL runs
    in memory on the source's schema as last detected; neither source nor destination is opened. Exits with 3 if a
    person has to decide, with 2 for --fail-on breaks and loses.
    """
    levels = tuple(fail_on or ("review",))
    if wrong := [w for w in levels if w not in LEVELS]:
        raise typer.BadParameter(f"{wrong[0]!r} is not one of {', '.join(LEVELS)}", param_hint="--fail-on")
    given = scripts(files or [], base)
    with open_app() as app:
        checked = _checked(app, connection or [], dialect, given)
    emit({"connections": [_document(c, levels) for c in checked]}, lambda out: _show(out, checked, levels))
    if strict and any(c.found.unread for c in checked):
        raise fail(1)
    if code := max((c.code(levels) for c in checked), default=0):
        raise fail(code)


def _checked(app: App, named: Sequence[str], dialect: str, given: Sequence[tuple[str, str]]) -> list[Checked]:
    """Return the connections that the scripts are about: the named ones, else those whose tables are altered, else
    all."""
    read_migration = _reader(dialect)
    dialects = _dialects_of(app, named, "mysql" if dialect == "mariadb" else dialect)
    read = {spoken: read_migration(given, spoken) for spoken in dict.fromkeys(dialects.values())}
    checks: list[Checked] = []
    problem: InstepError | None = None
    for name, spoken in dialects.items():
        try:
            checks.append(_one(app, name, read[spoken]))
        except InstepError as error:
            if named:
                raise
            problem = problem or error
    if problem and not checks:
        raise problem
    concerned = [c for c in checks if named or c.found.concerned]
    return concerned or checks


def _reader(dialect: str) -> Callable[[Sequence[tuple[str, str]], str], Migration]:
    from instep.lineage.needed import needs_sqlglot

    with needs_sqlglot():
        from instep.lineage.migration.script import DIALECTS
        from instep.lineage.migration.statements import read_migration
    if dialect and dialect not in (*DIALECTS, "mariadb"):
        raise InstepError(f"migrations in the dialect {dialect!r} are not supported", hint=f"use {', '.join(DIALECTS)}")
    return read_migration


def _dialects_of(app: App, named: Sequence[str], dialect: str) -> dict[str, str]:
    """Return connections whose source speaks the dialect, with it."""
    from instep.sync.operations.check_migration import dialect_of

    dialects: dict[str, str] = {}
    for name in app.project.selected(list(named)):
        try:
            spoken = dialect_of(app.sync_context(name))
        except ProjectError:
            if named:
                raise
            continue
        if not dialect or spoken == dialect:
            dialects[name] = spoken
        elif named:
            raise InstepError(f"the source of {name} speaks {spoken}, not {dialect}", hint="leave --dialect out")
    if not dialects:
        raise InstepError("no connection has a source for this SQL", hint="name one with --connection")
    return dialects


def _one(app: App, name: str, read: Migration) -> Checked:
    from instep.plans.costs import rates, reading
    from instep.plans.downstream import configured
    from instep.sync.operations.check_migration import predict_migration

    context = app.sync_context(name)
    prediction = predict_migration(context, read)
    known = rates(app.store, name)
    made = Checked(prediction)
    for consequence in prediction.consequences:
        if consequence.backfill:
            size = consequence.backfill.size
            made.times[consequence.id] = str(
                reading(known, consequence.backfill.ref, consequence.backfill.mode, size.rows)
            )
    if (where := configured(app, name)) and prediction.consequences:
        made.report, made.unjudged = _judged(context, prediction, where)
    return made


def _judged(context: SyncContext, prediction: MigrationCheck, where: Downstream) -> tuple[ImpactReport | None, str]:
    """Judge the models; what is wrong with the settings is reported and stops nothing."""
    from instep.plans.downstream import read_models
    from instep.sync.operations.check_migration import downstream

    try:
        return downstream(context, prediction, read_models(where)), ""
    except InstepError as error:
        return None, f"downstream models were not evaluated: {error.message}"


def _document(checked: Checked, levels: Sequence[str]) -> dict[str, Any]:
    prediction = checked.found
    return {
        "connection": prediction.connection,
        "exit_code": checked.code(levels),
        "changes": [_change(checked, c, levels) for c in prediction.consequences],
        "unread": [_note(u) for u in prediction.unread],
        "notes": [_note(n) for n in prediction.notes],
        "elsewhere": [{"file": e.at.file, "line": e.at.line, "table": e.why} for e in prediction.elsewhere],
        "settled": list(prediction.settled),
        "steps": list(prediction.steps),
        "refused": dict(prediction.refused),
        "downstream": checked.unjudged,
    }


def _note(statement: UnreadStatement) -> dict[str, Any]:
    return {"file": statement.at.file, "line": statement.at.line, "text": statement.why}


def _change(checked: Checked, consequence: Consequence, levels: Sequence[str]) -> dict[str, Any]:
    decision = consequence.decision
    return {
        "id": consequence.id,
        "at": [{"file": a.file, "line": a.line} for a in consequence.at],
        "statement": consequence.statement,
        "kind": decision.change.kind,
        "summary": consequence.summary,
        "action": decision.action,
        "effect": decision.effect,
        "rule": decision.rule,
        "why": decision.why,
        "modifiers": asdict(decision.modifiers),
        "waits": consequence.waits,
        "class": consequence.level,
        "hazards": [asdict(h) for h in consequence.hazards],
        "fails": bool(checked.fails(consequence, levels)),
        "backfill": _backfill(checked, consequence),
        "breaks": list(checked.models(consequence.id)),
    }


def _backfill(checked: Checked, consequence: Consequence) -> dict[str, Any] | None:
    if consequence.backfill is None:
        return None
    size = consequence.backfill.size
    return {
        "table": size.table,
        "columns": list(size.columns),
        "rows": size.rows,
        "bytes": size.read,
        "sure": size.sure,
        "time": checked.times[consequence.id],
    }


def _show(out: Screen, checks: Sequence[Checked], levels: Sequence[str]) -> None:
    lines = _annotations if options.output == "github" else _lines
    for one in checks:
        for line, style in lines(one, levels):
            out.write(line, style)


def _lines(checked: Checked, levels: Sequence[str]) -> Iterator[tuple[str, str]]:
    prediction = checked.found
    yield f"{prediction.connection}: {_count(len(prediction.consequences), 'change')}", "bold"
    for change in prediction.consequences:
        style = "red" if checked.fails(change, levels) else "yellow" if change.level != "safe" else ""
        yield f"  {_places(change)}{change.summary}", style
        yield f"    {_decided(change)}", ""
        yield from ((f"    {text}", "dim") for text in _consequences(checked, change))
    yield from ((f"  refused at the destination: {why}", "red") for why in prediction.refused.values())
    yield from ((f"  settles what waits: {text}", "") for text in prediction.settled)
    yield from ((f"  {n.at}: note: {n.why}", "yellow") for n in prediction.notes)
    yield from ((f"  {u.at}: not understood: {u.why}", "yellow") for u in prediction.unread)
    yield from ((f"  {e.at}: {e.why} is not a table of {prediction.connection}", "dim") for e in prediction.elsewhere)
    if checked.unjudged:
        yield f"  {checked.unjudged}", "yellow"


def _places(change: Consequence) -> str:
    return f"{', '.join(map(str, change.at))}: " if change.at else ""


def _decided(change: Consequence) -> str:
    from instep.schema.planning.explain import outcome

    note = ", and a person says whether it is a rename" if change.waits and not change.decision.needs_review else ""
    return f"{outcome(change.decision)}{note}; {change.level}"


def _consequences(checked: Checked, change: Consequence) -> Iterator[str]:
    yield from (h.text for h in change.hazards if h.level != "safe")
    if change.backfill:
        yield _reads(checked, change)
    if models := checked.models(change.id):
        yield f"breaks {_count(len(models), 'model')}: {', '.join(models)}"


def _reads(checked: Checked, change: Consequence) -> str:
    from instep.schema.planning.explain import size

    assert change.backfill is not None
    made = change.backfill.size
    what = f"{made.table}.{', '.join(made.columns)} is filled" if made.columns else f"{made.table} is read again"
    sure = "" if made.sure else " (estimated)"
    return f"{what}: about {made.rows:,} rows, {size(made.read)}{sure}, {checked.times[change.id]}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _annotations(checked: Checked, levels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield workflow commands, which GitHub shows beside the lines of the pull request."""
    name = checked.found.connection
    for change in checked.found.consequences:
        level = "error" if checked.fails(change, levels) else "warning" if change.level != "safe" else "notice"
        text = "\n".join([change.summary, _decided(change), *_consequences(checked, change)])
        yield _annotation(level, change.at[-1] if change.at else None, name, text), ""
    yield from ((_annotation("error", None, name, why), "") for why in checked.found.refused.values())
    yield from ((_annotation("warning", n.at, name, n.why), "") for n in checked.found.notes)
    yield from ((_annotation("warning", u.at, name, f"not understood: {u.why}"), "") for u in checked.found.unread)


def _annotation(level: str, at: FileLine | None, name: str, text: str) -> str:
    place = f"file={_escaped(at.file, ':,')},line={at.line}," if at else ""
    return f"::{level} {place}title={_escaped(f'instep {name}', ':,')}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    for sign in ("%", "\r", "\n", *more):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
