"""Answers about a connection's policy and selection, from the project and the store alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control.policy.policies import PolicySimulation, explain, explained, run_cases, shown, tested
from instep.control.policy.simulation import simulate
from instep.control.queries.context import QueryContext
from instep.control.selection.listing import Listed, listed, tree
from instep.control.selection.selections import SwitchedConnection, place_of
from instep.control.times import aware
from instep.operations.queries.policy import ExplainDecision, GetPolicy, GetSelection, RunPolicyCases, SimulatePolicy
from instep.operations.spec import QueryWork
from instep.project.documents import check_storable, section_of
from instep.project.files.policy_files import sample_cases
from instep.project.sections.policies import PolicySection


@dataclass(frozen=True)
class SelectionListing:
    """The selection of a connection: as a tree, and as a list of the same objects."""

    schema_change_handling: str
    schemas: Mapping[str, Any]
    """The tree, nested as a schema config has it."""
    objects: tuple[Listed, ...]
    """Schemas, tables and columns in order of their names."""

    @classmethod
    def of(cls, place: SwitchedConnection, *, columns: bool) -> SelectionListing:
        """Return the listing of a connection. `columns`: with every column."""
        found = listed(place, columns=columns)
        return cls(**tree(place, found), objects=tuple(found))


class PolicyInForce(QueryWork):
    """The policy of one connection."""

    def find(self, context: QueryContext, query: GetPolicy) -> dict[str, Any]:
        """Return the policy as a document."""
        return shown(context.project, context.connection(query.connection)).document()


class DecisionExplained(QueryWork):
    """The decision on one change."""

    def find(self, context: QueryContext, query: ExplainDecision) -> dict[str, Any]:
        """Return the decision as a document. Raises InstepError for a kind or a path that there is not."""
        name = context.connection(query.connection)
        found = explain(context.project, context.store, name, query.path, query.kind, query.before, query.after)
        return explained(found)


class SelectionDetails(QueryWork):
    """The selection of one connection."""

    def find(self, context: QueryContext, query: GetSelection) -> SelectionListing:
        """Return what is on and why."""
        place = place_of(context.project, context.store, context.connection(query.connection))
        return SelectionListing.of(place, columns=query.columns)


@dataclass(frozen=True)
class TestedPolicy:
    """How sample changes were decided."""

    results: tuple[Mapping[str, Any], ...]
    """Parallel to the cases; `problem` of one says why it can be no such change."""


class PolicyTested(QueryWork):
    """Sample changes under the policy of one connection."""

    def find(self, context: QueryContext, query: RunPolicyCases) -> TestedPolicy:
        """Decide the cases and compare. Raises ProjectError for a case that is none."""
        name = context.connection(query.connection)
        return TestedPolicy(tuple(tested(one) for one in run_cases(context.project, name, sample_cases(query.cases))))


class PolicySimulated(QueryWork):
    """The recorded changes of one connection under another policy."""

    def find(self, context: QueryContext, query: SimulatePolicy) -> PolicySimulation:
        """Decide the changes anew. Raises InvalidObject for a document that is no policy."""
        name = context.connection(query.connection)
        check_storable("policy", query.name, query.policy)
        section = section_of("policy", query.name, query.policy)
        assert isinstance(section, PolicySection)
        since = aware(query.since) if query.since is not None else None
        return PolicySimulation.of(simulate(context.project, context.store, name, query.name, section, since))
