"""Data contract files: the Open Data Contract Standard, version 3, in YAML or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from instep.errors import ProjectError, SchemaError
from instep.project.load import text_of
from instep.project.text import tree as yaml_tree
from instep.project.text.problems import problems_of, raise_all
from instep.schema.catalog.types import DataType, parse
from instep.schema.contracts.compliance import ContractColumn, ContractTable
from instep.schema.contracts.contract import CURSOR, HASHED, MODE, RETAINED, TYPE

HINT = "correct the file and run the command again"
_FORM = "a contract has apiVersion: v3..., kind: DataContract and a schema: https://bitol.io"


class _ContractPart(BaseModel):
    """Base of the contract's parts: unknown keys are ignored, because a contract has many others."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class Custom(_ContractPart):
    property: str
    value: Any = None


class Element(_ContractPart):
    name: str = Field(min_length=1)
    custom: list[Custom] = Field(default_factory=list, alias="customProperties")

    def custom_value(self, name: str) -> Any:
        return next((c.value for c in self.custom if c.property == name), None)


class Property(Element):
    logical: str = Field("", alias="logicalType")
    options: dict[str, Any] = Field(default_factory=dict, alias="logicalTypeOptions")
    required: bool = False
    in_key: bool = Field(False, alias="primaryKey")
    key_position: int = Field(-1, alias="primaryKeyPosition")


class Object(Element):
    physical: str = Field("", alias="physicalName")
    properties: list[Property] = Field(default_factory=list)


class Contract(_ContractPart):
    api: str = Field(alias="apiVersion", pattern=r"^v3\.")
    kind: str = Field("DataContract", pattern="^DataContract$")
    id: str
    version: str
    objects: list[Object] = Field(alias="schema", min_length=1)


def contract_text(document: Mapping[str, Any]) -> str:
    """Return the file's text, in the document's order."""
    return yaml_tree.dump(document)


def read_contract(file: Path) -> tuple[ContractTable, ...]:
    """Return the tables of a contract. ProjectError, with lines, if it is none."""
    text = text_of(file, "write one with `instep contract export -o FILE`")
    tree = yaml_tree.parse(text.expandtabs() if file.suffix == ".json" else text)
    raise_all(file.name, tree.problems, HINT)
    if not isinstance(tree.data, dict):
        raise ProjectError(f"{file.name} is not a data contract", hint=_FORM)
    try:
        contract = Contract.model_validate(tree.data)
    except ValidationError as error:
        raise_all(file.name, problems_of(error, tree, {}), _FORM)
        raise
    problems: list[tuple[int, str]] = []
    tables = tuple(_table(o, tree, at, problems) for at, o in enumerate(contract.objects))
    raise_all(file.name, problems, HINT)
    return tables


def _table(table: Object, tree: yaml_tree.Tree, at: int, problems: list[tuple[int, str]]) -> ContractTable:
    place = ("schema", at, "properties")
    columns = (_column(p, tree.line((*place, n)), problems) for n, p in enumerate(_keyed(table.properties)))
    return ContractTable(
        names=tuple(dict.fromkeys(filter(None, (table.physical, table.name)))),
        columns=tuple(columns),
        cursor=str(table.custom_value(CURSOR) or ""),
        mode=str(table.custom_value(MODE) or ""),
        retained=bool(table.custom_value(RETAINED)),
        line=tree.line(("schema", at)),
    )


def _keyed(properties: Sequence[Property]) -> Sequence[Property]:
    """Return every column of the key with a position: they stand in their order where the contract gives none."""
    place = 0
    for column in properties:
        if column.in_key:
            place += 1
            column.key_position = column.key_position if column.key_position > 0 else place
    return properties


def _column(prop: Property, line: int, problems: list[tuple[int, str]]) -> ContractColumn:
    kind: DataType | None = None
    if text := prop.custom_value(TYPE):
        try:
            kind = parse(str(text))
        except SchemaError as error:
            problems.append((line, f"{prop.name}: {error.message}"))
    return ContractColumn(
        name=prop.name,
        logical=prop.logical,
        options=prop.options,
        type=kind,
        required=prop.required,
        key=prop.key_position if prop.in_key else 0,
        hashed=bool(prop.custom_value(HASHED)),
        retained=bool(prop.custom_value(RETAINED)),
        line=line,
    )
