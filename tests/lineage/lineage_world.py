"""A small lake with one edit of each kind, each of a change of its own."""

from __future__ import annotations

from instep.lineage.assess import ModelVerdict, assess
from instep.lineage.model import Model
from instep.lineage.parse import parse, target
from instep.lineage.shape import Kind, ModelEdit, ModelField, ModelRelation, RelationShape


def field(name: str, *edits: ModelEdit) -> ModelField:
    return ModelField(name, edits)


def edit(kind: Kind, text: str, change: str = "") -> ModelEdit:
    """An edit whose change is called like its kind."""
    return ModelEdit(change or kind, kind, text)


CUSTOMER = ModelRelation(
    ("shop", "customer"),
    RelationShape(
        (
            field("id"),
            field("name"),
            field("city", edit("gone", "city is dropped")),
            field("phone", edit("renamed", "phone is renamed to mobile")),
            field("fax", edit("stale", "fax gets no new values")),
            ModelField("mobile", (edit("renamed", "mobile is the new name of phone"),), coming=True),
        )
    ),
)
ORDER = ModelRelation(
    ("shop", "order"),
    RelationShape(
        (
            field("id"),
            field("customer_id"),
            field("amount", edit("retyped", "amount becomes string")),
            field("mobile"),
            field("note"),
            ModelField("vip", (edit("added", "vip is added"),), coming=True),
        )
    ),
)
CALM = ModelRelation(("shop", "country"), RelationShape((field("id"), field("vip"), field("address"), field("Mixed"))))
OLD = ModelRelation(
    ("shop", "old"), RelationShape((field("id"),), edits=(edit("gone", "shop.old is dropped", "table"),))
)
LEFT = ModelRelation(
    ("shop", "left"), RelationShape((field("id"),), edits=(edit("stale", "shop.left gets no rows", "left"),))
)
LAKE = (CUSTOMER, ORDER, CALM, OLD, LEFT)


def model(name: str, sql: str, dialect: str = "spark") -> Model:
    [statement] = parse(sql, dialect)
    return Model(name, target(statement) or tuple(name.split(".")), statement, dialect)


def judged(*models: Model, lake: tuple[ModelRelation, ...] = LAKE) -> dict[str, ModelVerdict]:
    """Verdicts by the name of the model."""
    return {v.model.name: v for v in assess(models, lake)}


def verdict(sql: str, dialect: str = "spark") -> ModelVerdict:
    return judged(model("m", sql, dialect))["m"]
