"""What holds for all commands: global options, JSON, errors, colours, awkward names, completion, pipes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest
from cli_world import ANSI, Shop
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from instep.cli.main import hoisted, main
from instep.cli.render import live
from instep.cli.screen import Screen, cell
from instep.cli.text import folded, json_text
from instep.errors import one_line, visible

READS = [
    ("version",), ("validate",), ("doctor",), ("source", "test"), ("source", "discover"), ("destination", "test"),
    ("detect",), ("plan",), ("apply", "--yes"), ("changes", "list"), ("status",), ("history",), ("history", "--runs"),
    ("history", "--schema"), ("query", "select 1"), ("pause",), ("resume",),
]  # fmt: skip


def test_every_command_speaks_json_and_nothing_else_on_stdout(shop: Shop) -> None:
    for words in READS:
        assert isinstance(shop.json(*words), dict), words


def test_a_pipe_gets_no_ansi(shop: Shop) -> None:
    for words in (*READS, ("--help",), ("plan", "--help"), ("nonsense",), ("plan", "--nonsense")):
        said = shop.run(*words)
        assert not ANSI.search(said.out + said.err), words


LONG = [
    ("source test",), ("source discover",), ("destination test",), ("detect",), ("plan",), ("apply", "--yes"),
    ("query", "select count(*) from range(10000000)"),
]  # fmt: skip


@pytest.mark.parametrize("words", LONG, ids=[words[0] for words in LONG])
def test_a_command_that_may_take_long_shows_that_it_is_at_work(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, words: Sequence[str]
) -> None:
    monkeypatch.setattr(live, "_beat", lambda board, _: print(board.line(), file=sys.stderr))
    command, *rest = words
    assert f"  {command} is at work" in shop.ok(*command.split(), *rest).err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, False), (0.5, True)])
def test_a_terminal_shows_after_a_moment_that_a_command_is_at_work(
    monkeypatch: pytest.MonkeyPatch, seconds: float, shown: bool
) -> None:
    monkeypatch.setattr(live, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with live.waiting():
        time.sleep(seconds)
    assert ("is at work" in terminal.getvalue()) == shown


COLOURS: list[tuple[str, dict[str, str], Sequence[str], bool]] = [
    ("a terminal has colours", {}, [], True),
    ("unless NO_COLOR is set", {"NO_COLOR": "1"}, [], False),
    ("an empty NO_COLOR does not count", {"NO_COLOR": ""}, [], True),
    ("unless --no-color is given", {}, ["--no-color"], False),
    ("a dumb terminal has none", {"TERM": "dumb"}, [], False),
]


@pytest.mark.parametrize(("env", "words", "coloured"), [c[1:] for c in COLOURS], ids=[c[0] for c in COLOURS])
def test_colours(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], words: Sequence[str], coloured: bool
) -> None:
    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    said = shop.run(*words, "plan")
    assert bool(ANSI.search(said.out)) is coloured
    failed = shop.run(*words, "validate", "-p", "/nowhere")
    assert bool(ANSI.search(failed.err)) is coloured


def test_nothing_is_cut_or_folded_in_a_pipe(shop: Shop) -> None:
    name, column = "t" * 190, "c" * 190
    shop.sql(f"create table {name} (id integer primary key, {column} text)")
    for words in (("source", "discover", "--columns"), ("detect",), ("changes", "list", "--all"), ("plan",)):
        assert name in shop.ok(*words).out, words
    assert column in shop.ok("source", "discover", "--columns").out
    value = "v" * 5000
    assert shop.ok("query", f"select '{value}' as a").out == f"{'a':<5000}  \n{value}  \n"


AWKWARD = [
    "[bold]b[/bold]", "[/]", "\x1b[31mred", "a\nb", "tab\there", "\x9b31m", ":smile:", "a\u202eb", "\x07", "%s {x} {0}",
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", AWKWARD)
def test_names_are_shown_and_never_obeyed(shop: Shop, name: str) -> None:
    shown = one_line(name)
    shop.sql(f'create table "t{name}" (id integer primary key, "c{name}" text)')
    for words in (("source", "discover", "--columns"), ("detect",), ("plan",), ("changes", "list", "--all")):
        out = shop.ok(*words).out
        assert f"t{shown}" in out, words
        assert not set(out) & set("\x1b\x9b\u202e\x07"), words
    assert f"c{name}" in {c["name"] for t in shop.json("source", "discover")["tables"] for c in t["columns"]}
    shop.applied()
    assert f"t{shown}" in shop.ok("history").out
    said = shop.run("pause", "--table", f"main.{name}")
    assert not set(said.err) & set("\x1b\x9b\u202e\x07")


TEXTS = [
    ("plain", "plain ü 🦀", "plain ü 🦀", "plain ü 🦀"),
    ("escape", "\x1b[0m", "\\x1b[0m", "\\x1b[0m"),
    ("lines", "a\nb\tc", "a\nb\tc", "a\\nb\\tc"),
    ("carriage return", "a\rb", "a\\rb", "a\\rb"),
    ("c1", "\x85\x9b", "\\x85\\x9b", "\\x85\\x9b"),
    ("direction", "\u202e", "\\u202e", "\\u202e"),
    ("a lone surrogate", "\udc80", "\\udc80", "\\udc80"),
]


@pytest.mark.parametrize(("text", "kept", "flat"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS])
def test_texts(text: str, kept: str, flat: str) -> None:
    assert visible(text) == kept
    assert one_line(text) == flat
    assert str(cell(text)) == flat
    assert json.loads(json_text({"a": text})) == {"a": text}
    assert not set(json_text({"a": text})) & set("\x1b\x9b\x85\u202e\udc80")


def test_a_screen_prints_text_as_it_is() -> None:
    screen = Screen(stderr=False, plain=True)
    screen.file = io.StringIO()
    screen.write("[b]x[/b] :smile: a\nb")
    screen.print("two\nlines \x1b")
    assert screen.file.getvalue() == "[b]x[/b] :smile: a\\nb\ntwo\nlines \\x1b\n"


FOLDS: list[tuple[str, str, int, str]] = [
    ("short", "  a b", 5, "  a b"),
    ("words", "  one two three", 10, "  one two\n      three"),
    ("a long word stays", "one internationalisation two", 10, "one\n    internationalisation\n    two"),
    ("a command stays", "so: `instep apply x`, or", 18, "so:\n    `instep apply x`,\n    or"),
    ("commands in a row", "  instep a b · instep c d", 20, "  instep a b\n      instep c d"),
    ("an odd backquote", "a ` b c", 5, "a ` b\n    c"),
    ("wide characters", "漢字 漢字", 6, "漢字\n    漢字"),
]


@pytest.mark.parametrize(("line", "width", "rows"), [case[1:] for case in FOLDS], ids=[case[0] for case in FOLDS])
def test_a_terminal_folds_lines_between_words(line: str, width: int, rows: str) -> None:
    assert folded(line, width) == rows


@example("  ", 1)
@given(st.text("ab `·", max_size=60), st.integers(1, 40))
def test_folding_loses_no_word(line: str, width: int) -> None:
    kept = folded(line, width).replace("·", " ").split()
    assert kept == line.replace("·", " ").split()


ANYWHERE: list[tuple[Sequence[str], Sequence[str]]] = [
    (["plan", "--output", "json", "-y"], ["--output", "json", "-y", "plan"]),
    (["plan", "--project=x", "-o", "f"], ["--project=x", "plan", "-o", "f"]),
    (["query", "--", "--yes"], ["query", "--", "--yes"]),
    (["--no-color", "a", "--no-input", "b"], ["--no-color", "--no-input", "a", "b"]),
    (["plan", "--output"], ["--output", "plan"]),
    (["-yp", "plan", "table", "list"], ["-y", "-p", "plan", "table", "list"]),
    (["plan", "-ypx", "-yo", "f"], ["-y", "-px", "-y", "plan", "-o", "f"]),
    (["plan", "-px", "-yyh"], ["-px", "-y", "-y", "plan", "-h"]),
    (["-p", "-yp", "plan", "--", "-yp"], ["-p", "-yp", "plan", "--", "-yp"]),
    ([], []),
]


@pytest.mark.parametrize(("given", "moved"), ANYWHERE)
def test_global_options_may_stand_anywhere(given: list[str], moved: list[str]) -> None:
    assert hoisted(given) == moved


def test_options_of_one_command_do_not_reach_the_next(shop: Shop) -> None:
    shop.ok("apply", "--yes", "--output", "json")
    shop.sql("alter table customer add column zip text")
    said = shop.run("apply")
    assert (said.code, said.out) == (3, "")


USAGE = [
    ("no command", []), ("an unknown command", ["nonsense"]), ("an unknown option", ["plan", "--nonsense"]),
    ("a missing argument", ["query"]), ("too many arguments", ["plan", "a", "b"]), ("no value", ["query", "x", "-n"]),
    ("a wrong value", ["query", "x", "-n", "many"]), ("a wrong format", ["plan", "--output", "xml"]),
]  # fmt: skip


@pytest.mark.parametrize("words", [case[1] for case in USAGE], ids=[case[0] for case in USAGE])
def test_wrong_usage_is_64(shop: Shop, words: list[str]) -> None:
    said = shop.run(*words)
    assert said.code == 64
    assert said.out == ""
    assert said.err


def test_a_group_alone_shows_its_help(shop: Shop) -> None:
    said = shop.run("changes")
    assert (said.code, "approve" in said.out) == (64, True)


def test_wrong_usage_as_json(shop: Shop) -> None:
    for words in (["nonsense"], ["plan", "--nonsense"], ["query"]):
        problem: Any = shop.run(*words, "--output", "json").json
        assert (problem["type"], problem["exit_code"]) == ("urn:instep:Usage", 64)


def test_errors_as_json_say_what_and_what_next(shop: Shop) -> None:
    said = shop.run("plan", "nope", "--output=json")
    assert said.code == said.json["exit_code"] == 1
    assert said.json["type"] == "urn:instep:ProjectError"
    assert said.json["title"] == "The project file is not valid."
    assert "unknown connection 'nope'" in said.json["detail"]
    assert said.json["hint"]
    assert said.err == ""


def test_interrupted_is_130(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("instep.cli.backend.open_app", interrupt)
    assert shop.run("status").code == 130


def test_a_store_that_cannot_be_opened_is_4(shop: Shop) -> None:
    shop.folder.joinpath(".instep").mkdir()
    shop.folder.joinpath(".instep", "state.db").write_text("this is no database, but some text of enough length")
    said = shop.run("status")
    assert said.code == 4, said
    assert "state.db" in said.err


def test_a_folder_where_a_file_should_be_is_an_error_of_ours(shop: Shop) -> None:
    shop.folder.joinpath(".instep").write_text("")
    said = shop.run("status")
    assert said.code in (1, 4)
    assert ".instep" in said.err


SHELL = {**os.environ, "TERM": "dumb"}


def instep(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "instep.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**SHELL, **env})


def test_completion_for_bash() -> None:
    shown = instep("--show-completion", "bash")
    assert "complete -o default -F _instep_completion instep" in shown.stdout
    done = instep(_INSTEP_COMPLETE="complete_bash", COMP_WORDS="instep so", COMP_CWORD="1")
    assert (done.stdout.split(), done.returncode) == (["source"], 0)
    below = instep(_INSTEP_COMPLETE="complete_bash", COMP_WORDS="instep changes ", COMP_CWORD="2")
    expected = "list show approve map sample reject ignore snooze reopen comment assign"
    assert below.stdout.split() == expected.split()


def test_a_reader_that_has_seen_enough_is_no_error(shop: Shop) -> None:
    shop.applied()
    for form in ("table", "json"):
        command = [sys.executable, "-m", "instep.cli.main", "-p", str(shop.folder), "--output", form]
        sql = "select range as n, repeat('x', 90) as x from range(20000)"
        with subprocess.Popen([*command, "query", sql, "-n", "20000"], stdout=-1, stderr=-1, text=True) as process:
            assert process.stdout
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr
            assert (process.stderr.read(), process.wait()) == ("", 0)


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_reader_that_was_never_there_is_no_error(shop: Shop, form: str) -> None:
    shop.applied()
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "instep.cli.main", "-p", str(shop.folder), "--output", form, "status"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_failure_is_told_once(shop: Shop) -> None:
    """Its events are for the logs."""
    (shop.folder / "shop.db").unlink()
    found = instep("-p", str(shop.folder), "sync")
    assert (found.returncode, found.stdout) == (4, "")
    assert [line.partition(":")[0] for line in found.stderr.splitlines() if not line.startswith(" ")] == ["error"]


def test_main_answers_codes_and_never_exits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "verify" in capsys.readouterr().out
