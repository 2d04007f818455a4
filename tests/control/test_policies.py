"""`shown`, `explain` and `run_cases` over a real project file and a real store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from instep.control.policy.policies import EvaluatedCase, explain, run_cases, shown
from instep.control.policy.sample_changes import PolicyQuestion, sample
from instep.errors import InstepError, ProjectError
from instep.project.files.policy_files import read_cases, refuse_wrong
from instep.project.load import load
from instep.project.project import Project
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import change_to_dict, describe, key
from instep.store.catalogs.reviews import DetectedChange
from instep.store.store import Store

PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
policies:
  careful:
    preset: allow_all
    on_invalid_value: fail
    rules:
      - {on: column.removed, match: "*.tmp_*", decide: apply, removed: drop}
      - on: [column.removed, column.narrowed]
        decide: review
      - {on: "key.*", decide: pause_connection, tags: [critical]}
connections:
  shop:
    policy: careful
    tags: [eu]
    exclude: {tables: [public.old], columns: [public.order.secret, "*.pin"]}
    tables:
      public.order: {mode: append}
      public.log:
        preset: block_all
        rules:
          - {on: column.added, match: "*.x", decide: review}
      public.off: {enabled: false}
  plain: {}
"""
COLUMNS = (Column("id", parse("int32"), key=1), Column("note", parse("date")), Column("at", parse("date")))
ORDER = Table("public", "order", COLUMNS, cursor="at")
ACCEPTED = Catalog.of([ORDER])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "instep.yml").write_text(PROJECT)
    return load(tmp_path, {})


def test_what_stands_is_shown(project: Project) -> None:
    found = shown(project, "shop")
    assert (found.policy.name, found.policy.preset, found.preset_where, found.tags) == (
        "careful", "allow_all", "instep.yml:5", ("eu",),
    )  # fmt: skip
    assert [(r.number, r.where) for r in found.rules] == [
        (1, "instep.yml:8"),
        (2, "instep.yml:9"),
        (3, "instep.yml:11"),
    ]
    assert {match: [r.where for r in rules] for match, rules in found.overrides.items()} == {
        "public.log": ["instep.yml:22"]
    }
    kinds = {k.kind: (k.action, k.effect, dict(k.modifiers)) for k in found.kinds}
    assert kinds["column.removed"] == ("apply", "", {"removed": "retain"})
    assert kinds["column.retyped"] == ("review", "", {"on_invalid_value": "fail"})
    assert kinds["access.lost"] == ("ignore", "error", {})


def test_a_connection_without_a_policy_has_the_default(project: Project) -> None:
    found = shown(project, "plain")
    assert (found.policy.name, found.policy.preset, found.preset_where, found.rules) == ("", "allow_all", "", ())


# name | table or column | kind | action | rule | where | parts of the notes
EXPLAINED = [
    ("a rule", "public.order.note", "column.removed", "review", "rule 2 of policy careful", "instep.yml:9", []),
    ("its match", "public.order.tmp_1", "column.removed", "apply", "rule 1 of policy careful", "instep.yml:8",
     ["two detections agree"]),
    ("the preset", "public.order.note", "column.comment", "apply", "preset allow_all", "instep.yml:5", []),
    ("an override's rule", "public.log.x", "column.added", "review", "rule 1 of override public.log of policy careful",
     "instep.yml:22", ["public.log is not an accepted table of shop"]),
    ("an override's preset", "public.log", "table.renamed", "review", "override public.log of policy careful",
     "instep.yml:20", []),
    ("a slip", "public.ordr.note", "column.comment", "apply", "preset allow_all", "instep.yml:5",
     ["did you mean public.order?"]),
    ("an excluded table", "public.old", "table.added", "apply", "preset allow_all", "instep.yml:5",
     ["public.old is not read (excluded by public.old)"]),
    ("a table that is off", "public.off", "table.added", "apply", "preset allow_all", "instep.yml:5",
     ["public.off is not read (switched off)"]),
    ("an excluded column", "public.order.pin", "column.added", "apply", "preset allow_all", "instep.yml:5",
     ["public.order.pin is not read (excluded by *.pin)"]),
    ("a key's column", "public.order.id", "column.removed", "review", "rule 2 of policy careful", "instep.yml:9",
     ["it comes with key.removed, which is decided as pause_table by preset allow_all; the removal waits for it"]),
    ("a cursor's column", "public.order.at", "column.removed", "review", "rule 2 of policy careful", "instep.yml:9",
     ["it comes with cursor.removed"]),
    ("a replaced table", "public.order", "table.replaced", "apply", "preset allow_all", "instep.yml:5",
     ["decided as key.changed"]),
    ("a schema", "billing", "schema.added", "apply", "preset allow_all", "instep.yml:5", []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "kind", "action", "rule", "where", "notes"), [e[1:] for e in EXPLAINED], ids=[e[0] for e in EXPLAINED]
)
def test_what_is_explained(
    project: Project, store: Store, path: str, kind: str, action: str, rule: str, where: str, notes: list[str]
) -> None:
    store.accepted.add("shop", ACCEPTED, who="ana", why="first")
    found = explain(project, store, "shop", path, kind)
    assert (found.decision.action, found.decision.rule, found.places[-1]) == (action, rule, where)
    assert len(found.places) == len(found.trace.evaluations)
    assert found.review is None
    assert len(found.notes) == len(notes)
    assert all(part in note for part, note in zip(notes, found.notes, strict=True)), found.notes


