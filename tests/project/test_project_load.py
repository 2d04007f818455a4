"""What a project file may say, and every way of saying it wrong, with the exact message."""

from __future__ import annotations

import string
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st
from project_types import Loads

from instep.errors import ProjectError
from instep.project.load import find, load
from instep.project.text import tree
from instep.project.text.references import Reference

SOURCES = """\
sources:
  pg: {type: postgres, database: shop, user: me, password: "${env:PG}"}
destinations:
  lake: {type: iceberg}
"""

CHANNEL = "channels: {s: {type: slack, url: '${env:X}'}}\n"
BAD: list[tuple[str, str, list[str]]] = [
    ("unknown key", "sorces: {}", ["1: sorces: unknown key, did you mean 'sources'?"]),
    (
        "unknown key without a near one",
        "connections:\n  a:\n    qqq: 1\n",
        [
            "2: connections.a.destination: is required (no destinations are defined)",
            "2: connections.a.source: is required (no sources are defined)",
            "3: connections.a.qqq: unknown key (known: app_options, backfill, backfill_limits, destination, detect,"
            " detect_and_propagate_schema_changes, downstream, exclude, freshness, hash, include, keep_old_names,"
            " log, maintain, max_new_columns, mode, namespace,"
            " notify, notify_schema_changes, policy, protect, salt, schedule, schema_change_handling, shard, source,"
            " table_options, tables, tags, types)",
        ],
    ),
    ("unknown key of a source", "sources:\n  a: {type: sqlite, path: x, pth: y}",
     ["2: sources.a.pth: unknown key, did you mean 'path'?"]),
    ("missing keys", "sources:\n  a:\n    type: postgres\n",
     ["2: sources.a.database: is required", "2: sources.a.user: is required"]),
    ("no type", "sources:\n  a: {path: x}", ["2: sources.a: needs a type"]),
    ("unknown type", "sources:\n  a: {type: postgresql, path: x}",
     ["2: sources.a: must be one of 'postgres', 'mysql', 'mariadb', 'sqlite', 'files', 'jdbc', "
      "'connector', 'airbyte', did you mean 'postgres'?"]),
    ("a list for a mapping", "sources: [a]", ["1: sources: must be a mapping of names to values"]),
    ("nothing for a mapping", "sources:\n  a:\n", ["2: sources.a: must be a mapping of names to values"]),
    ("text for a mapping", "hello", ["1: the file: must be a mapping of names to values"]),
    ("a number for text", "sources:\n  a: {type: sqlite, path: 5}",
     ['2: sources.a.path: must be text; put it in quotes ("...")']),
    ("text for a number", SOURCES + "  x: {type: iceberg, prefix: 5}",
     ['5: destinations.x.prefix: must be text; put it in quotes ("...")']),
    ("a prefix of other letters", SOURCES + "  x: {type: iceberg, prefix: raw}",
     ["5: destinations.x.prefix: must be lower-case letters, digits and _ only; it starts and ends with _"]),
    ("a slot of other letters", SOURCES + "connections:\n  c: {log: {slot: My-Slot}}",
     ["6: connections.c.log.slot: must be lower-case letters, digits and _ only (63 at most)"]),
    ("a port out of range", "sources:\n  a: {type: mysql, database: d, user: u, port: 0}",
     ["2: sources.a.port: must be at least 1"]),
    ("not true or false", SOURCES + "connections:\n  c: {detect: {before_sync: 7}}",
     ["6: connections.c.detect.before_sync: must be true or false"]),
    ("a name with a dot", "destinations:\n  a.b: {type: iceberg}",
     ["2: destinations.a.b: a name starts with a letter and has letters, digits, _ and - only (63 at most)"]),
    ("a plain password", "sources:\n  pg:\n    type: mysql\n    database: d\n    user: u\n    password: geheim\n",
     ["6: sources.pg.password: a secret must not be in the file: write ${env:PG_PASSWORD} and set it in .env"]),
    ("a password as a default", "sources:\n  pg: {type: mysql, database: d, user: u, password: '${env:P:-geheim}'}",
     ["2: sources.pg.password: a secret must not be in the file: write ${env:PG_PASSWORD} and set it in .env"]),
    ("a password in part", "sources:\n  pg: {type: mysql, database: d, user: u, password: 'geheim${env:P}'}",
     ["2: sources.pg.password: a secret must not be in the file: write ${env:PG_PASSWORD} and set it in .env"]),
    ("a number as password", "sources:\n  pg: {type: mysql, database: d, user: u, password: 12345}",
     ["2: sources.pg.password: a secret must not be in the file: write ${env:PG_PASSWORD} and set it in .env"]),
    ("a password in a URL", 'store: "postgresql://me:geheim@h/db"',
     ["1: store: a password must not be in the URL: write ${env:STORE} and set the whole URL in .env"]),
    ("a secret property", "destinations:\n  l: {type: iceberg, properties: {s3.secret-access-key: geheim}}",
     ["2: destinations.l.properties.s3.secret-access-key: a secret must not be in the file: "
      "write ${env:L_S3_SECRET_ACCESS_KEY} and set it in .env"]),
    ("a reference in spark.conf", "spark: {conf: {spark.x: '${env:X}'}}",
     ["1: spark.conf.spark.x: Spark shows its configuration: a secret belongs to the source or the destination"]),
    ("a secret in spark.conf", "spark: {conf: {spark.my.password: geheim}}",
     ["1: spark.conf.spark.my.password: Spark shows its configuration: a secret belongs to the source or the "
      "destination"]),
    ("a webhook in the open", "channels:\n  s: {type: slack, url: 'https://h/geheim'}",
     ["2: channels.s.url: a secret must not be in the file: write ${env:S_URL} and set it in .env"]),
    ("an unknown reference", "sources:\n  a: {type: sqlite, path: '${HOME}/x'}",
     ["2: sources.a.path: unknown reference ${HOME}: write ${env:HOME}"]),
    ("an unknown kind of reference", "sources:\n  a: {type: sqlite, path: '${vault:x/y}'}",
     ["2: sources.a.path: unknown reference ${vault:x/y}: write ${env:NAME} or ${file:/path}"]),
    ("an open reference", "sources:\n  a: {type: sqlite, path: '${env:X'}",
     ["2: sources.a.path: '${env:X' lacks its closing brace"]),
    ("a reference to nothing", "sources:\n  a: {type: sqlite, path: '${env:}'}",
     ["2: sources.a.path: ${env:} names no variable"]),
    ("a reference where none can be", "sources:\n  a: {type: sqlite, path: x, include: ['${env:X}']}",
     ["2: sources.a.include.0: a reference is not possible here: write the value itself"]),
    ("unknown source", SOURCES + "connections:\n  c:\n    source: pgg\n",
     ["7: connections.c.source: unknown source 'pgg', did you mean 'pg'?"]),
    ("two sources, none named", SOURCES.replace("dest", "  b: {type: sqlite, path: x}\ndest") + "connections:\n  c: {}",
     ["7: connections.c.source: is required (2 sources are defined)"]),
    ("unknown policy", SOURCES + "policies: {careful: {}}\nconnections:\n  c: {policy: carefull}",
     ["7: connections.c.policy: unknown policy 'carefull', did you mean 'careful'?"]),
    ("unknown channel", SOURCES + "connections:\n  c: {notify: [{on: [failed], to: slack}]}",
     ["6: connections.c.notify.0.to: unknown channel 'slack'"]),
    ("unknown channel of a route", SOURCES + "notify:\n  - {on: [failed], to: slack}",
     ["6: notify.0.to: unknown channel 'slack'"]),
    ("a channel without a recipient", SOURCES + "channels:\n  m: {type: email, sender: a@b.org}",
     ["6: channels.m.to: is required"]),
    ("no address", SOURCES + "channels:\n  m: {type: email, sender: a@b.org, to: [\"a b@c\"]}",
     ["6: channels.m.to.0: 'a b@c' is not an address: write name@example.org"]),
    ("a password without TLS",
     SOURCES + "channels:\n  m: {type: email, sender: a@b.org, to: [a@b.org], tls: none, password: '${env:P}'}",
     ["6: channels.m: a password is not sent without TLS: set tls to starttls or tls"]),
    ("no time of day", SOURCES + "channels:\n  s: {type: slack, url: '${env:X}', digest: noon}",
     ["6: channels.s.digest: 'noon' is not a time of day: write daily (at 08:00), or a time such as 17:30"]),
    ("no kind",
     SOURCES + CHANNEL + "notify: [{on: [failed], to: s, kinds: colum.*}]",
     ["6: notify.0.kinds: 'colum.*' is not a kind of change: write one such as column.added, "
      "or a glob such as column.*"]),
    ("no network", SOURCES + "egress: {allow: [10.0.0.0/99]}",
     ["5: egress.allow.0: '10.0.0.0/99' is not a network, address or host: write 10.0.0.0/8 or mail.example.org"]),
    ("unknown notice",
     SOURCES + CHANNEL + "connections:\n  c: {notify: [{on: [faild], to: s}]}",
     ["7: connections.c.notify.0.on.0: must be one of 'detected', 'review_needed', 'breaking', 'ignored', 'applied', "
      "'paused', 'resumed', 'failed', 'done', 'late' or 'rollout', did you mean 'failed'?"]),
    ("hash without salt", SOURCES + "connections:\n  c: {hash: ['*.email']}",
     ["6: connections.c.salt: is required for hashed columns: write ${env:INSTEP_SALT} and set it in .env"]),
    ("look-back without cursor", SOURCES + "connections:\n  c: {tables: {a.b: {lookback: 5m}}}",
     ["6: connections.c.tables.a.b.lookback: a look-back window needs a cursor"]),
    ("cursor of a full refresh", SOURCES + "connections:\n  c: {tables: {a.b: {mode: full_refresh, cursor: x}}}",
     ["6: connections.c.tables.a.b.cursor: a full refresh reads every row and has no cursor"]),
    ("a wrong mode", SOURCES + "connections:\n  c: {tables: {a.b: {mode: upsrt}}}",
     ["6: connections.c.tables.a.b.mode: must be one of 'auto', 'full_refresh', 'append', 'upsert' or 'cdc', "
      "did you mean 'upsert'?"]),
    ("a wrong duration", SOURCES + "connections:\n  c: {detect: {min_interval: soon}}",
     ["6: connections.c.detect.min_interval: must be a duration such as 30, 90s, 15m, 2h or 1d"]),
    ("a wrong preset", "policies:\n  p: {preset: alow_all}",
     ["2: policies.p.preset: unknown preset 'alow_all'; did you mean 'allow_all'?"]),
    ("a wrong kind of change", "policies:\n  p:\n    rules:\n      - {on: colunm.added, decide: apply}",
     ["4: policies.p.rules.0.on: unknown kind of change 'colunm.added'; did you mean 'column.added'?"]),
    ("a wrong action", "policies:\n  p: {rules: [{on: column.added, decide: pause}]}",
     ["2: policies.p.rules.0.decide: must be one of 'apply', 'review', 'ignore', 'pause_table' or 'pause_connection', "
      "did you mean 'pause_table'?"]),
    ("null without quotes", "policies:\n  p: {on_invalid_value: null}",
     ['2: policies.p: on_invalid_value has no value: write quarantine, "null" (in quotes) or fail']),
    ("a rule without kinds", "policies:\n  p: {rules: [{on: [], decide: apply}]}",
     ["2: policies.p.rules.0.on: must not be empty"]),
    ("an empty pattern", SOURCES + "connections:\n  c: {exclude: {tables: ['']}}",
     ["6: connections.c.exclude.tables.0: an empty pattern matches nothing; name a table, or write * for all"]),
    ("an unsupported version", "version: 2\nproject: x", ["1: version: must be one of 1"]),
    ("a key twice", "project: a\nversion: 1\nproject: b\n", ["3: project: given twice, first on line 1"]),
    ("a key that is a list", "[a, b]: 1", ["1: a key must be text"]),
    ("broken YAML", "sources:\n  a: {type: sqlite\nx: 1",
     ["3: while parsing a flow mapping, expected ',' or '}', but got ':'; "
      "text with special characters needs quotes"]),
    ("a tab", "sources:\n\ta: 1", ["2: while scanning for the next token, found character '\\t' that cannot start any "
     "token; indent with spaces"]),
    ("two documents", "project: a\n---\nproject: b",
     ["2: expected a single document in the stream, but found another document"]),
    ("an unknown alias", "project: *x", ["1: found undefined alias 'x'"]),
    ("a control character", "project: a\nversion: \x07", ["2: the character #x0007 is not allowed"]),
    ("a loop", "sources: &a\n  x: *a", ["1: too many values: aliases repeat one another"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_files(loads: Loads, text: str, expected: list[str]) -> None:
    with pytest.raises(ProjectError) as error:
        loads(text)
    assert error.value.message.splitlines() == [f"instep.yml:{line}" for line in expected]
    assert error.value.hint
    assert "geheim" not in str(error.value)
    assert "12345" not in str(error.value)


def test_all_problems_at_once_by_line(loads: Loads) -> None:
    text = """\
        version: 1
        project: a
        project: b
        sources:
          a: {type: sqlite, pth: x}
          b: {type: postgress}
        connections:
          c: {source: d, policy: p, destination: e}
        """
    with pytest.raises(ProjectError) as error:
        loads(dedent(text))
    lines = [line.split(":")[1:3] for line in error.value.message.splitlines()]
    assert lines == [
        ["3", " project"], ["5", " sources.a.path"], ["5", " sources.a.pth"], ["6", " sources.b"],
        ["8", " connections.c.destination"], ["8", " connections.c.policy"], ["8", " connections.c.source"],
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "---\n"])
def test_an_empty_file_says_what_to_do(loads: Loads, text: str) -> None:
    with pytest.raises(ProjectError, match=r"instep\.yml is empty") as error:
        loads(text)
    assert "instep init" in error.value.hint


def test_a_file_without_sections_says_what_to_do(loads: Loads) -> None:
    with pytest.raises(ProjectError, match="has no sources, destinations or connections"):
        loads("version: 1\nproject: x\nsources:\n")


def test_an_alias_bomb_is_refused(loads: Loads) -> None:
    levels = [f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ProjectError, match="too many values"):
        loads("\n".join(["x:", "  l0: &l0 [1, 2]", *levels]))


def test_deep_nesting_is_refused(loads: Loads) -> None:
    with pytest.raises(ProjectError, match="nested too deeply"):
        loads("a: " + "[" * 20_000 + "]" * 20_000)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"project: \xff\xfe", "is not UTF-8 text"),
        (b"#" * ((4 << 20) + 1), "is larger than 4 MB"),
    ],
)
def test_what_is_no_text(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "instep.yml").write_bytes(data)
    with pytest.raises(ProjectError, match=said):
        load(tmp_path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="does not exist") as error:
        load(tmp_path / "other.yml")
    assert "instep init" in error.value.hint


