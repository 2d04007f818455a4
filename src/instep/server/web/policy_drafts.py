"""A policy as a form has it: a preset, modifiers and ordered rules, or its YAML."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import yaml

from instep.schema.policy.policy import Backfill, InvalidValue, Removed
from instep.schema.policy.presets import ACTIONS
from instep.server.problems import ApiProblem
from instep.server.web.yaml_fields import read_yaml

Form = Mapping[str, Sequence[str]]
MODIFIERS: Mapping[str, tuple[str, ...]] = {
    "removed": get_args(Removed),
    "on_invalid_value": get_args(InvalidValue),
    "backfill": get_args(Backfill),
}
"""The modifiers with a closed list of words."""
_RULE = ("on", "match", "tags", "decide", *MODIFIERS)
_LISTS = ("on", "match", "tags")
MOST_RULES = 100


@dataclass(frozen=True)
class PolicyDraft:
    """The fields of a form."""

    preset: str = "allow_all"
    modifiers: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Mapping[str, Any], ...] = ()
    rest: Mapping[str, Any] = field(default_factory=dict)
    """Keys that the form has no fields for, which stay as they are."""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> PolicyDraft:
        """Return the draft of a policy's section."""
        known = {"preset", "rules", *MODIFIERS}
        rest = {name: value for name, value in spec.items() if name not in known}
        modifiers = {name: spec[name] for name in MODIFIERS if name in spec}
        return cls(str(spec.get("preset") or "allow_all"), modifiers, tuple(spec.get("rules") or ()), rest)

    @classmethod
    def read(cls, form: Form, before: Mapping[str, Any]) -> PolicyDraft:
        """Parse a form's fields; keys without a field stay as they were `before`."""
        rules = tuple(
            _rule({name: _at(form, f"rule-{name}", n) for name in _RULE}, _at(form, "rule-rest", n))
            for n in range(min(len(form.get("rule-on", ())), MOST_RULES))
        )
        modifiers = {name: text for name in MODIFIERS if (text := _at(form, name, 0))}
        return cls(_at(form, "preset", 0) or "allow_all", modifiers, rules, cls.of(before).rest)

    @classmethod
    def parse(cls, text: str) -> PolicyDraft:
        """Return the draft that a YAML text is; ApiProblem for one that is none."""
        document = read_yaml(text, "this is not YAML")
        if not isinstance(document, dict):
            raise ApiProblem(422, "invalid", "a policy is a mapping", "begin with `preset: approve`")
        rules = document.get("rules") or []
        if not isinstance(rules, list) or not all(isinstance(one, dict) for one in rules):
            raise ApiProblem(422, "invalid", "`rules` is a list of mappings", "begin each with `- on: [...]`")
        return cls.of(document)

    def spec(self) -> dict[str, Any]:
        """Return the section."""
        rules = {"rules": [dict(rule) for rule in self.rules]} if self.rules else {}
        return {"preset": self.preset, **self.modifiers, **self.rest, **rules}

    def changed(self, button: str) -> PolicyDraft:
        """Return the draft after a button was pressed: add, remove-N, up-N or down-N."""
        verb, _, number = button.partition("-")
        rules, n = list(self.rules), int(number) if number.isdecimal() else -1
        if verb == "add" and len(rules) < MOST_RULES:
            rules.append({"on": [], "decide": "review"})
        elif verb == "remove" and 0 <= n < len(rules):
            del rules[n]
        elif verb in ("up", "down") and 0 <= n < len(rules):
            other = n - 1 if verb == "up" else n + 1
            if 0 <= other < len(rules):
                rules[n], rules[other] = rules[other], rules[n]
        return replace(self, rules=tuple(rules))


def _at(form: Form, name: str, number: int) -> str:
    values = form.get(name, ())
    return values[number].strip() if number < len(values) else ""


def _rule(texts: Mapping[str, str], rest: str) -> dict[str, Any]:
    lists = {name: [one.strip() for one in texts[name].replace("\n", ",").split(",") if one.strip()] for name in _LISTS}
    rule: dict[str, Any] = {name: value for name, value in lists.items() if value or name == "on"}
    rule["decide"] = texts["decide"] if texts["decide"] in ACTIONS else "review"
    rule |= {name: texts[name] for name in MODIFIERS if texts[name]}
    try:
        more = json.loads(rest) if rest else {}
    except (ValueError, RecursionError):
        more = {}
    return {**rule, **(more if isinstance(more, dict) else {})}


def rest_of(rule: Mapping[str, Any]) -> str:
    """Return the keys of a rule that a form has no field for, which it carries along."""
    rest = {name: value for name, value in rule.items() if name not in _RULE}
    return json.dumps(rest) if rest else ""


def dumped(spec: Mapping[str, Any]) -> str:
    """Return a section as YAML."""
    return yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True, width=100)


def digest_of(spec: Mapping[str, Any]) -> str:
    """Return a digest that differs between drafts."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of the YAML of both, each with plus, minus or nothing."""
    marks = {"+": "plus", "-": "minus", " ": ""}
    lines = difflib.ndiff(dumped(before).splitlines(), dumped(after).splitlines()) if before else ()
    return [(marks[line[0]], line) for line in lines if line[0] in marks]