def test_a_change_of_an_unknown_table_is_made_up(project: Project, store: Store) -> None:
    found = explain(project, store, "plain", "public.order.x", "column.retyped", "int32", "uuid")
    assert describe(found.change) == "column public.order.x retyped from int32 to uuid"
    assert (found.decision.rule, found.places) == ("preset allow_all", ("",))


def recorded(store: Store, kind: str, path: str, column: str, status: str) -> str:
    change = sample(PolicyQuestion(kind, path, column), ACCEPTED)
    finding = DetectedChange(key(change), kind, ("public", "order"), column, describe(change), change_to_dict(change),
                      "review", "rule 2 of policy careful", "waits for a review")  # fmt: skip
    [review] = store.reviews.record("shop", [finding], "f")
    if status in ("approved", "rejected"):
        store.reviews.decide(review.id, status, "ana")  # type: ignore[arg-type]
    if status == "obsolete":
        store.reviews.obsolete([review.id])
    return review.id


@pytest.mark.parametrize(
    ("status", "action", "rule"),
    [("open", "review", "rule 2 of policy careful"), ("approved", "apply", "review"), ("rejected", "ignore", "review")],
)
def test_a_recorded_change_is_explained_with_its_answer(
    project: Project, store: Store, status: str, action: str, rule: str
) -> None:
    id = recorded(store, "column.removed", "public.order", "note", status)
    found = explain(project, store, "shop", "public.order.note", "column.removed")
    assert found.review is not None
    assert (found.review.id, found.decision.action, found.decision.rule) == (id, action, rule)
    assert describe(found.change) == "column public.order.note removed (date)"
    assert explain(project, store, "shop", "public.order.note", "column.removed", "int32").review is None
    assert explain(project, store, "shop", "public.order.other", "column.removed").review is None


def test_what_is_past_is_not_what_is_asked_about(project: Project, store: Store) -> None:
    recorded(store, "column.removed", "public.order", "note", "obsolete")
    assert explain(project, store, "shop", "public.order.note", "column.removed").review is None


def test_explaining_writes_nothing(project: Project, store: Store) -> None:
    recorded(store, "column.removed", "public.order", "note", "open")
    before = store.reviews.find(), store.events.after()
    explain(project, store, "shop", "public.order.note", "column.removed")
    assert (store.reviews.find(), store.events.after()) == before


Cases = Callable[[str], list[EvaluatedCase]]


@pytest.fixture
def cases(project: Project) -> Cases:
    def run(text: str) -> list[EvaluatedCase]:
        file = project.root / "cases.yml"
        file.write_text(text)
        located = read_cases(file)
        found = run_cases(project, "shop", [one.case for one in located])
        refuse_wrong(located, [one if isinstance(one, str) else "" for one in found])
        return [one for one in found if isinstance(one, EvaluatedCase)]

    return run


# name | the case after `table` | what is not as expected
TESTED: list[tuple[str, Mapping[str, str], list[str]]] = [
    ("as expected", {"change": "column.removed", "column": "note", "expect": "review"}, []),
    ("all of it", {"change": "column.removed", "column": "tmp_a", "expect": "apply", "removed": "drop",
                   "on_invalid_value": "fail", "backfill": "none", "rule": "rule 1", "effect": '""'}, []),
    ("the whole rule", {"change": "column.removed", "column": "note", "expect": "review",
                        "rule": "rule 2 of policy careful"}, []),
    ("the preset", {"change": "column.widened", "column": "note", "expect": "apply", "rule": "preset allow_all"}, []),
    ("tags of its own", {"change": "key.changed", "tags": "[critical]", "expect": "pause_connection"}, []),
    ("the connection's tags", {"change": "key.changed", "expect": "pause_connection"},
     ["expected pause_connection, decided pause_table"]),
    ("the action", {"change": "column.removed", "column": "note", "expect": "apply"},
     ["expected apply, decided review"]),
    ("the rule", {"change": "column.removed", "column": "note", "expect": "review", "rule": "rule 1"},
     ["expected rule 1, decided by rule 2 of policy careful"]),
    ("a modifier", {"change": "column.removed", "column": "tmp_a", "expect": "apply", "removed": "retain"},
     ["expected removed: retain, decided removed: drop"]),
    ("the effect", {"change": "column.narrowed", "column": "x", "expect": "ignore", "effect": "kept"},
     ["expected ignore, decided review", "expected effect kept, decided none"]),
    ("types", {"change": "column.added", "column": "x", "to": "uuid", "expect": "apply"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("case", "wrong"), [t[1:] for t in TESTED], ids=[t[0] for t in TESTED])
def test_cases_are_compared(cases: Cases, case: Mapping[str, str], wrong: list[str]) -> None:
    text = ", ".join(f"{name}: {value}" for name, value in {**case, "table": "public.order"}.items())
    [result] = cases(f"- {{{text}}}\n")
    assert list(result.wrong) == wrong


def test_cases_that_cannot_be_are_told_at_once(cases: Cases) -> None:
    with pytest.raises(ProjectError) as error:
        cases(
            "- {change: column.removed, table: t.t, expect: apply}\n"
            "- {change: key.removed, table: t.t, expect: apply}\n"
            "- {change: column.widened, table: t.t, column: x, from: int64, to: int32, expect: apply}\n"
        )
    lines = error.value.message.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["cases.yml:1", "cases.yml:3"]
    assert "needs a column; name the column that changes" in lines[0]
    assert "int64 to int32 is column.narrowed, not column.widened" in lines[1]


def test_an_unknown_connection(project: Project, store: Store) -> None:
    for ask in (lambda: shown(project, "shp"), lambda: explain(project, store, "shp", "a.b", "table.added")):
        with pytest.raises(InstepError, match="did you mean 'shop'"):
            ask()
