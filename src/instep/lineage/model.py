"""One reader of the destination: a view, a dbt model or what stands after them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True)
class Model:
    """A downstream model or view."""

    name: str
    relation: tuple[str, ...]
    """Names by which others call it, from the widest to the narrowest."""
    query: exp.Expr | None
    """Query of the model; None where its SQL is not known."""
    dialect: str = ""
    kind: str = "view"
    file: str = ""
    problem: str = ""
    """Reason why its SQL is not known."""
    depends: tuple[tuple[str, ...], ...] = ()
    """The relations that it is said to read."""
