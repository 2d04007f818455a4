"""Policies, selections and schedules as the file says them."""

from __future__ import annotations

import pytest
from project_types import Loads
from pydantic_core import PydanticCustomError

from instep.project.sections.schedule import cron, interval, schedule, time_zone
from instep.schema.policy.policy import Override, Policy, Rule
from instep.schema.selection.selection import Selection, patterns

HEAD = "sources: {s: {type: sqlite, path: x}}\ndestinations: {d: {type: iceberg}}\n"


def test_a_policy_with_everything(loads: Loads) -> None:
    project = loads(
        HEAD
        + """\
policies:
  careful:
    preset: ALLOW_COLUMNS
    removed: retain
    rename_threshold: 0.9
    rules:
      - {on: [column.removed, key], decide: review}
      - {on: table.added, match: "billing.*", tags: prod, decide: apply, backfill: table}
      - {on: [column.added], decide: apply, backfill: new_columns}
connections:
  c:
    policy: careful
    tags: [prod]
    tables:
      public.log: {mode: append}
      "public.tmp_*": {preset: stop, on_invalid_value: "null", rules: [{on: "*", decide: ignore}]}
"""
    )
    assert project.policy("c") == Policy(
        name="careful",
        preset="allow_columns",
        rules=(
            Rule(("column.removed", "key"), "review"),
            Rule(("table.added",), "apply", ("billing.*",), ("prod",), {"backfill": "table"}),
            Rule(("column.added",), "apply", modifiers={"backfill": "column"}),
        ),
        overrides=(Override("public.tmp_*", "stop", (Rule(("*",), "ignore"),), {"on_invalid_value": "null"}),),
        modifiers={"removed": "retain", "rename_threshold": 0.9},
    )
    assert project.connection("c").tags == ("prod",)


def test_no_policy_is_the_default_preset(loads: Loads) -> None:
    assert loads(HEAD + "connections: {c: {}}").policy("c") == Policy(preset="allow_all")


@pytest.mark.parametrize(
    ("connection", "selection"),
    [
        ("{}", Selection()),
        (
            "{include: {tables: ['public.*', 're:^a\\.b_.*']}}",
            Selection(include=patterns(["public.*", r"re:^a\.b_.*"])),
        ),
        (
            "{exclude: {tables: public.tmp, columns: ['*.ssn']}, hash: ['*.email'], salt: '${env:S}'}",
            Selection(
                exclude_tables=patterns(["public.tmp"]),
                exclude_columns=patterns(["*.ssn"]),
                hashed=patterns(["*.email"]),
            ),
        ),
        (
            "{tables: {a.v: {enabled: true}, a.b: {enabled: false}, 'a.*': {enabled: false}, 'b.*': {mode: append}}}",
            Selection(exclude_tables=patterns(["a.*"]), on=frozenset({"a.v"}), off=frozenset({"a.b"})),
        ),
    ],
)
def test_selections(loads: Loads, connection: str, selection: Selection) -> None:
    assert loads(HEAD + f"connections:\n  c: {connection}").selection("c") == selection


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("90s", 90), ("1.5m", 90), ("24h", 86400), ("2d", 172800), ("250ms", 0.25), ("0", 0)],
)
def test_durations(loads: Loads, text: str, seconds: float) -> None:
    project = loads(HEAD + f"connections: {{c: {{detect: {{min_interval: {text}}}}}}}")
    assert project.connection("c").detect.min_interval == seconds


@pytest.mark.parametrize("text", ["-5", "5 parsecs", "'-5m'"])
def test_no_durations(loads: Loads, text: str) -> None:
    with pytest.raises(Exception, match=r"connections\.c\.detect\.min_interval"):
        loads(HEAD + f"connections: {{c: {{detect: {{min_interval: {text}}}}}}}")


@pytest.mark.parametrize(
    "text", ["", "* * * * *", "*/15 * * * *", "0 3,15 1-5 jan-MAR sun", "5-50/10 0 * * 7", "59 23 31 12 0"]
)
def test_schedules(text: str) -> None:
    assert cron(text) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("* * * *", "has five fields (minute hour day month weekday), this one 4"),
        ("@daily", "this one 1: write one such as 0 6 * * *, or an interval such as every 15m"),
        ("60 * * * *", "'60' is not a valid minute: use 0 to 59"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("* * 0 * *", "'0' is not a valid day"),
        ("* * * 13 *", "'13' is not a valid month"),
        ("* * * * 8", "'8' is not a valid weekday"),
        ("* * * * mondays", "'mondays' is not a valid weekday"),
        ("30-10 * * * *", "'30-10' is not a valid minute"),
        ("*/0 * * * *", "'*/0' is not a valid minute"),
        ("*/99 * * * *", "'*/99' is not a valid minute"),
        ("1,,2 * * * *", "'1,,2' is not a valid minute"),
        ("-5 * * * *", "'-5' is not a valid minute"),
    ],
)
def test_wrong_schedules(text: str, said: str) -> None:
    with pytest.raises(PydanticCustomError) as error:
        cron(text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("every 15m", 900),
        ("every 60s", 60),
        ("every 2 h", 7200),
        (" every 1d ", 86_400),
        ("*/5 * * * *", None),
        ("", None),
    ],
)
def test_intervals(text: str, seconds: int | None) -> None:
    assert schedule(text) == text
    assert interval(text) == seconds


@pytest.mark.parametrize(
    "text", ["every", "every 59s", "every 25h", "every 0m", "every m", "every 5 minutes", "everyday"]
)
def test_wrong_intervals(text: str) -> None:
    with pytest.raises(PydanticCustomError, match="write every 1m to every 24h"):
        schedule(text)


@pytest.mark.parametrize(
    ("name", "right"), [("UTC", True), ("Europe/Berlin", True), ("Mars/Base", False), ("../x", False)]
)
def test_time_zones(name: str, right: bool) -> None:
    if right:
        assert time_zone(name) == name
    else:
        with pytest.raises(PydanticCustomError, match="unknown time zone"):
            time_zone(name)


def test_notices_and_channels_are_kept(loads: Loads) -> None:
    project = loads(
        HEAD
        + """\
connections:
  c:
    schedule: {detect: "*/15 * * * *", sync: "0 * * * *", timezone: Europe/Berlin}
    notify: [{on: [review_needed, failed], to: team}]
channels:
  team: {type: slack, url: "${env:HOOK}"}
  mail: {type: email, to: [data@example.org], sender: a@example.org, digest: daily}
notify:
  - {on: [applied], to: mail, kinds: column.*, tags: [pii]}
"""
    )
    connection = project.connection("c")
    assert (connection.notify[0].on, connection.notify[0].to) == (("review_needed", "failed"), "team")
    assert connection.schedule.timezone == "Europe/Berlin"
    mail = project.model.channels["mail"]
    assert (mail.type, mail.digest, mail.quiet) == ("email", "daily", "")
    assert project.channel("mail").to == ("data@example.org",)
    assert project.model.notify[0].kinds == ("column.*",)


def test_an_interval_that_is_none_is_refused_with_what_is_one() -> None:
    with pytest.raises(PydanticCustomError, match=r"every 1m to every 24h, or a cron line such as 0 6 \* \* \*"):
        schedule("every day")