def test_a_folder_named_like_the_file(tmp_path: Path) -> None:
    (tmp_path / "instep.yml").mkdir()
    with pytest.raises(ProjectError, match=r"cannot be read"):
        load(tmp_path)


class TestFind:
    def test_here_or_above(self, tmp_path: Path) -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "instep.yml").touch()
        assert find(tmp_path / "a" / "b") == (tmp_path / "instep.yml").resolve()

    def test_nowhere(self, tmp_path: Path) -> None:
        with pytest.raises(ProjectError, match=r"no instep\.yml in .* or above") as error:
            find(tmp_path)
        assert "instep init" in error.value.hint

    def test_another_ending(self, tmp_path: Path) -> None:
        (tmp_path / "instep.yaml").touch()
        with pytest.raises(ProjectError) as error:
            find(tmp_path)
        assert error.value.hint == "rename it to instep.yml"


class TestTree:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("on", "on"), ("off", "off"), ("yes", "yes"), ("true", True), ("False", False), ("tRuE", "tRuE"),
            ("null", None), ("~", None), ("", None), ("5", 5), ("-5", -5), ("007", "007"), ("12:30", "12:30"),
            ("0x1F", "0x1F"), ("1_000", "1_000"), ("1.5", 1.5), ("1e3", 1000.0), (".inf", ".inf"),
            ("2026-01-01", "2026-01-01"), ("'5'", "5"), ('"true"', "true"), ("1.2.3", "1.2.3"),
            ("${env:A}", Reference("${env:A}")), ("'${file:b}'", Reference("${file:b}")),
        ],
    )  # fmt: skip
    def test_scalars(self, text: str, value: object) -> None:
        found = tree.parse(f"a: {text}").data["a"]
        assert found == value
        assert type(found) is type(value)

    def test_lines(self) -> None:
        found = tree.parse("a:\n  b: 1\n  c:\n    - x\n    - y: 2\n")
        paths = [("a",), ("a", "b"), ("a", "c", 0), ("a", "c", 1, "y"), ("a", "c", 1, "nothing", "here"), ("z",)]
        assert [found.line(path) for path in paths] == [1, 2, 4, 5, 5, 1]

    def test_anchors_are_followed(self) -> None:
        assert tree.parse("a: &x {b: 1}\nc: *x").data == {"a": {"b": 1}, "c": {"b": 1}}

    @given(st.text(alphabet=string.printable + "é🙂${}", max_size=80))
    def test_any_text_is_data_or_a_problem(self, text: str) -> None:
        found = tree.parse(text)
        assert found.problems or found.data is None or found.lines[()] >= 1
        assert all(line >= 1 and said for line, said in found.problems)


def test_importing_the_loader_is_what_loads_pydantic() -> None:
    code = (
        "import sys, instep, instep.project, instep.errors; assert 'pydantic' not in sys.modules;"
        "import instep.project.load; heavy = {'sqlalchemy', 'pyarrow', 'pyspark', 'pyiceberg', 'pandas'};"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
