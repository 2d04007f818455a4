"""Secrets in texts: whatever form a program repeats one in, it is blotted out."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import product
from urllib.parse import quote, quote_plus

import duckdb
import pyarrow as pa
import pytest

from instep.errors import DestinationError, ReadError
from instep.redaction import HIDDEN, Redactor, cut, error_line, hide, is_plain, without_value
from instep.store.store import Store
from instep.store.work.runs import Runs

SECRETS = (
    "c4n4ry/V3ry+S3cret=?&x",
    "p\"q'u\\o<t>e & mehr ü€",
    "hunter2",
    "pass",
    "x" * 30 + "/" + "y" * 70,
    "-----BEGIN KEY-----\nMIIabcdefgh+/ijkl\nAb==\n-----END KEY-----\n",
)
FORMS = {
    "plain": str,
    "json": json.dumps,
    "json, not ASCII": lambda s: json.dumps(s, ensure_ascii=False),
    "json in json": lambda s: json.dumps({"body": json.dumps({"k": s})}),
    "json of PHP": lambda s: json.dumps(s).replace("/", "\\/"),
    "repr": repr,
    "dict": lambda s: repr({"k": s, "other": "it's"}),
    "html": html.escape,
    "quote": quote,
    "quote all": lambda s: f"https://h/x?api_kee={quote(s, safe='')}&b=1",
    "quote_plus": lambda s: f"q={quote_plus(s)}",
    "lower-case hex": lambda s: re.sub("%..", lambda m: m[0].lower(), quote(s, safe="")),
    "concatenated": lambda s: f"token{s}tail",
    "bytes": lambda s: repr(s.encode()) if s.isascii() else s,
}


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_form_of_a_secret_is_left(form, secret: str) -> None:  # type: ignore[no-untyped-def]
    cleaned = Redactor(secret).clean(f"before {form(secret)} after")
    assert HIDDEN in cleaned
    assert form(secret) not in cleaned
    assert secret not in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" after")


@pytest.mark.parametrize("secret", SECRETS)
def test_a_text_that_was_cut_within_a_secret_has_no_half_of_it(secret: str) -> None:
    redactor = Redactor(secret, "another one")
    for form in (*redactor._forms, *redactor._encoded):
        for most in range(4, len(form) + 1):
            half = cut(f"~{form}", most + 1) if most < len(form) else f"~{form}…"
            assert redactor.clean(f"{half}, {half}") == f"~{HIDDEN}…, ~{HIDDEN}…", (form, most)
    assert redactor.clean(cut("before long", 9)) == "before lo…"


@pytest.mark.parametrize("secret", SECRETS)
def test_base64_at_every_alignment(secret: str) -> None:
    redactor = Redactor(secret)
    alphabets = (base64.b64encode, base64.urlsafe_b64encode)
    for before, after, encode, padding in product(
        ("", "u", "us", "use", "user:"), ("", ":", ":x"), alphabets, ("", "=")
    ):
        raw, own = f"{before}{secret}{after}".encode(), secret.encode()
        text = encode(raw).decode().rstrip("" if padding else "=")
        cleaned = redactor.clean(f"sent {text}")
        begin = len(before.encode())
        inner = text[-(-begin * 8 // 6) : (begin + len(own)) * 8 // 6]
        assert HIDDEN in cleaned, (before, after)
        assert inner not in cleaned
        assert inner[1:-1] not in cleaned


def test_base64_in_lines_and_in_addresses() -> None:
    secret = "0123456789abcdef" * 16
    cleaned = Redactor(secret).clean(base64.encodebytes(secret.encode()).decode())
    assert not any(len(line) > 12 for line in cleaned.replace(HIDDEN, " ").split())
    odd = "\xfb\xff\xfe-secret-value"
    address = quote(base64.b64encode(odd.encode()).decode(), safe="")
    assert address not in Redactor(odd).clean(f"?auth={address}")


def test_lines_of_a_secret_and_texts_that_were_cut_off() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nkQ==\n-----END PRIVATE KEY-----"
    redactor = Redactor(key, "abcdefghijklmnopqrstuvwxyz012345")
    for line in key.splitlines():
        assert line not in redactor.clean(f"| {line} |")
    assert key.replace("\n", "\\n") not in redactor.clean(key.replace("\n", "\\n"))
    assert key.replace("\n", " ") not in redactor.clean(f"one line {key.replace(chr(10), ' ')}")
    assert redactor.clean("a value 'abcdefghijklmnopqr... is none") == f"a value '{HIDDEN}... is none"
    assert redactor.clean("abcdefghijk is no secret") == "abcdefghijk is no secret"


@pytest.mark.parametrize("line", ["{}", "  {}", "'{}'", "\u2502 {} \u2502", '"{}",'])
@pytest.mark.parametrize("width", [24, 40, 79])
def test_a_secret_that_was_broken_into_lines_is_on_none_of_them(line: str, width: int) -> None:
    """Whether the lines are cleaned together or one by one, as those of a program are."""
    secret = base64.b64encode(bytes(range(150))).decode().rstrip("=")
    redactor = Redactor(secret)
    text = f"token {secret}, and more"
    lines = [line.format(text[at : at + width]) for at in range(0, len(text), width)]
    for shown in (redactor.clean("\n".join(lines)), "\n".join(map(redactor.clean, lines))):
        left = [secret[at : at + 12] for at in range(len(secret) - 11) if secret[at : at + 12] in shown]
        assert left == [], shown
        assert "token" in shown
        assert "more" in shown
    assert (
        redactor.clean("a line of its own\nand-a-long-word-of-another")
        == "a line of its own\nand-a-long-word-of-another"
    )


def test_parts_of_a_secret_are_secrets() -> None:
    account = json.dumps({"type": "service", "private_key": "line-1-of-key\nline-2-of-key", "client_secret": "s3-cr3t"})
    redactor = Redactor(account, "postgresql://bob:p%40ssw0rd@db/shop?sslpassword=k3yp4ss")
    for part in ("line-1-of-key\nline-2-of-key", "line-2-of-key", "s3-cr3t", "p@ssw0rd", "p%40ssw0rd", "k3yp4ss"):
        assert part not in redactor.clean(f"it says {part}!"), part
    assert redactor.clean("type service of bob in shop") == "type service of bob in shop"


def test_short_values_are_left_since_they_stand_in_every_word() -> None:
    assert Redactor("", "a", "ab", "abc").clean("abc drab cab") == "abc drab cab"
    assert Redactor("abcd").clean("x=abcd") == f"x={HIDDEN}"


@pytest.mark.parametrize(
    "value", ["true", "2026-01-31", "2026-01-31T00:00:00Z", "100000", "orders", "https://api.example.com/v2/orders",
              "api.example.com:8443"],
)  # fmt: skip
def test_plain_values(value: str) -> None:
    assert is_plain(value)


@pytest.mark.parametrize(
    "value", ["hunter2-x", "sk_live_abcdefgh", "AKIA0123456789ABCDEF", "https://u:p@h/x", "https://h/x?k=1",
              "https://hooks.example.com/T00/B0A1c2D3e4F5", "1234567890123456", "correct-horse-battery"],
)  # fmt: skip
def test_values_that_may_be_a_secret(value: str) -> None:
    assert not is_plain(value)


def test_errors_never_have_a_known_secret_nor_does_the_store(tmp_path) -> None:  # type: ignore[no-untyped-def]
    hide("c4n4ry V3ry")
    error = ReadError("refused: ?key=c4n4ry+V3ry", hint="look at c4n4ry%20V3ry")
    assert (error.message, error.hint) == (f"refused: ?key={HIDDEN}", f"look at {HIDDEN}")
    with Store(f"sqlite:///{tmp_path}/s.db") as store:
        runs: Runs = store.runs
        run = runs.claim("shop", "sync")
        runs.finish(run, "failed", "OSError: c4n4ry V3ry")
        assert runs.get(run.id).error == f"OSError: {HIDDEN}"


@pytest.mark.parametrize("show", [
    lambda v: repr(v.encode()), ascii, lambda v: v.encode("ascii", "backslashreplace").decode(),
    lambda v: v.encode().decode("latin-1"), lambda v: json.dumps(v).replace("\u00e4", "\u00E4"),
    lambda v: v.encode().hex(), lambda v: v.encode().hex().upper(), lambda v: v.encode().hex(" "),
])  # fmt: skip
def test_bytes_and_texts_of_another_encoding(show: Callable[[str], str]) -> None:
    secret = "p\u00e4ssw\u00e4rd-geheim9"
    said = Redactor(secret).clean(f"login failed: {show(secret)}!")
    assert "geheim" not in said
    assert "67656865696d" not in said.lower().replace(" ", "")
    assert HIDDEN in said


VALUE = "alice@example.org"
AMOUNT = 987_654_321
STATEMENTS = [
    f"SELECT CAST('{VALUE}' AS INTEGER)",
    f"SELECT CAST('{VALUE}' AS DATE)",
    f"SELECT CAST({AMOUNT} AS TINYINT)",
    f"SELECT CAST({AMOUNT} AS DECIMAL(4, 1))",
    f"SELECT CAST({AMOUNT} AS INTEGER) * CAST(1000 AS INTEGER)",
    f"SELECT json_extract('{VALUE}', '$.a')",
    f"SELECT strptime('{VALUE}', '%Y')",
    "INSERT INTO t SELECT a FROM t",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_error_of_duckdb_about_a_value_does_not_tell_it(statement: str) -> None:
    with duckdb.connect() as db:
        db.execute("CREATE TABLE t (a VARCHAR UNIQUE)").execute("INSERT INTO t VALUES (?)", [VALUE])
        with pytest.raises(duckdb.Error) as told:
            db.execute(statement).fetchall()
    assert VALUE in str(told.value) or str(AMOUNT) in str(told.value)
    line = error_line(told.value)
    assert (VALUE in line, str(AMOUNT) in line, "Error: " in line) == (False, False, True), line


def test_an_error_of_another_library_about_a_value_does_not_tell_it() -> None:
    for fails in (
        lambda: pa.array([VALUE]).cast(pa.int64()),
        lambda: int(VALUE),
        lambda: float(VALUE),
        lambda: datetime.fromisoformat(VALUE),
        lambda: pa.scalar(AMOUNT).cast(pa.int8()),
    ):
        with pytest.raises(ValueError, match=f"{VALUE}|{AMOUNT}") as told:
            fails()
        line = error_line(told.value)
        assert (VALUE in line, str(AMOUNT) in line) == (False, False), line


@pytest.mark.parametrize(
    ("raised", "line"),
    [
        (DestinationError("file 'a.bin' cannot be read: checksum"), "file 'a.bin' cannot be read: checksum"),
        (DestinationError("file 'a.bin' is gone", hint="restore it"), "file 'a.bin' is gone"),
        (pa.ArrowInvalid(f"Failed to parse string: '{VALUE}'"), f"Failed to parse string: {HIDDEN}"),
    ],
    ids=["ours", "ours with a hint", "of a library"],
)
def test_of_a_stream_that_duckdb_reads_the_error_is_its_own(raised: Exception, line: str) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([1])], ["a"])
        raise raised

    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), rows())
    with duckdb.connect() as db:
        db.register("stream", reader)
        with pytest.raises(duckdb.Error) as told:
            db.sql("SELECT sum(a) FROM stream").fetchall()
    assert error_line(told.value).removeprefix("Invalid: ") == line


# what servers and drivers say of a value
SAID = [
    ('invalid input syntax for type integer: "a"b"', "invalid input syntax for type integer: "),
    ('invalid input value for enum mood: "x', "invalid input value for enum mood: "),
    ('value "99" is out of range for type integer', "value "),
    ("ung\u00fcltige Eingabesyntax: \u201ex\u201c", "ung\u00fcltige Eingabesyntax: "),
    ("Truncated incorrect INTEGER value: 'x'", "Truncated incorrect INTEGER value: "),
    ("Conversion failed when converting the varchar value 'x' to data type int.",
     "Conversion failed when converting the varchar value "),
    ("value too long for type character varying(5)", "value too long for type character varying(5)"),
    ("division by zero", "division by zero"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "left"), SAID)
def test_what_is_left_of_an_error_about_a_value(said: str, left: str) -> None:
    assert without_value(said) == left + (HIDDEN if left != said else "")


def test_an_error_that_is_about_no_value_is_told_whole() -> None:
    with duckdb.connect() as db, pytest.raises(duckdb.Error) as told:
        db.execute('SELECT "strange" FROM nothing')
    assert "nothing" in error_line(told.value)
    assert error_line(KeyError("column")) == "'column'"
    assert error_line(OSError()) == "OSError"
