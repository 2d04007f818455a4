"""`instep connector ...`: what is written, said and refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trial_world import CODE, Trial

from command_runs import run
from instep.bootstrap import open_project
from instep.cli.main import main
from instep.project.sections.connector import segments_folder, uploads_folder


@pytest.fixture
def trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Trial:
    return Trial(tmp_path / "parts", capsys)


ONE = 'op.upsert("part", {"id": 1, "name": "nut"})\nop.checkpoint({"at": 1})'


def test_init_writes_a_connector_that_runs_and_reads_on(trial: Trial) -> None:
    said = trial.ok("init")
    assert said.out.splitlines()[0] == f"wrote {trial.folder}/connector.py"
    assert "instep connector debug" in said.err
    assert trial.json("debug")["operations"]["upserts"] == 2
    assert [row[0] for row in trial.rows("event")] == [1, 2]
    assert trial.state == {"lines": 2}
    again = trial.json("debug")
    assert (again["operations"]["upserts"], again["schema"]) == (0, [])
    assert trial.ok("check").out.endswith("no problems found\n")


def test_init_replaces_nothing(trial: Trial) -> None:
    trial.write(ONE)
    said = trial.run("init")
    assert (said.code, "connector.py exists already" in said.err) == (1, True)
    assert {p.name for p in trial.folder.iterdir()} == {"connector.py"}


def test_debug_counts_operations_and_tells_what_changed(trial: Trial) -> None:
    trial.write(
        """
if not state:
    for n in range(3):
        op.upsert("part", {"id": n, "name": f"p{n}"})
    op.checkpoint({"n": 3})
    return
op.update("part", {"id": 1, "name": "bolt"})
op.delete("part", {"id": 2})
op.checkpoint({"n": 4})
op.truncate("bin")
op.upsert("bin", {"shelf": 1})
op.upsert("part", {"id": 0, "size": 2.5})
op.checkpoint({"n": 5})
"""
    )
    first = trial.ok("debug").out
    assert "+ table part added (2 columns)" in first
    assert "id int32, key 1, not null" in first
    assert counts(first) == {
        "upserts": 3,
        "updates": 0,
        "deletes": 0,
        "truncates": 0,
        "schema changes": 1,
        "checkpoints": 1,
    }
    said = trial.ok("debug").out
    assert counts(said) == {
        "upserts": 2,
        "updates": 1,
        "deletes": 1,
        "truncates": 1,
        "schema changes": 2,
        "checkpoints": 2,
    }
    assert "+ table bin added" in said
    assert "+ column part.size added (float64)" in said
    assert str(trial.folder / "files" / "state.json") in said
    assert trial.rows("part", "id, name, size, _instep_deleted") == [
        (0, None, 2.5, False), (1, "bolt", None, False), (2, "p2", None, True),
    ]  # fmt: skip
    assert trial.state == {"n": 5}


def counts(out: str) -> dict[str, int]:
    """The numbers below "Operations"."""
    lines = out.splitlines()
    assert lines[0] == "Operations"
    return {name.strip(): int(number) for name, _, number in (line.rpartition(" ") for line in lines[1:7])}


def test_debug_begins_from_the_state_that_is_given(trial: Trial) -> None:
    trial.write('n = state.get("n", 0)\nop.upsert("part", {"id": n})\nop.checkpoint({"n": n + 1})')
    trial.ok("debug")
    trial.ok("debug")
    other = trial.folder / "other.json"
    other.write_text('{"n": 70}')
    trial.ok("debug", "--state", str(other))
    assert [row[0] for row in trial.rows("part", "id")] == [0, 1, 70]
    assert (trial.state, other.read_text().split()) == ({"n": 2}, ["{", '"n":', "71", "}"])


def test_a_connector_can_tell_a_trial_from_a_sync_and_is_heard_once(trial: Trial) -> None:
    trial.write(
        """
