"""What a connector was given is in none of its texts, whatever it does with it."""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from pathlib import Path

import pytest
from sdk_world import World
from trial_world import Trial

from instep.redaction import HIDDEN
from instep.sources.connector import output
from instep.sources.connector.config import Hidden
from instep.sources.connector.output import output_lines
from instep.sources.connector.sdk.fivetran_connector_sdk import shown as sdk_shown

SECRET = "c4n4ry/V3ry+S3cret=?"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\nkQ==\n-----END PRIVATE KEY-----"
HARD = """
import base64, json, sys, time
from urllib.parse import quote, quote_plus

def update(configuration, state):
    k, pem = configuration["k"], configuration["pem"]
    log.info("a token " + k)
    log.warning("x" * 9_990 + k)
    print("printed", quote_plus(k), flush=True)
    print("y" * 9_990 + k + "z" * 20_000, flush=True)
    sys.stderr.write("half " + k[:7]); sys.stderr.flush(); time.sleep(0.2)
    sys.stderr.write(k[7:] + " whole\\n"); sys.stderr.flush()
    print(pem, flush=True)
    op.warning("header Basic " + base64.b64encode(("user:" + k).encode()).decode())
    log.info("again " + state["session"]["refresh_token"])
    log.info(json.dumps({"access_token": "only-known-in-here"}))
    try:
        op.upsert("t", {"id": 1, "n": "q" * 80 + k})
    except ValueError as error:
        log.info(str(error))
    op.upsert("t", {"id": 1})
    raise ValueError(f"401 for https://h/x?api_kee={quote(k, safe='')}&p={json.dumps(pem)}")

def schema(configuration):
    return [{"table": "t", "primary_key": ["id"], "columns": {"id": "INT", "n": "INT"}}]
"""


def test_no_text_of_a_connector_has_a_secret_in_it(world: World) -> None:
    state = {"session": {"refresh_token": "r3fr3sh-t0k3n"}}
    sync = world.sync(HARD, state, configuration={"k": SECRET, "pem": PEM, "table": "t"})
    assert sync.error is not None
    texts = [sync.said, str(sync.error), *(w for s in sync.segments for w in s.warnings)]
    whole = "\n".join(texts)
    header = base64.b64encode(f"user:{SECRET}".encode()).decode()
    pieces = [SECRET[:12], SECRET[-10:], "r3fr3sh", "only-known", header[8:20], "c4n4ry", *PEM.splitlines()[1:3]]
    assert [piece for piece in pieces if piece in whole] == []
    assert "401 for https://h/x?api_kee=" in str(sync.error)
    assert f"half {HIDDEN} whole" in sync.said
    assert "ValueError" in sync.said, "its traceback is there"
    assert "table t, column n" in sync.said, "a value that may be a table's name is left"


SHORT = "hunter-two words"
"""A secret that no beginning gives away: it has fewer than 20 characters, and a blank."""
LONGEST, LOGGED = 3_000, 1_000


