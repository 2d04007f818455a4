"""A small lake with one edit of each kind, each of a change of its own."""

from __future__ import annotations

from instep.lineage.assess import Verdict, assess
from instep.lineage.model import Model
from instep.lineage.parse import parse, target
from instep.lineage.shape import Edit, Field, Kind, Relation, Shape


def field(name: str, *edits: Edit) -> Field:
    return Field(name, edits)


def edit(kind: Kind, text: str, change: str = "") -> Edit:
    """An edit whose change is called like its kind."""
    return Edit(change or kind, kind, text)


CUSTOMER = Relation(
    ("shop", "customer"),
    Shape(
        (
            field("id"),
            field("name"),
            field("city", edit("gone", "city is dropped")),
            field("phone", edit("renamed", "phone is renamed to mobile")),
            field("fax", edit("stale", "fax gets no new values")),
            Field("mobile", (edit("renamed", "mobile is the new name of phone"),), coming=True),
        )
    ),
)
ORDER = Relation(
    ("shop", "order"),
    Shape(
        (
            field("id"),
            field("customer_id"),
            field("amount", edit("retyped", "amount becomes string")),
            field("mobile"),
            field("note"),
            Field("vip", (edit("added", "vip is added"),), coming=True),
        )
    ),
)
CALM = Relation(("shop", "country"), Shape((field("id"), field("vip"), field("address"), field("Mixed"))))
OLD = Relation(("shop", "old"), Shape((field("id"),), edits=(edit("gone", "shop.old is dropped", "table"),)))
LEFT = Relation(("shop", "left"), Shape((field("id"),), edits=(edit("stale", "shop.left gets no rows", "left"),)))
LAKE = (CUSTOMER, ORDER, CALM, OLD, LEFT)


def model(name: str, sql: str, dialect: str = "spark") -> Model:
    [statement] = parse(sql, dialect)
    return Model(name, target(statement) or tuple(name.split(".")), statement, dialect)


def judged(*models: Model, lake: tuple[Relation, ...] = LAKE) -> dict[str, Verdict]:
    """Verdicts by the name of the model."""
    return {v.model.name: v for v in assess(models, lake)}


def verdict(sql: str, dialect: str = "spark") -> Verdict:
    return judged(model("m", sql, dialect))["m"]
