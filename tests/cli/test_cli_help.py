"""What `--help` says: an example and a text for everything, for every command."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from cli_world import Shop
from typer.main import get_command

from command_runs import every_command, run
from instep.cli.arguments import GROUPS
from instep.cli.main import app, hoisted

PROGRAM = get_command(app)
ALL = every_command()
EXPECTED = {("sync",), ("changes", "map"), ("quarantine", "replay"), ("demo", "up"), ("selection", "hash")}
FAMILIES = {path[:n] for path in ALL for n in range(1, len(path))}
SUMMARY_LENGTH = 75


def found(path: tuple[str, ...]) -> Any:
    """Return the command or family of commands of that name."""
    command: Any = PROGRAM
    for word in path:
        command = command.commands[word]
    return command


def examples(path: tuple[str, ...]) -> list[list[str]]:
    """Return the command lines below `Example:` in a command's help, as words."""
    lines = (found(path).epilog or "").splitlines()
    assert re.fullmatch("Examples?:", lines[0])
    return [shlex.split(line) for line in lines[1:]]


def parsed(words: list[str]) -> tuple[str, ...]:
    """Parse a command line, as the entry point does, without running it; return the command that it is for."""
    rest = hoisted(words)
    command: Any = PROGRAM
    context: Any = None
    path: tuple[str, ...] = ()
    while hasattr(command, "commands"):
        context = command.make_context("instep", rest, parent=context)
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        path = (*path, name)
    command.make_context(path[-1], rest, parent=context)
    return path


def test_all_are_seen() -> None:
    assert set(ALL) >= EXPECTED


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_each_has_examples_that_parse_and_says_what_its_options_do(path: tuple[str, ...]) -> None:
    assert [(words[0], parsed(words[1:])) for words in examples(path)] == [("instep", path)] * len(examples(path))
    assert examples(path)
    assert [p.name for p in ALL[path].params if not p.help] == []


@pytest.mark.parametrize("path", sorted(FAMILIES), ids=" ".join)
def test_a_family_of_commands_has_examples_of_its_commands(path: tuple[str, ...]) -> None:
    assert examples(path)
    assert all(parsed(words[1:])[: len(path)] == path for words in examples(path))


@pytest.mark.parametrize("path", [*ALL, *sorted(FAMILIES)], ids=" ".join)
def test_each_is_summed_up_in_one_short_sentence(path: tuple[str, ...]) -> None:
    summary, _, details = found(path).help.partition("\n\n")
    assert re.fullmatch(r"[A-Z][^\n]*\.", summary)
    assert len(summary) <= SUMMARY_LENGTH
    assert not details or re.fullmatch(r"[^a-z].*[.:]", details.strip(), re.DOTALL)


def test_the_program_lists_its_commands_under_headings_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert [name for names in GROUPS.values() for name in names.split()] == PROGRAM.list_commands(None)  # type: ignore[arg-type]
    lines = run(capsys, "--help").out.splitlines()
    heads = [line.strip("╭╮─ ") for line in lines if line.startswith("╭")]
    assert heads == ["Options", *GROUPS]


def test_an_option_has_one_text_wherever_it_means_the_same() -> None:
    same = {"--dry-run", "--allow-destructive", "--lanes", "--grace", "--log-format", "--log-level"}
    texts = {(o, p.help) for c in ALL.values() for p in c.params for o in p.opts if o in same}
    assert sorted(name for name, _ in texts) == sorted(same)


def test_a_table_of_a_source_is_always_written_the_same() -> None:
    """Those of `connector reset` and `table shards` are of a destination."""
    elsewhere = {("connector", "reset"), ("table", "shards")}
    written = {
        p.metavar for path, c in ALL.items() for p in c.params if p.name in ("table", "path") and path not in elsewhere
    }
    assert written == {"SCHEMA.TABLE", "SCHEMA.TABLE[.COLUMN]", "PATTERN"}


def test_verify_before_the_first_sync_says_that_there_is_nothing(shop: Shop) -> None:
    assert "no table has been synced yet" in shop.ok("verify").out
    assert shop.json("verify")["tables"] == []


TYPOS = [
    ("select * from shop.custmer", "did you mean shop.customer?"),
    ("select * from custmer", "did you mean customer?"),
    ("select * from zzzzzz", "the destination has shop.customer"),
    ("selec 1", "names that are reserved words"),
]


@pytest.mark.parametrize(("sql", "hint"), TYPOS)
def test_a_query_with_a_typo_is_told_what_there_is(shop: Shop, sql: str, hint: str) -> None:
    shop.applied()
    said = shop.run("query", sql)
    assert said.code == 1
    assert hint in said.err


def test_a_query_on_an_empty_destination_is_told_so(shop: Shop) -> None:
    assert "the destination has no tables" in shop.run("query", "select * from customer").err