@pytest.mark.parametrize("end", ["\n", "\nmore\n", "z" * 5_000 + "\nmore\n", ""], ids=["line", "lines", "long", "cut"])
@pytest.mark.parametrize("place", [LOGGED, 2 * LOGGED, LONGEST - 2 * LOGGED, LONGEST, 2 * LONGEST, 3 * LONGEST])
def test_no_output_is_cut_within_a_secret(place: int, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a secret lies about a place at which a line is cut: when it is read, and when it is logged."""
    monkeypatch.setattr(output, "LONGEST_LINE", LONGEST)
    monkeypatch.setattr(output, "LOGGED_LINE", LOGGED)
    hidden = Hidden([("password", SHORT)])
    for shift in range(-1, len(SHORT) + 1):
        text = f"{'x' * (place - shift)}{SHORT}{end}"
        read, write = os.pipe()
        writer = threading.Thread(target=lambda: os.fdopen(write, "w").close() if os.write(write, text.encode()) else 0)  # noqa: B023
        writer.start()
        said = "\n".join(line.message for line in output_lines(read, hidden, "stderr", "warning"))
        writer.join()
        assert [part for part in (SHORT[:4], SHORT[-4:], "ter-", "wor") if part in said] == [], shift
        assert ("more" in said) == ("more" in end), "the lines behind it are there"


CUT = """
def schema(configuration):
    return [{"table": "t", "primary_key": ["k"], "columns": {"n": "INT"}}]

def update(configuration, state):
    secret = configuration["password"]
    for before in range(130):
        text = "x" * before + secret + "y" * 300
        for attempt in (
            lambda: op.upsert("t", {"k": 1, "n": text}),
            lambda: op.upsert("t", {"k": text, "n": "z"}),
            lambda: op.upsert(" " * before + chr(0) + secret + " " * 100, {"k": 1}),
            lambda: op.upsert("t", {"k": 1, " " * before + chr(0) + secret + " " * 100: 1}),
            lambda: op.checkpoint({text: {1, 2}}),
        ):
            try:
                attempt()
            except (TypeError, ValueError) as error:
                log.info(str(error))
            else:
                raise RuntimeError("it was taken")
    op.upsert("t", {"k": 1})
"""


def test_no_value_in_a_message_is_cut_within_a_secret(world: World) -> None:
    sync = world.sync(CUT, configuration={"password": SHORT})
    assert sync.error is None
    assert len(sync.logs) >= 650
    assert [part for part in (SHORT[:4], "ter-", "two", "wor") if part in sync.said] == []
    assert sdk_shown.shown("x" * 100, 50).endswith(sdk_shown.CUT)


HUGE = """
def update(configuration, state):
    secret, blank = configuration["password"], "x" * ((1 << 20) - 5)
    huge = blank + secret + "y" * (65 << 20)
    op.upsert("t", {"k": 1})
    log.info(huge)
    log.error("it goes on", RuntimeError(huge))
    op.warning(huge)
    op.upsert("t", {"k": 2})
    END
"""


@pytest.mark.parametrize("end", ["pass", "raise RuntimeError(huge)", "op.error(huge)", "op.error('x', huge)",
                                 "import sys; sys.exit(huge)"])  # fmt: skip
def test_a_huge_text_is_cut_and_the_run_goes_on(world: World, end: str) -> None:
    """One of more characters than a frame may have; and not within a secret."""
    sync = world.sync(HUGE.replace("END", end), configuration={"password": SHORT})
    assert "no operation" not in str(sync.error)
    assert (sync.error is None) is (end == "pass")
    assert [line.level for line in sync.logs][:3] == ["info", "error", "warning"]
    assert len(sync.logs) <= 4
    said = re.sub(r'File "[^"]*"', "", sync.said)  # the folder of this checkout may have a part of the secret's words
    assert [part for part in (SHORT[:4], "ter-", "two", "wor") if part in said] == []
    if end == "pass":
        assert sync.records("t") == [{"k": 1}, {"k": 2}]


def test_the_path_of_a_file_is_without_secrets(world: World) -> None:
    code = """
import io
from fivetran_connector_sdk import FileUpload

def update(configuration, state):
    op.upsert("doc", {"id": 1}, file=FileUpload(configuration["password"] + ".txt", io.BytesIO(b"x" * 5_000_000)))
"""
    sync = world.sync(code, configuration={"password": SHORT}, file="1MB")
    assert f"its file {HIDDEN}.txt has more than" in str(sync.error)
    assert "hunter" not in str(sync.error) + sync.said


def test_secrets_of_a_schema_that_fails(world: World) -> None:
    code = "def update(configuration, state): pass\ndef schema(configuration): raise KeyError(configuration['k'])"
    sync = world.sync(code, configuration={"k": SECRET})
    assert SECRET[:6] not in str(sync.error) + sync.said


@pytest.mark.parametrize("given", ["configuration_file", "reference"])
def test_what_is_stored_and_shown_of_a_sync_has_no_secret(
    trial: Trial, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.write(
        "from urllib.parse import quote\n"
        "op.upsert('part', {'id': 1})\nop.checkpoint({'at': 1})\nop.warning('w ' + configuration['k'])\n"
        "raise ValueError('token ' + configuration['k'] + ' ' + quote(configuration['k'], safe=''))"
    )
    secret = SECRET if given == "configuration_file" else "opensesame"  # by a reference a word is a secret, too
    monkeypatch.setenv("K", secret)
    project = trial.folder.parent / "project"
    project.mkdir()
    configuration = "{k: '${env:K}'}"
    if given == "configuration_file":
        trial.configure(k=secret)
        configuration = "{}\n    configuration_file: " + str(trial.folder / "configuration.json")
    (project / "instep.yml").write_text(
        f"sources:\n  crm:\n    type: connector\n    path: {trial.folder}\n    configuration: {configuration}\n"
        "destinations: {wh: {type: duckdb, path: wh.db}}\nconnections: {crm: {}}\nengine: local\n"
    )
    from command_runs import run

    said = run(trial.capsys, "--project", str(project), "sync", "crm", "--no-input")
    assert said.code == 1, said
    assert HIDDEN in said.err + said.out
    more = [
        run(trial.capsys, "--project", str(project), *words)
        for words in (["history"], ["history", "--output", "json"], ["status", "crm", "--output", "json"])
    ]
    texts = [said.out, said.err, *(m.out + m.err for m in more)]
    kept = [p.read_bytes() for p in (project / ".instep").rglob("*") if p.is_file()]
    for form in (secret, json.dumps(secret)[1:-1], secret[:9]):
        assert not any(form in text for text in texts)
        assert not any(form.encode() in text for text in kept)


@pytest.fixture
def trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Trial:
    return Trial(tmp_path / "crm", capsys)
