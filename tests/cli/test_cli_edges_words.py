"""Command lines at their edges: what is refused before anything is opened, with the code and the words for it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from cli_world import PROJECT, Shop
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from command_runs import every_command, run
from instep.cli.backend import LOCAL_COMMANDS, WHY, is_remote
from instep.cli.main import app, command_of, hoisted, with_only

CHANNEL = PROJECT + "channels:\n  ops: {type: slack, url: '${env:HOOK}', digest: '17:30', quiet: 22:00-06:00}\n"
# words | exit code | what is said, and what to do
REFUSED: list[tuple[tuple[str, ...], int, str, str]] = [
    (("table", "set-cursor", "main.order"), 1, "no cursor is named", "name a column, or pass --none"),
    (("table", "set-cursor", "main.order", "id", "--none"), 1, "no cursor is named", "name a column, or pass --none"),
    (("table", "set-cursor", "main.order", "--none", "--from", "1"), 1, "--from needs a cursor", "leave --from out"),
    (("table", "set-key", "main.order", "id", "--rekey", "--clear"), 1, "--rekey and --clear cannot be combined",
     "give one of them"),
    (("sync", "--no-wait"), 1, "--no-wait needs --server", "the command runs the sync itself"),
    (("detector", "set", "frequency"), 1, "'frequency' is not NAME=VALUE", "write for example frequency=1800"),
    (("detector", "set", "frequncy=1800"), 1, "there is no option 'frequncy'", "did you mean frequency?"),
    (("detector", "set", "frequency=2026-13-45"), 1, "frequency: '2026-13-45' is not a valid value",
     "write true, 1800 or [a, b]"),
    (("detector", "set", "frequency=[1"), 1, "frequency: '[1' is not a valid value", "write true, 1800 or [a, b]"),
    (("detector", "set", "excluded_columns=a"), 1, "excluded_columns is an option of tables",
     "name a table: --table schema.table"),
    (("detector", "set", "frequency=1800", "--table", "a.b"), 1, "frequency is an option of a source",
     "leave --table out"),
    (("quarantine", "discard", "main.order", "--key", "{", "--yes"), 1, "--key is not JSON", "for example --key"),
    (("quarantine", "discard", "main.order", "--key", "[7]", "--yes"), 1,
     "--key is not an object of columns and values", "for example --key"),
    (("quarantine", "discard", "main.order", "--key", '{"id": [7]}', "--yes"), 1,
     "--key is not an object", "for example"),
    (("quarantine", "discard", "q-1", "--key", "{}"), 1, "--key needs exactly one table", "name the table"),
    (("quarantine", "discard", "a.b", "c.d", "--key", "{}"), 1, "--key needs exactly one table", "name the table"),
    (("quarantine", "show", "q-nothing"), 1, "no entry in quarantine: q-nothing", "instep quarantine list --limit 100"),
    (("migration", "check"), 1, "no migration is named",
     "name its files or folders, - for standard input, or pass --git-diff main"),
    (("migration", "check", "--git-diff=-x"), 1, "'-x' is not a commit", "write --git-diff origin/main"),
    (("source", "log", "show", "nothing"), 1, "unknown connection 'nothing'", ""),
    (("schema", "show", "--at", "soon"), 1, "'soon' is neither a time nor a version", "or a version: 7 or 2.1"),
    (("schema", "show"), 1, "connection shop: no accepted schema is known yet", "`instep apply` accepts it"),
    (("schema", "show", "--side", "source"), 1, "no source schema is known yet", "`instep detect` looks at the source"),
    (("schema", "diff", "--at", "1", "--at", "2", "--at", "3"), 64, "give one or two times", ""),
    (("schema", "show", "--side", "other"), 64, "other", ""),
    (("restore", "main.order"), 64, "pass --snapshot ID or --at TIME", ""),
    (("restore", "main.order", "--at", "soon"), 64, "'soon' is not a time", ""),
    (("notify", "test", "opz"), 1, "unknown channel 'opz'", ""),
    (("notify", "open", "opz"), 1, "unknown channel 'opz'", ""),
    (("notify", "retry", "7"), 1, "no delivery 7 is known", "see `instep notify log`"),
    (("notify", "log", "--delivery", "7"), 1, "no delivery 7 is known", "see `instep notify log`"),
    (("notify", "log", "-n", "0"), 64, "", ""),
    (("db", "restore", "nothing.jsonl"), 1, "nothing.jsonl", ""),
    (("secrets", "status"), 1, "there is no master key to encrypt secrets with", "instep secrets new-key"),
    (("secrets", "new-key", "a b"), 1, "'a b' is not a valid key id", "use letters, digits, _, . and -, such as k2"),
    (("import", "project", "nothing.yml"), 1, "nothing.yml does not exist", ""),
    (("rollout", "status", "r-1"), 1, "r-1", ""),
    (("queue", "retry", "j-1"), 1, "j-1", ""),
    (("worker", "--log-level", "loud"), 64, "'loud' is not one of debug, info, warning, error", ""),
    (("server", "--log-format", "xml"), 64, "'xml' is not one of auto, json, text", ""),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "code", "what", "next_step"), REFUSED, ids=[" ".join(r[0])[:60] for r in REFUSED])
def test_what_is_refused_says_why_and_what_to_do(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, what: str, next_step: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shop.write(text=CHANNEL)
    said = shop.run(*words)
    assert (said.code, said.out) == (code, ""), said
    assert what in said.err
    assert next_step in said.err
    problem = shop.run(*words, "--output", "json").json
    assert (problem["exit_code"], what in problem["detail"]) == (code, True)
    assert next_step in problem["hint"]


def test_keys_and_what_they_have_sealed(shop: Shop) -> None:
    made = shop.json("secrets", "new-key")
    file = Path(made["file"])
    assert (made["key"], file, stat.S_IMODE(file.stat().st_mode)) == ("k1", shop.folder / ".instep" / "keys", 0o600)
    assert shop.ok("secrets", "new-key", "new").out == f"new is the current key of {file}\n"
    again = shop.run("secrets", "new-key", "k1")
    assert (again.code, "has a key 'k1' already" in again.err) == (1, True)
    assert shop.json("secrets", "status")["keys"] == [
        {"key": "new", "secrets": 0, "current": True, "present": True},
        {"key": "k1", "secrets": 0, "current": False, "present": True},
    ]
    assert shop.ok("secrets", "status").out == "new: 0 secret(s), current\nk1: 0 secret(s), present\n"
    assert shop.ok("secrets", "rotate").out == "0 secret(s) re-encrypted with new\n"
    shown = "".join(shop.ok(*words).out for words in (("secrets", "status"), ("export",), ("db", "upgrade")))
    assert not any(line.partition(":")[2] in shown for line in file.read_text().splitlines())


def test_the_store_is_upgraded_backed_up_and_brought_back(shop: Shop) -> None:
    first = shop.json("db", "upgrade")
    assert first["before"] != first["after"]
    assert shop.ok("db", "upgrade").out == f"the store is at version {first['after']} already\n"
    shop.ok("pause", "shop")
    for name in ("state.jsonl.gz", "state.db"):
        copy = shop.folder / name
        assert shop.ok("db", "backup", str(copy)).out == f"wrote {copy}\n"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert shop.run("db", "backup", str(copy)).code == 1
        refused = shop.run("db", "restore", str(copy), "--replace", "--no-input")
        assert (refused.code, refused.err) == (1, "nothing was changed\n")
        used = shop.run("db", "restore", str(copy))
        assert (used.code, "is in use" in used.err) == (5, True)
        assert shop.json("db", "restore", str(copy), "--replace", "--yes")["rows"]["pauses"] == 1


def test_what_is_over_is_forgotten_after_its_time(shop: Shop) -> None:
    assert shop.ok("db", "prune").out == "deleted nothing\n"
    assert shop.json("db", "prune", "--dry-run") == {"format_version": 1, "dry_run": True, "forgotten": {}}


def test_channels_are_listed_with_when_they_are_told(shop: Shop) -> None:
    assert shop.ok("notify", "list").out == "no channels: add some below `channels:` in instep.yml\n"
    shop.write(text=CHANNEL)
    assert shop.ok("notify", "list").out == "ops  slack  digest 17:30  quiet 22:00-06:00\n"
    assert shop.json("notify", "list")["channels"] == [
        {"channel": "ops", "type": "slack", "digest": "17:30", "quiet": "22:00-06:00", "waiting": 0, "closed": ""}
    ]
    assert "HOOK is not set" in shop.run("notify", "test", "ops").err
    for there in ("", "HOOK=https://127.0.0.1:9/x\n"):  # only who is told something needs an address
        shop.folder.joinpath(".env").write_text(there)
        assert shop.ok("notify", "send").out == "0 sent, 0 failed, 0 notifications pending\n"
    assert shop.ok("notify", "log").out == "nothing has been sent yet\n"
    assert shop.ok("notify", "open", "ops").out == "already open\n"


# a command line | the command that it names
COMMANDS: list[tuple[list[str], str]] = [
    (["plan"], "plan"), (["-p", "x", "changes", "map", "c-1"], "changes map"), (["changes"], "changes"),
    (["--project=x", "query", "select 1"], "query"), (["query", "-h"], ""), ([], ""),
    (["query", "--", "--help"], "query"), (["--server", "plan", "status", "x"], "status"),
    (["source", "log", "drop", "--slot", "s"], "source log"), (["-yp", "demo", "status"], "status"),
    (["-ypdemo", "changes", "list"], "changes list"), (["status", "-hy"], ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "command"), COMMANDS)
def test_the_command_of_a_command_line(line: list[str], command: str) -> None:
    assert command_of(hoisted(line)) == command


@pytest.mark.parametrize("options", [["-yp", "demo"], ["-ypdemo"], ["-y", "-pdemo"]])
def test_a_folder_may_be_called_as_a_command_is(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    folder = shop.folder / "demo"
    folder.mkdir()
    shop.folder.joinpath("instep.yml").rename(folder / "instep.yml")
    monkeypatch.chdir(shop.folder)
    said = run(shop.capsys, *options, "notify", "list")
    assert (said.code, said.out) == (0, "no channels: add some below `channels:` in instep.yml\n")


@pytest.mark.parametrize("line", [["-p=new", "init"], ["init", "-p=new"], ["init", "-yp=new"]])
def test_a_folder_behind_an_equals_sign_is_no_folder_of_that_name(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, line: list[str]
) -> None:
    monkeypatch.chdir(shop.folder)
    before = sorted(shop.folder.iterdir())
    said = run(shop.capsys, *line)
    assert (said.code, "write -p new, or --project=new" in said.err) == (64, True)
    assert sorted(shop.folder.iterdir()) == before


def test_every_command_works_over_a_server_or_says_why_not() -> None:
    for path in every_command():
        name = " ".join(path[:2])
        known = is_remote(name), name in LOCAL_COMMANDS, bool(WHY.get(name) or WHY.get(path[0]))
        assert any(known), path
        assert known[:2] != (True, True), path


def test_a_command_that_does_not_go_over_a_server_opens_nothing(shop: Shop) -> None:
    for path in every_command():
        name = " ".join(path[:2])
        if is_remote(name) or name in LOCAL_COMMANDS:
            continue
        problem = shop.run(*path, "--server", "http://127.0.0.1:9", "--output", "json", "--", "x", "y").json
        assert f"`instep {name}` is not available with --server: " in problem["detail"]
        assert problem["hint"]
        assert problem["exit_code"] == 1
    assert not shop.folder.joinpath(".instep").exists()


def test_what_is_built_for_a_command_is_that_command_alone_and_as_it_is_among_all() -> None:
    every: Any = get_command(app)
    for word, among_all in every.commands.items():
        alone: Any = get_command(with_only(word))
        assert list(alone.commands) == [word]
        assert _built(alone) == _built(every) | {"commands": {word: _built(among_all)}}
    for word in ("", "synk"):
        assert with_only(word) is app, "help and suggestions need them all"


def _built(command: Any) -> dict[str, Any]:
    """What is known of a command: its options, help, and those of the commands below."""
    return {
        "help": command.help,
        "epilog": command.epilog,
        "options": [(p.name, p.opts, p.required) for p in command.params],
        "commands": {name: _built(below) for name, below in getattr(command, "commands", {}).items()},
    }


WORDS = st.lists(st.sampled_from(["plan", "-y", "--yes", "-o", "f", "--no-input", "--output=json", "--", "-x"]))


@given(WORDS)
def test_moving_global_options_loses_no_word_and_no_order(given_words: list[str]) -> None:
    moved = hoisted(given_words)
    assert sorted(moved) == sorted(given_words)
    flags = {"-y", "--yes", "--no-input", "--output=json"}
    assert [w for w in moved if w not in flags] == [w for w in given_words if w not in flags]
    assert hoisted(moved) == moved
