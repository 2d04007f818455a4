"""Values that have no place in the table yet, as JSON: nothing that a reader may round is a number."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_world import arrow, batch, column, spec_of

from instep.errors import StageError
from instep.schema.catalog.types import parse
from instep.stage.casts.cast import cast
from instep.stage.conform import conform
from instep.stage.overflow import SAFE, extra_json, is_hash, text_of
from instep.stage.spec import SystemColumns

HEX = "0f" * 32
CASES: list[tuple[str, str, Any, str]] = [
    ("true", "boolean", True, "true"),
    ("a small integer", "int32", -7, "-7"),
    ("the last safe integer", "int64", SAFE, str(SAFE)),
    ("beyond it", "int64", -SAFE - 1, f'"{-SAFE - 1}"'),
    ("a decimal", "decimal(10,2)", Decimal("1.50"), '"1.50"'),
    ("a float", "float64", 0.1, "0.1"),
    ("a short float", "float32", 0.1, "0.1"),
    ("no number", "float64", float("nan"), '"NaN"'),
    ("minus infinity", "float32", float("-inf"), '"-Infinity"'),
    ("text", "string", 'a "b"\n', '"a \\"b\\"\\n"'),
    ("bytes", "binary", b"\x00\xff", '"\\\\x00ff"'),
    ("an object", "json", '{"a": [1, 2.5, null]}', '{"a":[1,2.5,null]}'),
    ("a document that is text", "json", '"5"', '"\\"5\\""'),
    ("a document with a number too long", "json", "[12345678901234567890]", '"[12345678901234567890]"'),
    ("a document with too many digits", "json", "[0.12345678901234567890]", '"[0.12345678901234567890]"'),
    ("a name twice", "json", '{"a":1,"a":2}', '"{\\"a\\":1,\\"a\\":2}"'),
    ("not a document", "json", "{", '"{"'),
    ("an array", "array(int32)", [1, None], "[1,null]"),
    ("a document like a hash", "json", f'{{"sha256": "{HEX}"}}', f'"{{\\"sha256\\": \\"{HEX}\\"}}"'),
    ("a document with more than that", "json", f'{{"sha256":"{HEX}","a":1}}', f'{{"sha256":"{HEX}","a":1}}'),
    ("a document with another digest", "json", '{"sha256":"a1"}', '{"sha256":"a1"}'),
]


@pytest.mark.parametrize(("kind", "value", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_value_as_json(kind: str, value: Any, expected: str) -> None:
    [text] = extra_json([(column("c", kind), pa.array([value], arrow(parse(kind))))], 1).to_pylist()
    assert text == f'{{"c":{expected}}}'
    json.loads(text)


ODD = [
    ("a number column with text", "int64", ["1", "x", None], ['{"c":1}', '{"c":"x"}', None]),
    ("a boolean as text", "boolean", ["t", "0", "maybe"], ['{"c":true}', '{"c":false}', '{"c":"maybe"}']),
    ("a short float as text", "float32", ["1.5", "{}"], ['{"c":1.5}', '{"c":"{}"}']),
]


@pytest.mark.parametrize(("kind", "values", "expected"), [c[1:] for c in ODD], ids=[c[0] for c in ODD])
def test_what_is_not_of_its_type_is_text(kind: str, values: list[str | None], expected: list[str | None]) -> None:
    assert extra_json([(column("c", kind, "string"), pa.array(values))], len(values)).to_pylist() == expected


def test_one_object_a_row_by_source_name() -> None:
    columns = [(column("x", "int32", path='a"b'), pa.array([1, None])), (column("y", "string"), pa.array(["é", None]))]
    assert extra_json(columns, 2).to_pylist() == ['{"a\\"b":1,"y":"é"}', None]


def test_text_that_is_no_text_is_hex() -> None:
    broken = pa.array([b"\xff"]).view(pa.string())
    assert extra_json([(column("c", "string"), broken)], 1).to_pylist() == ['{"c":"\\\\xff"}']


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", HEX),
        ("binary", bytes.fromhex(HEX)),
        ("json", f'"{HEX}"'),
        ("json", f'{{"sha256":"{HEX}"}}'),
        ("json", f'{{ "sha256" : "{HEX}" }}'),
        ("json", f'{{"sha256":"{HEX}","sha256":"{HEX}"}}'),
        ("string", f'{{"sha256":"{HEX}"}}'),
        ("array(string)", [HEX]),
    ],
)
def test_no_value_in_clear_is_taken_for_a_hash(kind: str, value: Any) -> None:
    """Whatever it looks like; a hash is known as one, and its text is that of hashed columns."""
    values = pa.array([value], arrow(parse(kind)))
    [clear] = extra_json([(column("c", kind), values)], 1).to_pylist()
    assert not is_hash(json.loads(clear)["c"])
    [text] = extra_json([(column("c", kind, hashed=True), pa.array([HEX]))], 1).to_pylist()
    member = json.loads(text)["c"]
    assert (is_hash(member), text_of(member)) == (True, HEX)


KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "float32": st.floats(width=32, allow_nan=False),
    "decimal(38,9)": st.decimals(-(10**28), 10**28, places=9),
    "boolean": st.booleans(),
    "string": st.text(),
}


@given(st.data(), st.sampled_from(sorted(KINDS)))
def test_what_is_taken_out_is_what_was_put_in(data: st.DataObject, kind: str) -> None:
    value = data.draw(KINDS[kind])
    target = arrow(parse(kind))
    values = pa.array([value], target)
    [text] = extra_json([(column("c", kind), values)], 1).to_pylist()
    back = pa.array([text_of(json.loads(text)["c"])], pa.string())
    assert cast(back, parse("string"), target, parse(kind)).values.to_pylist() == values.to_pylist()


def spec(**more: Any) -> Any:
    columns = [column("id", "int32", key=1)]
    fields = [pa.field("id", pa.int32(), nullable=False), pa.field("_extra", pa.large_string())]
    return spec_of(columns, system=SystemColumns(extra="_extra"), schema=pa.schema(fields), **more)


def test_conform_puts_extra_columns_into_their_own() -> None:
    held = (column("a", "string"), column("b", "string", hashed=True))
    out = conform(batch(id=[1, 2], a=["x", None], b=["secret", None]), spec(extra=held, salt=b"s")).batch
    [first, second] = out.column("_extra").to_pylist()
    told = json.loads(first)
    assert (told["a"], len(told["b"]["sha256"]), second) == ("x", 64, None)
    assert "secret" not in first


def test_nothing_is_held() -> None:
    assert conform(batch(id=[1]), spec()).batch.to_pylist() == [{"id": 1, "_extra": None}]


REFUSED = [
    ("a column is missing", {"extra": (column("a", "string"),)}, "2 columns were read, the source returned 1"),
    ("no salt", {"extra": (column("a", "string", hashed=True),)}, "column a is to be hashed"),
]


@pytest.mark.parametrize(("more", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_refused(more: dict[str, Any], why: str) -> None:
    with pytest.raises(StageError, match=why):
        conform(batch(id=[1]), spec(**more))
