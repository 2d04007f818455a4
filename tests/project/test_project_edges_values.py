"""Values at and beyond the edge of every kind of key: what is taken, and the exact words for what is not."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from project_types import Loads
from pydantic_core import PydanticCustomError

from instep.control.schedules import next_fire
from instep.errors import ProjectError
from instep.project.load import load
from instep.project.sections.models import ProjectFile
from instep.project.sections.schedule import cron, interval, minutes, schedule
from instep.project.text import tree
from instep.project.text.references import Environment, Reference

BASE = """\
sources:
  db: {type: sqlite, path: x}
destinations:
  lake: {type: iceberg}
"""
OF = {
    "connection": BASE + "connections:\n  c: {%s}\n",
    "table": BASE + "connections:\n  c: {tables: {a.b: {%s}}}\n",
    "detector": BASE + "connections:\n  c: {app_options: {%s}}\n",
    "postgres": "sources:\n  db: {type: postgres, database: d, user: u, %s}\n",
    "mysql": "sources:\n  db: {type: mysql, database: d, user: u, %s}\n",
    "jdbc": "sources:\n  db: {type: jdbc, jars: a.jar, %s}\n",
    "files": "sources:\n  db: {type: files, path: in, %s}\n",
    "connector": "sources:\n  db: {type: connector, path: c, %s}\n",
    "iceberg": BASE + "  more: {type: iceberg, %s}\n",
    "email": BASE + "channels:\n  m: {type: email, sender: a@b.org, to: [a@b.org], %s}\n",
    "slack": BASE + "channels:\n  m: {type: slack, url: '${env:X}', %s}\n",
    "file": BASE + "%s\n",
}
AT = {
    "connection": "6: connections.c.", "table": "6: connections.c.tables.a.b.",
    "detector": "6: connections.c.app_options.",
    "postgres": "2: sources.db.", "mysql": "2: sources.db.", "jdbc": "2: sources.db.", "files": "2: sources.db.",
    "connector": "2: sources.db.", "iceberg": "5: destinations.more.", "email": "6: channels.m.",
    "slack": "6: channels.m.", "file": "5: ",
}  # fmt: skip
LONGEST = "must be at most 36500d"
A_SIZE = "must be a size such as 500MB or 2GB, or 0 for no limit"
# where | what is written | what is said, after the place
WRONG: list[tuple[str, str, str]] = [
    ("connection", "max_new_columns: -1", "max_new_columns: must be at least 0"),
    ("connection", "max_new_columns: 1.5", "max_new_columns: must be a whole number"),
    ("connection", f"max_new_columns: {'9' * 5000}", "max_new_columns: must be a whole number"),
    ("connection", "keep_old_names: 36501d", f"keep_old_names: {LONGEST}"),
    ("connection", "keep_old_names: 99999999999999", f"keep_old_names: {LONGEST}"),
    ("connection", "keep_old_names: -1", "keep_old_names: must be at least 0"),
    ("connection", "detect: {min_interval: 1.0e999}", "detect.min_interval: must be a number that is not infinite"),
    ("connection", "detect: {min_interval: [1h]}", "detect.min_interval: must be a number"),
    ("connection", "detect: 5", "detect: must be a mapping of names to values"),
    ("connection", "schedule: {sync: '* * * *'}",
     "schedule.sync: a schedule has five fields (minute hour day month weekday), this one 4: "
     "write one such as 0 6 * * *, or an interval such as every 15m"),
    ("connection", "schedule: {sync: '60 * * * *'}",
     "schedule.sync: '60' is not a valid minute: use 0 to 59, *, lists, ranges or */steps"),
    ("connection", "schedule: {sync: '0 0 1 13 *'}",
     "schedule.sync: '13' is not a valid month: use 1 to 12, *, lists, ranges or */steps"),
    ("connection", "schedule: {sync: '0 0 \u00b2 * *'}",
     "schedule.sync: '\u00b2' is not a valid day: use 1 to 31, *, lists, ranges or */steps"),
    ("connection", "schedule: {sync: '0 0 30 feb *'}",
     "schedule.sync: '0 0 30 feb *' names no day that ever comes, such as February 30"),
    ("connection", "schedule: {detect: every 59s}",
     "schedule.detect: 'every 59s' is not an interval: write every 1m to every 24h, "
     "or a cron line such as 0 6 * * *"),
    ("connection", "schedule: {detect: every 2d}",
     "schedule.detect: 'every 2d' is not an interval: write every 1m to every 24h, "
     "or a cron line such as 0 6 * * *"),
    ("connection", "schedule: {timezone: Mars/Olympus}",
     "schedule.timezone: unknown time zone 'Mars/Olympus': use a name such as UTC or Europe/Berlin"),
    ("connection", "schedule: {timezone: ../etc/passwd}",
     "schedule.timezone: unknown time zone '../etc/passwd': use a name such as UTC or Europe/Berlin"),
    ("connection", "backfill_limits: {max_bytes: -1}", "backfill_limits.max_bytes: must be at least 0"),
    ("connection", "backfill_limits: {max_minutes: inf}",
     "backfill_limits.max_minutes: must be a number that is not infinite"),
    ("connection", "backfill_limits: {window: 22-06}",
     "backfill_limits.window: '22-06' is not a window: write when it opens and closes, such as 22:00-06:00"),
    ("connection", "backfill_limits: {window: '01:00-01:00'}",
     "backfill_limits.window: '01:00-01:00' is not a window: write when it opens and closes, such as 22:00-06:00"),
    ("connection", "maintain: {target_file_size: 1000}", "maintain.target_file_size: must be at least 1048576"),
    ("connection", "maintain: {delete_ratio: 0}", "maintain.delete_ratio: must be more than 0"),
    ("connection", "maintain: {delete_ratio: 1.01}", "maintain.delete_ratio: must be at most 1"),
    ("connection", "maintain: {max_snapshot_age: inf}",
     "maintain.max_snapshot_age: must be a number that is not infinite"),
    ("connection", "maintain: {orphan_age: 0.5}", "maintain.orphan_age: must be at least 1"),
    ("connection", "maintain: {min_files: 1}", "maintain.min_files: must be at least 2"),
    ("connection", "protect: loud", "protect: must be one of 'off', 'names' or 'on'"),
    ("connection", "protect: {sample: 0}", "protect.sample: must be at least 1"),
    ("connection", "protect: {values: {iban: '(a+)+'}}",
     "protect.values.iban: the regular expression '(a+)+' repeats a group that itself repeats or has alternatives; "
     "a glob such as public.log_* is enough for most"),
    ("connection", "tables: {a.*: {name: one}}",
     ": tables: a.*: `name` is for one table: write its schema and name"),
    ("connection", "notify: [{on: [failed]}]", "notify.0.to: is required"),
    ("connection", "shard: 'a b', namespace: n",
     "shard: must be letters, digits, _ and - only (63 at most); it starts with a letter or a digit"),
    ("table", "lookback: 40000d, cursor: x", f"lookback: {LONGEST}"),
    ("table", "columns: {a: ''}", "columns.a: must not be empty"),
    ("table", "deletes: softly", "deletes: must be one of 'soft', 'hard' or 'ignore', did you mean 'soft'?"),
    ("table", "partition: [day(at), day(at)]", "partition: day(at) is there twice"),
    ("table", "properties: {my.password: x}",
     "properties: my.password looks like a secret, and every reader of a table sees its properties"),
    ("detector", "frequency: 60", "frequency: must be one of 1800, 3600, 21600, 43200 or 86400"),
    ("detector", "enable: perhaps", "enable: must be true or false"),
    ("detector", "excluded_tables_regexes: ['(']",
     "excluded_tables_regexes.0: the regular expression '[^.]+\\\\.(?:()' is not valid: missing ), unterminated "
     "subpattern at position 7; a glob such as public.log_* is enough for most"),
    ("postgres", "port: 70000", "port: must be at most 65535"),
    ("postgres", "read_timeout: 101 years", "read_timeout: must be a duration such as 30, 90s, 15m, 2h or 1d"),
    ("postgres", "application_name: ''", "application_name: must not be empty"),
    ("postgres", "rows_per_second: inf", "rows_per_second: must be a number that is not infinite"),
    ("postgres", "sslmode: requird",
     "sslmode: must be one of 'disable', 'prefer', 'require', 'verify-ca', 'verify-full', 'allow'"),
    ("postgres", "sslmode: 5",
     "sslmode: must be one of 'disable', 'prefer', 'require', 'verify-ca', 'verify-full', 'allow'"),
    ("mysql", "ssl: [on]", "ssl: must be one of 'disable', 'prefer', 'require', 'verify-ca', 'verify-full', "
     "'verify_ca', 'verify_identity'"),
    ("jdbc", "subprotocol: 'a/b'", ": `subprotocol` is the word after jdbc: in a URL"),
    ("jdbc", "url: 'jdbc:x://u:pa$word@h/d'",
     "url: a password must not be in the URL: write ${env:DB_URL} and set the whole URL in .env"),
    ("jdbc", "subprotocol: db2, partitions: 1001", "partitions: must be at most 1000"),
    ("jdbc", "subprotocol: db2, options: {sslPassphrase: x}",
     "options.sslPassphrase: a secret must not be in the file: write ${env:DB_OPTIONS_SSLPASSPHRASE} and set it "
     "in .env"),
    ("files", "encoding: utf-9", "encoding: unknown encoding: write utf-8, latin-1, cp1252, ..."),
    ("files", "encoding: base64", "encoding: unknown encoding: write utf-8, latin-1, cp1252, ..."),
    ("files", "delimiter: ''", "delimiter: must not be empty"),
    ("files", "delimiter: '||'", "delimiter: must have at most 1 character(s)"),
    ("files", "tables: '{table}/{table}.csv'", 'tables: must hold {table} once, as in "{table}/*.csv"'),
    ("files", "metadata: [_path]", "metadata.0: must be one of '_file', '_line' or '_file_number'"),
    ("files", "properties: {adls.account-key: abc}",
     "properties.adls.account-key: a secret must not be in the file: write ${env:DB_ADLS_ACCOUNT_KEY} and set it "
     "in .env"),
    ("connector", "limits: {memory: lots}", f"limits.memory: {A_SIZE}"),
    ("connector", "limits: {memory: '2  GB'}", f"limits.memory: {A_SIZE}"),
    ("connector", "limits: {ahead: 0}", "limits.ahead: must be at least 1"),
    ("iceberg", "quarantine_days: 36501", "quarantine_days: must be at most 36500"),
    ("iceberg", "undo_days: -1", "undo_days: must be at least 0"),
    ("email", "port: x", "port: must be a whole number"),
    ("email", "timeout: 31", "timeout: must be at most 30"),
    ("slack", "timeout: 0", "timeout: must be more than 0"),
    ("slack", "quiet: 25:00-06:00",
     "quiet: '25:00-06:00' is not a window: write when it opens and closes, such as 22:00-06:00"),
    ("file", "retention: {runs: 1h}", "retention.runs: must be at least 86400"),
    ("file", "retention: {jobs: 99999999d}", f"retention.jobs: {LONGEST}"),
    ("file", "traces: {sample: 0}", "traces.sample: must be more than 0"),
    ("file", "lineage: {url: 'http://h', file: f}", "lineage: lineage goes to a url or to a file: name one of them"),
    ("file", "server_url: instep.example.org",
     "server_url: must be the address of the server's pages, such as https://instep.example.org"),
    ("file", f"egress: {{allow: [{', '.join(['10.0.0.1'] * 201)}]}}", "egress.allow: must have at most 200 entries"),
    ("file", "engine: sparc", "engine: must be one of 'spark' or 'local', did you mean 'spark'?"),
    ("file", "engine: auto", "engine: must be one of 'spark' or 'local'"),
    ("file", "engine: inline", "engine: must be one of 'spark' or 'local'"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "written", "said"), WRONG, ids=[f"{w}: {t[:40]}" for w, t, _ in WRONG])
def test_a_wrong_value_is_named_with_its_line_and_what_is_right(
    loads: Loads, where: str, written: str, said: str
) -> None:
    with pytest.raises(ProjectError) as error:
        loads(OF[where].replace("%s", written))
    place = f"instep.yml:{AT[where]}"
    assert error.value.message.splitlines() == [(place.removesuffix(".") if said[0] == ":" else place) + said]
    assert error.value.hint == "correct the file, then run `instep validate`"


# where | what is written | the value that is read, by its path
RIGHT: list[tuple[str, str, str, Any]] = [
    ("connection", "max_new_columns: 0", "connections.c.max_new_columns", 0),
    ("connection", "keep_old_names: 36500d", "connections.c.keep_old_names", 36_500 * 86_400),
    ("connection", "detect: {min_interval: 500ms}", "connections.c.detect.min_interval", 0.5),
    ("connection", "detect: {min_interval: 1.5h}", "connections.c.detect.min_interval", 5400),
    ("connection", "detect: {before_sync: no}", "connections.c.detect.before_sync", False),
    ("connection", "protect: true", "connections.c.protect.mode", "on"),
    ("connection", "protect: names", "connections.c.protect.mode", "names"),
    ("connection", "schedule: {sync: every 24h}", "connections.c.schedule.sync", "every 24h"),
    ("connection", "backfill_limits: {window: '00:00-24:00'}", "connections.c.backfill_limits.window", "00:00-24:00"),
    ("connection", "tags: one", "connections.c.tags", ("one",)),
    ("connection", "source: , destination: ~", "connections.c.source", ""),
    ("detector", "frequency: 86400", "connections.c.app_options.detect_schema_changes_frequency_in_seconds", 86400),
    ("postgres", "port: '5433'", "sources.db.port", 5433),
    ("postgres", "sslmode: allow", "sources.db.tls.mode", "prefer"),
    ("jdbc", "url: '${env:URL}'", "sources.db.url", Reference("${env:URL}")),
    ("files", "encoding: Latin_1", "sources.db.encoding", "Latin_1"),
    ("connector", "limits: {memory: '0'}", "sources.db.limits.memory", "0"),
    ("connector", "limits: {memory: 2 gb}", "sources.db.limits.memory", "2 gb"),
    ("slack", "quiet: '22:00 - 6:00'", "channels.m.quiet", "22:00 - 6:00"),
    ("file", "retention: {runs: 1d}", "retention.runs", 86_400),
    ("file", "server_url: https://h.example/", "server_url", "https://h.example"),
    ("file", "traces: {sample: 1}", "traces.sample", 1),
]


@pytest.mark.parametrize(("where", "written", "path", "value"), RIGHT, ids=[f"{w}: {t}" for w, t, *_ in RIGHT])
def test_a_value_at_the_edge_is_taken(loads: Loads, where: str, written: str, path: str, value: object) -> None:
    found: Any = loads(OF[where].replace("%s", written)).model
    for name in path.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value


DAYS = ("mon", "TUE", "7", "0", "5-7", "mon-fri", "*/2", "1,3", "*")
FIELDS = [("*", "*/7", "0", "59", "5-10", "1,2,3-5"), ("*", "23", "*/6", "8-18/2"), ("*", "1", "31", "*/10"),
          ("*", "jan", "12", "mar-OCT", "2"), DAYS]  # fmt: skip


@given(st.tuples(*map(st.sampled_from, FIELDS)).map(" ".join))
def test_the_clock_reads_every_line_that_the_file_may_say(line: str) -> None:
    try:
        assert cron(line) == line
    except PydanticCustomError:
        assert line.split()[2:4] == ["31", "2"]  # a day that never comes
        return
    after = datetime(2026, 3, 1, tzinfo=UTC)
    fire = next_fire(line, after, "c")
    assert fire is None or fire > after


@given(st.integers(0, 999_999), st.sampled_from("smhd"))
def test_an_interval_is_taken_from_a_minute_to_a_day(number: int, unit: str) -> None:
    text = f"every {number}{unit}"
    seconds = number * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]
    assert interval(text) == (seconds or None)
    if 60 <= seconds <= 86_400:
        assert schedule(text) == text
    else:
        with pytest.raises(PydanticCustomError, match="is not an interval"):
            schedule(text)


@given(st.integers(0, 1439), st.integers(0, 1440))
def test_a_window_opens_and_closes_at_its_minutes(begin: int, end: int) -> None:
    found = minutes(f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}")
    assert found == (None if begin == end else (begin, end % 1440))


KEYS = st.sampled_from([*ProjectFile.model_fields, "type", "to", "x"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


@given(DOCUMENTS)
def test_no_document_is_more_than_a_list_of_problems(
    tmp_path_factory: pytest.TempPathFactory, document: object
) -> None:
    folder = tmp_path_factory.mktemp("any")
    text = tree.dump({"sources": {"s": document}, "connections": {"c": document}, "notify": document, "x": document})
    (folder / "instep.yml").write_text(text, encoding="utf-8")
    with pytest.raises(ProjectError) as error:
        load(folder, {})
    assert all(re.match(r"instep\.yml:\d+: ", line) for line in error.value.message.splitlines())
    assert "Input should" not in error.value.message


# a number as it is written | what it is
NUMBERS: list[tuple[str, object]] = [
    ("9" * 300, int("9" * 300)), ("9" * 301, "9" * 301), ("-0", 0), ("+5", 5), ("1.", 1.0), (".5", 0.5), ("0e5", "0e5"),
    ("5e-1", 0.5), ("1_0", "1_0"), ("0o17", "0o17"), ("1.0e400", float("inf")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), NUMBERS, ids=[n[0][:12] for n in NUMBERS])
def test_numbers_of_any_length(text: str, value: object) -> None:
    found = tree.parse(f"a: {text}")
    assert (found.data, found.problems) == ({"a": value}, [])


# a reference to a file | why it cannot be read
UNREADABLE = [
    ("${file:nothing}", "No such file or directory"),
    ("${file:.}", "Is a directory"),
    ("${file:binary}", "it is not UTF-8 text"),
    ("${file:~nobody-of-that-name/x}", "its user has no home folder"),
    ("${file:a\0b}", "it is not a path"),
]


@pytest.mark.parametrize(("text", "why"), UNREADABLE)
def test_a_file_that_holds_no_secret(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ProjectError) as error:
        Environment(tmp_path, {}).resolve(Reference(text), "instep.yml:1: here")
    assert error.value.message.startswith(f"instep.yml:1: here: the file {tmp_path}")
    assert error.value.message.endswith(f"cannot be read: {why}")
    assert error.value.hint == "make the file, or name another one"