import os
from fivetran_connector_sdk import Logging as log
log.warning("this is " + os.environ["FIVETRAN_DEPLOYMENT_MODEL"])
op.upsert("part", {"id": 1, "model": os.getenv("FIVETRAN_DEPLOYMENT_MODEL").lower()})
"""
    )
    with_drivers(trial.folder)
    for verb in ("debug", "check", "run"):
        program = "import sys; from instep.cli.main import main; sys.exit(main(sys.argv[1:]))"
        words = [sys.executable, "-c", program, "connector", verb, str(trial.folder)]
        done = subprocess.run([*words, *(["-d", f"{trial.folder}/x.db"] if verb == "run" else [])],
                              capture_output=True, text=True, timeout=300)  # fmt: skip
        assert (done.returncode, done.stderr.count("this is local_debug")) == (0, 1), done.stderr
        assert done.stderr.count("installation.sh is not run") == 1
    assert trial.rows("part") == [(1, "local_debug")]


def with_drivers(folder: Path) -> None:
    (folder / "drivers").mkdir()
    (folder / "drivers" / "installation.sh").write_text("touch ran\n")


def test_drivers_that_nobody_has_installed_may_be_why_it_fails(trial: Trial) -> None:
    trial.write(ONE, "import pyodbc_that_is_not_here\n" + CODE)
    assert "its drivers/installation.sh is not run" not in trial.run("debug").err
    with_drivers(trial.folder)
    said = trial.run("debug")
    assert (said.code, said.err.count("its drivers/installation.sh is not run")) == (1, 1), said
    assert not list(trial.folder.rglob("ran"))


def test_variables_reach_a_connector_by_name_and_no_file(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_TOKEN", "s3cr3t-of-13-")
    monkeypatch.setenv("CRM_OTHER", "7")
    trial.write(
        """
