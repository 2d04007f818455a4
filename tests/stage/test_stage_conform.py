"""Batches become the table's own schema; what does not fit is held, counted and never shown when hashed."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from stage_world import KEYLESS, SYSTEM, UTC, batch, column, spec_of, with_ids

from instep.errors import StageError
from instep.stage.conform import Conformed, Conformer, QuarantinedValue, check_spec, conform, hashed, shape
from instep.stage.spec import StageSpec, SystemColumns

ID = column("id", "int64", key=1, path="Id")
NAME = column("name", "string")
AMOUNT = column("amount", "decimal(6,2)", "decimal(6,2)", path="Amount")


def amounts(*texts: str | None) -> pa.RecordBatch:
    return batch(id=list(range(1, len(texts) + 1)), amount=list(texts))


def only(done: Conformed) -> QuarantinedValue:
    assert len(done.quarantined) == 1
    return done.quarantined[0]


def test_the_batch_has_exactly_the_tables_schema() -> None:
    spec = spec_of([ID, NAME, column("gone", "date", None)], system=SYSTEM)
    done = conform(batch(a=pa.array([1], pa.int32()), b=["x"]), spec)
    assert done.batch.schema.equals(spec.schema, check_metadata=True)
    assert done.batch.to_pylist() == [
        {"id": 1, "name": "x", "gone": None, "_synced": dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "_deleted": False,
         "_meta": None},
    ]  # fmt: skip
    assert (done.quarantined, done.invalid_values, done.rejected) == ((), 0, 0)


def test_columns_come_by_position_and_go_by_name() -> None:
    spec = spec_of([NAME, ID])
    spec = replace(spec, schema=pa.schema(with_ids([spec.schema.field("id"), spec.schema.field("name")])))
    assert conform(batch(x=["n"], y=[5]), spec).batch.to_pylist() == [{"id": 5, "name": "n"}]


def test_a_retained_column_of_the_table_is_null() -> None:
    spec = spec_of([ID])
    spec = replace(spec, schema=spec.schema.append(pa.field("old", pa.int32())))
    assert conform(batch(a=[1]), spec).batch.to_pylist() == [{"id": 1, "old": None}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: replace(s, columns=(*s.columns, column("extra", "int32"))),
            "column extra is not in the destination",
        ),
        (lambda s: replace(s, columns=s.columns[1:]), "column id is required by the destination and has no source"),
        (
            lambda s: replace(s, columns=(ID, replace(NAME, hashed=True))),
            "column name is to be hashed and the connection",
        ),
        (lambda s: replace(s, columns=(ID, NAME, NAME)), "column name is listed twice"),
        (lambda s: replace(s, system=SystemColumns(meta="_meta")), "column _meta is not in the destination table"),
    ],
)
def test_a_spec_that_does_not_match_its_table_is_refused(change: Any, message: str) -> None:
    spec: StageSpec = change(spec_of([ID, NAME]))
    with pytest.raises(StageError, match=message):
        check_spec(spec)


class CountedName(str):
    """A name that counts how often it is put into a set or looked up."""

    __slots__ = ()
    hashed = 0

    def __hash__(self) -> int:
        CountedName.hashed += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


def test_the_check_of_a_wide_table_takes_its_columns_a_few_times_each() -> None:
    took = {}
    for width in (50, 500):
        spec = spec_of([column(CountedName(f"c{n}"), "int64") for n in range(width)])
        CountedName.hashed = 0
        check_spec(spec)
        took[width] = CountedName.hashed
    assert took[50]
    assert took[500] <= 11 * took[50]


def test_another_number_of_columns_than_read_is_refused() -> None:
    with pytest.raises(StageError, match=r"public\.things: 2 columns were read, the source returned 1"):
        conform(batch(a=[1]), spec_of([ID, NAME]))


class TestInvalidValues:
    def test_quarantine_holds_the_value_and_the_row_lands(self) -> None:
        done = conform(amounts("1.00", "1.005", None), spec_of([ID, AMOUNT], system=SYSTEM))
        assert [r["amount"] for r in done.batch.to_pylist()] == [
            pa.scalar("1.00").cast(pa.decimal128(6, 2)).as_py(),
            None,
            None,
        ]
        assert only(done) == QuarantinedValue('{"Id":"2"}', "Amount", "1.005", "more than 2 digits after the point")
        assert (done.invalid_values, done.rejected) == (1, 0)
        notes = [r["_meta"] for r in done.batch.to_pylist()]
        change = {"field": "amount", "change": "nulled", "reason": "more than 2 digits after the point"}
        assert [notes[0], notes[2]] == [None, None]
        assert json.loads(notes[1]) == {"changes": [change]}

    def test_null_records_the_same(self) -> None:
        done = conform(amounts("x"), spec_of([ID, AMOUNT], system=SYSTEM, on_invalid_value="null"))
        assert only(done).original == "x"
        assert done.batch.to_pylist()[0]["_meta"]

    def test_two_in_one_row(self) -> None:
        other = column("day", "date", "string")
        done = conform(batch(id=[7], amount=["x"], day=["never"]), spec_of([ID, AMOUNT, other], system=SYSTEM))
        assert [h.column for h in done.quarantined] == ["Amount", "day"]
        assert len(json.loads(done.batch.to_pylist()[0]["_meta"])["changes"]) == 2
        assert done.invalid_values == 2

    def test_without_a_meta_column_the_value_is_still_held(self) -> None:
        assert only(conform(amounts("x"), spec_of([ID, AMOUNT]))).original == "x"

    def test_fail_names_table_column_key_and_shape(self) -> None:
        with pytest.raises(StageError) as caught:
            conform(amounts("1.00", "Ab-12,5\n"), spec_of([ID, AMOUNT], on_invalid_value="fail"))
        assert str(caught.value).startswith(
            'public.things, column Amount, row {"Id":"2"}: a value of the shape `aa-99,9.` (8 characters) '
            "does not fit decimal(6,2): not a number"
        )
        assert "Ab-12" not in str(caught.value)
        assert caught.value.hint

    def test_keyless_rows_are_named_by_their_id(self) -> None:
        done = conform(batch(amount=["x"]), spec_of([AMOUNT], system=KEYLESS))
        assert json.loads(only(done).key) == {"_id": done.batch.to_pylist()[0]["_id"]}

    def test_invalid_text_is_kept_as_hex(self) -> None:
        done = conform(batch(id=[1], name=pa.array([b"\xff"]).view(pa.string())), spec_of([ID, NAME]))
        assert only(done) == QuarantinedValue('{"Id":"1"}', "name", "\\xff", "not valid UTF-8")

    def test_lossy_casts_are_counted_by_column_and_reason(self) -> None:
        at = column("at", "timestamptz", "timestamp")
        done = conform(batch(id=[1, 2], at=pa.array([0, None], pa.timestamp("us"))), spec_of([ID, at]))
        assert done.casts == {"at: time zone assumed UTC": 1}


class TestKeys:
    def test_null_in_a_key_holds_the_whole_row(self) -> None:
        done = conform(batch(id=[1, None], name=["a", "b"]), spec_of([ID, NAME], system=SYSTEM))
        assert [r["id"] for r in done.batch.to_pylist()] == [1]
        assert only(done) == QuarantinedValue('{"Id":null}', "", '{"Id":null,"name":"b"}', "NULL in the key (Id)")
        assert (done.invalid_values, done.rejected) == (0, 1)

    def test_a_key_that_does_not_fit_holds_the_row_once(self) -> None:
        key = column("id", "int64", "string", key=1, path="Id")
        done = conform(batch(id=["1", "x"], amount=["1", "y"]), spec_of([key, AMOUNT]))
        assert only(done).reason == "NULL in the key (Id: not a number)"
        assert only(done).original == '{"Id":"x","Amount":"y"}'
        assert (done.invalid_values, done.rejected, len(done.batch)) == (0, 1, 1)

    def test_a_key_of_two_columns_is_told_in_key_order(self) -> None:
        second = column("no", "int32", key=1)
        spec = spec_of([replace(ID, key=2), second, AMOUNT])
        assert only(conform(batch(id=[5], no=[6], amount=["x"]), spec)).key == '{"no":"6","Id":"5"}'

    def test_a_required_column_is_like_a_key(self) -> None:
        spec = spec_of([ID, NAME])
        spec = replace(spec, schema=pa.schema([f.with_nullable(False) for f in spec.schema]))
        done = conform(batch(id=[1], name=pa.array([None], pa.string())), spec)
        assert only(done).reason == "NULL in a required column (name)"

    def test_fail_stops_at_the_row(self) -> None:
        with pytest.raises(StageError, match=r'row \{"Id":null\}: NULL in the key \(Id\)'):
            conform(batch(id=pa.array([1, None])), spec_of([ID], on_invalid_value="fail"))

    def test_every_row_may_be_refused(self) -> None:
        done = conform(batch(id=pa.array([None, None], pa.int64())), spec_of([ID]))
        assert (len(done.batch), done.rejected) == (0, 2)
        assert done.batch.schema.names == ["id"]


class TestHashed:
    SECRET = column("mail", "string", hashed=True)

    def test_a_hash_is_salted_sha256_of_the_canonical_text(self) -> None:
        number = column("pin", "string", "decimal(6,2)", hashed=True)
        spec = spec_of([ID, self.SECRET, number], salt=b"salt")
        row = conform(batch(id=[1], mail=["a@b.c"], pin=["1.50"]), spec).batch.to_pylist()[0]
        assert row["mail"] == hashlib.sha256(b"salta@b.c").hexdigest()
        assert row["pin"] == hashlib.sha256(b"salt1.50").hexdigest()

    def test_null_stays_null_and_bad_text_is_hashed_as_hex(self) -> None:
        values = pa.array([None, b"\xff"]).view(pa.string())
        assert hashed(values, NAME.type, b"s").to_pylist() == [None, hashlib.sha256(b"s\\xff").hexdigest()]

    def test_the_value_is_in_no_quarantine_and_no_message(self) -> None:
        key = column("mail", "string", hashed=True, key=1)
        spec = spec_of([key, AMOUNT, NAME], salt=b"salt")
        rows = batch(mail=["a@b.c", None], amount=["x", "1"], name=["n", "m"])
        done = conform(rows, spec)
        digest = hashlib.sha256(b"salta@b.c").hexdigest()
        assert [h.key for h in done.quarantined] == ['{"mail":null}', f'{{"mail":"{digest}"}}']
        assert "a@b.c" not in repr(done.quarantined)
        with pytest.raises(StageError) as caught:
            conform(rows.slice(0, 1), replace(spec, on_invalid_value="fail"))
        assert "a@b.c" not in str(caught.value)
        assert "salt" not in repr(spec)

    def test_a_refused_row_shows_hashes(self) -> None:
        spec = spec_of([ID, self.SECRET], salt=b"salt")
        done = conform(batch(id=pa.array([None], pa.int64()), mail=["a@b.c"]), spec)
        assert json.loads(only(done).original or "")["mail"] == hashlib.sha256(b"salta@b.c").hexdigest()


def test_ids_go_on_from_batch_to_batch() -> None:
    conformer = Conformer(spec_of([NAME], system=KEYLESS))
    batches = [conformer.conform(batch(name=["a", "a", "b"])).batch for _ in range(2)]
    assert len({row["_id"] for b in batches for row in b.to_pylist()}) == 6


def test_ids_are_made_of_accepted_names_and_staged_values() -> None:
    renamed = column("label", "string", path="name")
    retyped = column("name", "string", "int64")
    first = conform(batch(name=["5"]), spec_of([NAME], system=KEYLESS)).batch.to_pylist()[0]["_id"]
    assert conform(batch(x=["5"]), spec_of([renamed], system=KEYLESS)).batch.to_pylist()[0]["_id"] == first
    assert conform(batch(x=[5]), spec_of([retyped], system=KEYLESS)).batch.to_pylist()[0]["_id"] == first


def test_synced_is_the_runs_time() -> None:
    spec = replace(spec_of([ID], system=SYSTEM), synced=1_700_000_000_000_001)
    out = conform(batch(id=[1, 2]), spec).batch.column("_synced")
    assert out.type == UTC
    assert out.cast(pa.int64()).to_pylist() == [1_700_000_000_000_001] * 2


def test_an_empty_batch_is_conformed() -> None:
    done = conform(batch(id=pa.array([], pa.int64())), spec_of([ID], system=SYSTEM))
    assert len(done.batch) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc-42", "`aaa-99` (6 characters)"),
        ("", "`` (0 characters)"),
        ("ß\x07", "`a.` (2 characters)"),
        ("1" * 41, f"`{'9' * 40}…` (41 characters)"),
    ],
)
def test_shape(text: str, expected: str) -> None:
    assert shape(text) == expected
