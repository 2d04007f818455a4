"""Files with one policy, and files with sample changes: what they may say, and how errors are told."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from instep.errors import ProjectError
from instep.project.files.policy_files import read_cases, read_policy
from instep.project.sections.policies import to_policy


def written(folder: Path, text: str) -> Path:
    file = folder / "it.yml"
    file.write_text(dedent(text), encoding="utf-8")
    return file


def test_a_policy_on_its_own(tmp_path: Path) -> None:
    text = """\
        preset: propagate all
        on_invalid_value: fail
        rules:
          - {on: column.removed, decide: review}
    """
    policy = to_policy("it", read_policy(written(tmp_path, text)), {})
    assert (policy.preset, policy.modifiers) == ("propagate_all", {"on_invalid_value": "fail"})
    assert [str(rule) for rule in policy.rules] == ["{on: [column.removed], decide: review}"]


def test_cases_have_lines(tmp_path: Path) -> None:
    text = """\
        # what we count on
        - {change: column.removed, table: public.order, column: note, expect: apply, removed: retain}

        - change: column.retyped
          table: public.order
          column: id
          from: int32
          to: uuid
          tags: [eu]
          expect: review
          rule: preset allow_all
          effect: ""
    """
    first, second = read_cases(written(tmp_path, text))
    assert (first.location, second.location) == ("it.yml:2", "it.yml:4")
    assert (first.case.tags, first.case.effect, first.case.modifiers()) == (None, None, {"removed": "retain"})
    assert (second.case.before, second.case.after, second.case.tags) == ("int32", "uuid", ("eu",))


BAD_CASES = [
    ("an unknown key", "- {change: key.removed, tabel: t, expect: review}", [
        "it.yml:1: 0.tabel: unknown key, did you mean 'table'?", "it.yml:1: 0.table: is required",
    ]),
    ("a key under its own name", "- {change: key.removed, table: t, expect: review, before: int32}",
     ["it.yml:1: 0.before: unknown key"]),
    ("an unknown kind", "- {change: key.remove, table: t, expect: review}",
     ["it.yml:1: 0.change: unknown kind of change 'key.remove'; did you mean 'key.removed'?"]),
    ("an unknown action", "- {change: key.removed,\n   table: t,\n   expect: revew}",
     ["it.yml:3: 0.expect: must be one of", "did you mean 'review'?"]),
    ("an unknown effect", "- {change: key.removed, table: t, expect: review, effect: pendng}",
     ["0.effect: must be one of", "did you mean 'pending'?"]),
    ("an unknown modifier", "- {change: key.removed, table: t, expect: review, removed: keep}",
     ["0.removed: must be one of 'retain' or 'drop'"]),
    ("no list", "change: key.removed", ["it.yml:1: the file: must be a list"]),
    ("nothing", "# later\n", ["it.yml is empty", "- {change: column.removed"]),
    ("no cases", "[]", ["it.yml has no cases"]),
    ("a reference", '- {change: key.removed, table: "${env:T}", expect: review}',
     ["it.yml:1: 0.table: a reference is not possible here"]),
    ("null without quotes", "- {change: column.retyped, table: t, column: x, expect: ignore, on_invalid_value: null}",
     ['it.yml:1: 0.on_invalid_value: needs a value (the word null in quotes: "null")']),
    ("broken text", "- {change: [", ["it.yml:1:"]),
    ("a key twice", "- {change: key.removed, table: t, table: u, expect: review}", ["given twice, first on line 1"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), [b[1:] for b in BAD_CASES], ids=[b[0] for b in BAD_CASES])
def test_wrong_cases(tmp_path: Path, text: str, said: list[str]) -> None:
    with pytest.raises(ProjectError) as error:
        read_cases(written(tmp_path, text))
    assert all(part in str(error.value) for part in said), str(error.value)


BAD_POLICIES = [
    ("the section's name as well", "policies: {careful: {preset: stop}}", ["it.yml:1: policies: unknown key"]),
    ("an unknown preset", "preset: alow_all", ["it.yml:1: preset: unknown preset 'alow_all'; did you mean"]),
    ("an unknown key of a rule", "rules:\n  - {on: column, decide: review, mach: x}",
     ["it.yml:2: rules.0.mach: unknown key, did you mean 'match'?"]),
    ("a list", "- {on: column, decide: review}", ["it.yml:1: the file: must be a mapping"]),
    ("null without quotes", "rules:\n  - on: column\n    decide: review\n    on_invalid_value: null",
     ["it.yml:4: rules.0.on_invalid_value: needs a value"]),
    ("a key without a value", "preset:\non_invalid_value: fail", ["it.yml:1: preset: needs a value"]),
    ("nothing", "", ["it.yml is empty", "write a preset and rules"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), [b[1:] for b in BAD_POLICIES], ids=[b[0] for b in BAD_POLICIES])
def test_wrong_policies(tmp_path: Path, text: str, said: list[str]) -> None:
    with pytest.raises(ProjectError) as error:
        read_policy(written(tmp_path, text))
    assert all(part in str(error.value) for part in said), str(error.value)


@pytest.mark.parametrize("read", [read_cases, read_policy])
def test_a_file_that_is_not_there(tmp_path: Path, read: object) -> None:
    with pytest.raises(ProjectError) as error:
        read(tmp_path / "it.yml")  # type: ignore[operator]
    assert (error.value.message, error.value.hint) == (
        f"{tmp_path / 'it.yml'} does not exist",
        "name a file that is there",
    )