import os
from fivetran_connector_sdk import Logging as log
log.info("with " + os.getenv("CRM_TOKEN", ""))
op.upsert("part", {"id": len(os.getenv("CRM_TOKEN", "")), "other": os.getenv("CRM_OTHER")})
"""
    )
    trial.ok("debug")
    said = [trial.ok(verb, "--env", "CRM_TOKEN") for verb in ("debug", "check")]
    assert sorted(trial.rows("part", "id")) == [(0,), (13,)]
    assert "other" not in trial.tables()["part"]
    assert not [line for line in said if "s3cr3t" in line.out + line.err]
    written = [p for p in trial.folder.joinpath("files").rglob("*") if p.is_file()]
    assert [p for p in written if b"s3cr3t" in p.read_bytes()] == []
    for name, words in (("CRM_NONE", "no environment variable CRM_NONE"), ("CRM_TOKEN=s3cr3t", "by its name alone")):
        refused = trial.run("check", "--env", name)
        assert (refused.code != 0, words in refused.err, "s3cr3t" in refused.err) == (True, True, False), refused


def test_a_trial_shows_what_a_policy_does(trial: Trial) -> None:
    rules = trial.folder.parent / "rules.yml"
    rules.write_text("preset: block_all\nrules:\n- {on: [column.added], match: ['*.size'], decide: apply}\n")
    trial.write('op.upsert("part", {"id": 1, **({"size": 2, "note": "x"} if state else {})})\nop.checkpoint({"n": 1})')
    trial.ok("debug", "--policy", "block_all")
    assert trial.rows("part") == [(1,)]
    waits = trial.ok("debug", "--policy", "approve").out
    assert "  no changes" in waits
    assert trial.rows("part", "_instep_extra->>'size', _instep_extra->>'note'") == [("2", "x")]
    assert "+ column part.size added" in trial.ok("debug", "--policy", str(rules)).out
    assert "note" not in trial.tables()["part"]
    assert trial.rows("part", "id, size") == [(1, 2)]
    assert "+ column part.note" not in trial.ok("debug").out
    assert trial.rows("part", "_instep_extra->>'note'") == [("x",)], "what was listed off waits for a person"
    assert run(trial.capsys, "--project", str(trial.folder / "files"), "selection", "on", "part.note").code == 0
    assert "+ column part.note" in trial.ok("debug").out
    assert trial.rows("part", "id, size, note") == [(1, 2, "x")]


def test_the_configuration_reaches_the_connector_and_no_file(trial: Trial) -> None:
    trial.write('op.upsert("part", {"id": len(configuration["api_key"])})')
    trial.configure(api_key="s3cr3t-of-13-")
    trial.ok("debug")
    assert trial.rows("part", "id") == [(13,)]
    written = [p for p in trial.folder.joinpath("files").rglob("*") if p.is_file()]
    assert [p for p in written if b"s3cr3t" in p.read_bytes()] == []
    other = trial.folder / "other.json"
    other.write_text('{"api_key": "xx"}')
    trial.ok("debug", "--configuration", str(other))
    assert trial.rows("part", "id") == [(2,), (13,)]


def test_what_a_trial_has_brought_is_a_project_for_other_commands(trial: Trial) -> None:
    trial.write(ONE)
    trial.ok("debug")
    trial.capsys.readouterr()
    files = str(trial.folder / "files")
    assert main(["--project", files, "query", "select name from part"]) == 0
    assert "nut" in trial.capsys.readouterr().out
    assert main(["--project", files, "history", "part.name", "-c", "debug"]) == 0
    assert main(["--project", files, "status"]) == 0


def test_a_run_keeps_its_state_with_its_destination(trial: Trial) -> None:
    trial.write('n = state.get("n", 0)\nop.upsert("part", {"id": n})\nop.checkpoint({"n": n + 1})')
    lake = str(trial.folder / "there.duckdb")
    assert [trial.json("run", "--destination", lake)["operations"]["upserts"] for _ in range(2)] == [1, 1]
    trial.ok("debug")
    assert trial.state == {"n": 1}
    assert (trial.folder / "there.duckdb").exists()


def test_what_was_sent_before_an_error_is_kept_up_to_its_checkpoint(trial: Trial) -> None:
    trial.write(ONE + '\nop.upsert("part", {"id": 2})\nraise ValueError("no more parts")')
    said = trial.run("debug")
    assert said.code == 1
    assert "no more parts" in said.err
    assert "1 checkpoints" in said.err
    assert trial.state == {"at": 1}
    assert trial.rows("part", "id") == [(1,)]


REFUSED: list[tuple[str, dict[str, str], list[str], str]] = [
    ("no connector.py", {}, [], "no connector.py in"),
    ("a syntax error", {"connector.py": "def update(:\n"}, [], "SyntaxError: invalid syntax (connector.py, line 1)"),
    ("no object of that name", {"connector.py": CODE.replace("connector =", "mine =").replace("BODY", "pass")}, [],
     "connector.py has no object `connector`"),
    ("configuration that is no JSON", {"configuration.json": '{\n"a": }'}, [], "configuration.json:2: not JSON"),
    ("configuration of another kind", {"configuration.json": "[]"}, [], "holds no JSON object"),
    ("a value that is no string", {"configuration.json": '{"pages": 3}'}, [], "pages is of type int"),
    ("too many values", {"configuration.json": str({f"k{n}": "" for n in range(101)}).replace("'", '"')}, [],
     "has 101 fields"),
    ("a configuration that is not there", {}, ["--configuration", "nowhere.json"], "nowhere.json"),
    ("a state that is not there", {}, ["--state", "nowhere.json"], "nowhere.json does not exist"),
    ("a policy that is not there", {}, ["--policy", "careful"], "there is no preset and no file 'careful'"),
    ("a policy that is wrong", {"p.yml": "rules: [{on: [column.added], decide: maybe}]"}, ["--policy", "FOLDER/p.yml"],
     "p.yml:1"),
    ("a state that is no object", {"files/state.json": "7"}, [], "state.json holds no JSON object"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "words", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_run_is_told(trial: Trial, files: dict[str, str], words: list[str], said: str) -> None:
    trial.write(ONE)
    if said.startswith("no connector.py"):
        (trial.folder / "connector.py").unlink()
    for name, text in files.items():
        file = trial.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    answer = trial.run("debug", *(word.replace("FOLDER", str(trial.folder)) for word in words))
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err
    assert answer.err.count("error:") == 1
    assert not (trial.folder / "files" / "warehouse.db").exists()


def test_the_value_of_a_wrong_configuration_is_not_shown(trial: Trial) -> None:
    trial.write(ONE)
    trial.folder.joinpath("configuration.json").write_text('{"token": ["hunter2"]}')
    said = trial.run("check")
    assert "token is of type list" in said.err
    assert "hunter2" not in said.err + said.out


def test_check_finds_names_that_are_misspelt_and_writes_nothing(trial: Trial) -> None:
    trial.write(
        """
