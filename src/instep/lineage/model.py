"""One reader of the destination: a view, a dbt model or what stands after them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True)
class Model:
    """A downstream model or view."""

    name: str
    relation: tuple[str, ...]
    """What others call it by, from the widest to the narrowest name."""
    query: exp.Expr | None
    """None where its SQL is not known."""
    dialect: str = ""
    kind: str = "view"
    file: str = ""
    problem: str = ""
    """Says why."""
    depends: tuple[tuple[str, ...], ...] = ()
    """The relations that it is said to read."""
