"""Alert rules and the board name only metrics that exist, and leave none out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from instep.monitoring.metrics import NAMES

FOLDER = Path(__file__).parents[2] / "ops"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
BOARD: dict[str, Any] = json.loads((FOLDER / "grafana.json").read_text())


def named(expression: str) -> set[str]:
    return set(re.findall(r"\binstep_\w+", expression))


def board() -> Iterator[str]:
    for panel in BOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_a_rule_is_complete_and_names_what_exists(rule: dict[str, Any]) -> None:
    assert named(rule["expr"]) <= NAMES
    assert named(rule["expr"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}
    assert rule["expr"].count("(") == rule["expr"].count(")")


def test_the_board_names_what_exists() -> None:
    for expression in board():
        assert named(expression)
        assert named(expression) <= NAMES, expression


def test_no_metric_is_looked_at_by_nobody() -> None:
    seen = set().union(*(named(e) for e in [*board(), *(rule["expr"] for rule in RULES)]))
    assert seen == NAMES


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_commands_that_rules_tell_of_exist() -> None:
    from typer.main import get_command

    from instep.cli.main import app

    known = get_command(app)
    for rule in RULES:
        for words in re.findall(r"`instep ([a-z ]+?)(?: --[^`]*)?`", rule["annotations"]["description"]):
            command: Any = known
            for word in words.split():
                assert word in command.commands, (rule["alert"], words)
                command = command.commands[word]
