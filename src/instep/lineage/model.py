"""One reader of the destination: a view, a dbt model or what stands after them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True)
class Model:
    """`relation` is what others call it by, from the widest to the narrowest name. `query` is None where its SQL is not
    known; `problem` says why. `depends` are the relations that it is said to read."""

    name: str
    relation: tuple[str, ...]
    query: exp.Expr | None
    dialect: str = ""
    kind: str = "view"
    file: str = ""
    problem: str = ""
    depends: tuple[tuple[str, ...], ...] = ()