op.upsert("prt", {"id": 1, "name": "nut"})
for n in range(40):
    op.upsert("bin", {"shelf": n, "colour": "red"} if n else {"shelf": n, "color": "red"})
op.checkpoint({})
op.upsert("bin", {"shelf": "top", "colour": "red"})
"""
    )
    said = trial.run("check")
    assert said.code == 1
    found = [line.split()[:2] for line in said.out.splitlines() if line.startswith(("warn", "note"))]
    assert found == [
        ["warn", "bin.color"], ["warn", "bin.shelf"], ["warn", "prt"], ["note", "bin"], ["note", "prt"],
    ]  # fmt: skip
    assert {p.name for p in trial.folder.iterdir()} <= {"connector.py", "__pycache__"}


def test_check_sees_types_that_change_between_two_rows_of_one_checkpoint(trial: Trial) -> None:
    trial.write(
        """
for value in (1, "two", 3):
    op.upsert("part", {"id": len(str(value)), "size": value, "weight": value if value != "two" else 2.5})
"""
    )
    said = trial.run("check")
    assert said.code == 1
    assert "warn  part.size has values of types int64, string: it becomes string" in said.out
    assert "note  part.weight has values of types float64, int64: it becomes float64, or string if" in said.out
    assert "declare its type in schema() (DOUBLE)" in said.out


def test_notes_alone_are_no_failure(trial: Trial) -> None:
    trial.write('op.upsert("part", {"id": 1})\nop.upsert("bin", {"shelf": 1})')
    answer: dict[str, Any] = trial.json("check")
    assert answer["operations"]["upserts"] == 2
    assert [(f["severity"], f["kind"]) for f in answer["findings"]] == [("note", "table.keyless")]


def test_columns_of_which_the_same_is_to_say_are_told_together(trial: Trial) -> None:
    wide = CODE.replace('{"id": "INT"}', '{"id": "INT", "b": "XML", "a": "JSON", "c": "LONG"}')
    trial.write('op.upsert("part", {"id": 1, "a": [1]})\nop.upsert("bin", {"shelf": 1})', wide)
    said = [line for line in trial.ok("check").out.splitlines() if line.startswith("note")]
    assert [line.split(" is ")[0].split(" has ")[0] for line in said] == ["note  bin", "note  part.(b, c)"]
    assert len(trial.json("check")["findings"]) == 3


def test_reset_asks_and_forgets(trial: Trial) -> None:
    trial.write(ONE)
    trial.ok("debug")
    asked = trial.run("reset")
    assert (asked.code, "nothing was deleted" in asked.err) == (3, True)
    assert trial.rows("part") == [(1, "nut")]
    segments = trial.folder / "files" / ".instep" / "connectors" / "debug"
    assert segments.is_dir()
    gone = trial.json("reset", "--yes")["forgotten"]
    assert not segments.exists()
    assert {Path(p).name for p in gone} >= {"warehouse.db", "state.json"}
    assert trial.json("reset", "--yes")["forgotten"] == []
    assert trial.json("debug")["operations"]["schema_changes"] == 1


def test_files_of_rows_are_in_the_project_of_a_trial_and_go_with_it(trial: Trial) -> None:
    trial.write(
        """
