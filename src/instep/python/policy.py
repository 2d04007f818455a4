"""A connection's policy: shown, explained for one change, tested on sample changes, tried on recorded ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError, ProjectError
from instep.operations.queries.decisions import ExplainDecision, GetPolicy, SimulatePolicy
from instep.python.results import Document, grid

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.project.files.policy_files import Located


@dataclass(frozen=True)
class CaseResult:
    """The decision on one sample change, compared with what was expected."""

    where: str
    """File and line of the case, or its number."""
    change: str
    """The kind of change, such as `column.removed`."""
    table: str
    """The table, as `schema.table`."""
    column: str
    """The column; "" for a change of the table as a whole."""
    action: str
    """The decision: `apply`, `review`, `ignore`, `pause_table` or `pause_connection`."""
    rule: str
    """The rule, override or preset that decided."""
    why: str
    """The reason, for people."""
    wrong: Sequence[str] = ()
    """A sentence for each difference from what was expected; none if the case has passed."""
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All of it, as `instep policy test --output json` has it."""

    @property
    def passed(self) -> bool:
        """Return whether the decision is what was expected."""
        return not self.wrong


@dataclass(frozen=True)
class PolicyTest:
    """The outcome of testing a policy on sample changes.

    Example:
        def test_removed_columns_wait_for_a_person():
            with instep.open(".") as project:
                project.connection("shop").policy.test("policy-cases.yml").raise_for_failure()
    """

    connection: str
    """The connection whose policy was tested."""
    cases: Sequence[CaseResult]
    """One result for each case, in their order."""

    @property
    def ok(self) -> bool:
        """Return whether every case has passed."""
        return not self.failed

    @property
    def failed(self) -> list[CaseResult]:
        """Return the cases that were decided differently than expected."""
        return [case for case in self.cases if not case.passed]

    def raise_for_failure(self) -> PolicyTest:
        """Return the outcome itself.

        Raises InstepError that names each case that was decided differently than expected, and the rule that decided.
        """
        if self.ok:
            return self
        lines = "\n".join(_failure(one) for one in self.failed)
        raise InstepError(
            f"{len(self.failed)} of {len(self.cases)} case(s) of connection {self.connection} are decided differently\n"
            f"{lines}",
            hint="change the policy or the case; `instep policy explain` shows why a rule did not decide",
        )

    def _repr_html_(self) -> str:
        rows = [
            (
                "passed" if case.passed else "failed",
                case.where,
                case.change,
                _object(case),
                case.action,
                case.rule,
                case.wrong,
            )
            for case in self.cases
        ]
        return grid(("case", "where", "change", "object", "action", "decided by", "differences"), rows)


class Policy:
    """The policy of one connection. Nothing here changes anything.

    Example:
        shop.policy.explain("main.orders.note", "column.removed")
        shop.policy.test("policy-cases.yml").raise_for_failure()
    """

    def __init__(self, connection: str, backend: Backend) -> None:
        self._connection, self._backend = connection, backend

    def __repr__(self) -> str:
        return f"<instep policy of connection {self._connection}>"

    def show(self) -> Document:
        """Return preset, rules, modifiers and overrides, and the preset's decision on each kind of change."""
        return Document(self._backend.query(GetPolicy(self._connection)))

    def explain(self, path: str, kind: str, *, before: str = "", after: str = "") -> Document:
        """Return the decision on such a change, the rule that makes it, and why no earlier rule does.

        `path`: `schema.table` or `schema.table.column`. `kind`: such as `column.removed`. `before` and `after`: the
        types of a column whose type changes; for a rename, `after` is the new name. Raises InstepError for a kind or a
        path that there is not.
        """
        return Document(self._backend.query(ExplainDecision(self._connection, path, kind, before, after)))

    def test(self, cases: str | Path | Iterable[Mapping[str, Any]]) -> PolicyTest:
        """Decide sample changes, and compare with what is expected of each.

        `cases`: a YAML file, or the cases themselves as mappings with the same keys: `change`, `table` and `expect`,
        and as needed `column`, `from`, `to`, `tags`, `effect`, `rule` and modifiers. The answer depends on the project
        file and the cases alone. Raises ProjectError if a case is wrong.
        """
        from instep.backends.calls import run_cases
        from instep.project.files.policy_files import read_cases, refuse_wrong

        located = read_cases(Path(cases)) if isinstance(cases, str | Path) else _numbered(cases)
        documents = run_cases(self._backend, self._connection, [one.case.document() for one in located])
        if isinstance(cases, str | Path):
            refuse_wrong(located, [one.get("problem", "") for one in documents])
        elif wrong := [f"case {n}: {one['problem']}" for n, one in enumerate(documents, 1) if one.get("problem")]:
            raise ProjectError("\n".join(wrong), hint="correct the case")
        results = [_result(one, result) for one, result in zip(located, documents, strict=True)]
        return PolicyTest(self._connection, results)

    def simulate(self, file: str | Path, since: datetime | None = None) -> Document:
        """Decide every recorded change anew by another policy; return what would have been decided differently.

        `file`: one policy, as under one name of `policies:` in instep.yml. `since`: only changes that were first seen
        at this time or later. Raises ProjectError if the file is wrong.
        """
        from instep.project.files.policy_files import read_policy

        path = Path(file)
        request = SimulatePolicy(self._connection, path.stem, read_policy(path).document(), since)
        return Document(asdict(self._backend.query(request)))


def _numbered(cases: Iterable[Mapping[str, Any]]) -> list[Located]:
    """Return cases that no file has, by their numbers; ProjectError if one is wrong."""
    from pydantic import ValidationError

    from instep.project.files.policy_files import Located, SampleCase

    cases_found = []
    for number, case in enumerate(cases, 1):
        try:
            cases_found.append(Located("", number, SampleCase.model_validate(dict(case), context={})))
        except ValidationError as error:
            lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
            raise ProjectError(
                f"case {number} is wrong: {'; '.join(lines)}", hint="see docs/reference/commands.md, policy test"
            ) from None
    if not cases_found:
        raise ProjectError("there are no cases", hint='give some: [{"change": ..., "table": ..., "expect": ...}]')
    return cases_found


def _result(located: Located, document: Mapping[str, Any]) -> CaseResult:
    case = located.case
    return CaseResult(
        where=located.location if located.file else f"case {located.line}",
        change=case.change,
        table=case.table,
        column=case.column,
        action=document["action"],
        rule=document["rule"],
        why=document["why"],
        wrong=tuple(document["wrong"]),
        document=document,
    )


def _object(case: CaseResult) -> str:
    return ".".join(filter(None, (case.table, case.column)))


def _failure(case: CaseResult) -> str:
    return f"{case.where}: {case.change} of {_object(case)}: {'; '.join(case.wrong)} (decided by {case.rule})"
