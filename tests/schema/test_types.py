"""The text form of types."""

from __future__ import annotations

import pytest
from hypothesis import given
from strategies import TEXT, structs, types

from instep.errors import SchemaError
from instep.schema.catalog.types import Array, DataType, Decimal, Field, Int, String, Struct, parse

FORMS = [
    ("int64", Int(64)),
    ("decimal(12,2)", Decimal(12, 2)),
    ("decimal(38,38)", Decimal(38, 38)),
    ("string(200)", String(200)),
    ("array(array(int32))", Array(Array(Int(32)))),
    ("struct()", Struct(())),
    ('struct("a" int32, "b c" string)', Struct((Field("a", Int(32)), Field("b c", String())))),
    ('struct("say ""hi""" array(int8))', Struct((Field('say "hi"', Array(Int(8))),))),
]


@pytest.mark.parametrize(("text", "kind"), FORMS)
def test_a_type_has_one_text_form(text: str, kind: DataType) -> None:
    assert parse(text) == kind
    assert str(kind) == text


@given(types())
def test_the_text_form_parses_back(kind: DataType) -> None:
    assert parse(str(kind)) == kind


@given(structs(types(), names=TEXT))
def test_struct_fields_may_have_any_name(kind: Struct) -> None:
    assert parse(str(kind)) == kind


WRONG = [
    ("", "unknown type"),
    ("int", "unknown type"),
    ("int64 ", "unknown type"),
    ("int128", "unknown type"),
    ("decimal(39,0)", "out of range"),
    ("decimal(0,0)", "out of range"),
    ("decimal(5,6)", "out of range"),
    ("array(int64", "expected ')'"),
    ("array()", "unknown type"),
    ("struct(a int32)", "quoted name"),
    ('struct("a" int32', "expected ', '"),
    ('struct("a" int32,"b" int32)', "expected ', '"),
    ("string(-1)", "unknown type"),
]


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_a_text_that_is_no_type_is_refused(text: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why.replace("(", r"\(").replace(")", r"\)")):
        parse(text)