import io
from fivetran_connector_sdk import FileUpload
op.upsert("part", {"id": 1}, file=FileUpload("a/1.txt", io.BytesIO(b"one"), 3))
"""
    )
    trial.ok("debug")
    assert trial.rows("part") == [(1, "a/1.txt")]
    place = trial.folder / "files" / "uploads" / "debug"
    assert (place / "part" / "a" / "1.txt").read_bytes() == b"one"
    assert str(place) in trial.json("reset", "--yes")["forgotten"]
    assert not place.exists()


def test_reset_of_one_table_leaves_the_others(trial: Trial) -> None:
    trial.write(
        'if not state:\n    op.upsert("part", {"id": 1})\n    op.upsert("bin", {"shelf": 1})\nop.checkpoint({"n": 1})'
    )
    trial.ok("debug")
    wrong = trial.run("reset", "--table", "prt", "--yes")
    assert (wrong.code, "did you mean part?" in wrong.err) == (1, True)
    told = trial.ok("reset", "--table", "part", "--yes").err
    assert "the state covered all tables: the next debug run sends everything again" in told
    assert trial.rows("bin", "shelf") == [(1,)]
    assert not (trial.folder / "files" / "state.json").exists()
    said = trial.ok("debug").out
    assert "+ table part added" in said
    assert "table bin added" not in said
    assert trial.rows("part", "id") == [(1,)]


def test_reset_where_nothing_ran(trial: Trial) -> None:
    trial.write(ONE)
    assert trial.json("reset", "--yes") == {"format_version": 1, "forgotten": []}
    said = trial.run("reset", "--table", "part", "--yes")
    assert (said.code, "no run has loaded a table part" in said.err) == (1, True)


def test_a_warehouse_that_somebody_deleted_is_made_anew(trial: Trial) -> None:
    trial.write(ONE)
    trial.ok("debug")
    (trial.folder / "files" / "warehouse.db").unlink()
    assert trial.json("debug")["operations"]["schema_changes"] == 1
    assert trial.rows("part") == [(1, "nut")]


@pytest.mark.sampled
@pytest.mark.parametrize("tables", [(), ("--drop-tables",)])
def test_a_connection_that_is_deleted_takes_its_folder_along(
    trial: Trial, tmp_path: Path, tables: tuple[str, ...]
) -> None:
    """What waits, the state and the folder; files of rows stay like the tables that were not dropped."""
    trial.write(
        """
import io
from fivetran_connector_sdk import FileUpload
op.upsert("part", {"id": state.get("n", 0)}, file=FileUpload("a", io.BytesIO(b"x")))
op.checkpoint({"n": state.get("n", 0) + 1})
"""
    )
    root = tmp_path / "project"
    root.mkdir()
    (root / "instep.yml").write_text(
        f"engine: local\nsources: {{s: {{type: connector, path: {trial.folder}}}}}\n"
        "destinations: {d: {type: duckdb, path: w.db}}\nconnections: {shop: {source: s, destination: d}}\n"
    )

    def run(*words: str) -> int:
        return main(["--project", str(root), *words])

    assert run("sync") == 0
    assert run("pause", "shop", "--table", "part") == 0
    run("sync")
    folder = segments_folder(root, "shop")
    with open_project(root) as app:
        assert len(app.store.connectors.pending("shop")) == 1
    assert [p.name[:5] for p in folder.iterdir()] == ["held-"]
    assert run("connection", "delete", "shop", "--yes") != 0
    assert folder.is_dir()
    assert run("connection", "delete", "shop", "--confirm", "shop", *tables) == 0
    assert not folder.exists()
    assert (uploads_folder(root, "shop") / "part" / "a").read_bytes() == b"x"
    with open_project(root) as app:
        of = app.store.connectors.of("shop")
        assert (of.pending(), of.state().state, of.shape()) == ([], {}, {})
        assert bool(app.destination("d").schema.tables()) is not bool(tables)
