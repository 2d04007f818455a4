"""What looks personal and what does not: names, values, thresholds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import SchemaError
from instep.schema.selection.pii import NAMES, VALUES, Protect, by_name, is_card, is_iban, words
from instep.schema.selection.selection import patterns

WORDS = [
    ("customer_email", "customer email"),
    ("customerEmail", "customer email"),
    ("CustomerEMail", "customer e mail"),
    ("Customer E-Mail", "customer e mail"),
    ("EMAIL", "email"),
    ("phone2", "phone"),
    ("IPAddress", "ip address"),
    ("IPv4Address", "ipv address"),
    ("straße", "strasse"),
    ("prénom", "prenom"),
    ("Führerschein", "fuhrerschein"),
    ("", ""),
    ("__", ""),
    ("42", ""),
]


@pytest.mark.parametrize(("name", "expected"), WORDS)
def test_words_of_a_name(name: str, expected: str) -> None:
    assert " ".join(words(name)) == expected


PERSONAL = {
    "email": "email email_address customer_email contactEmail EMail e-mail WorkMail billing_email_2 correo courriel",
    "phone": "phone phone_number mobile_phone homePhone tel telefon mobil fax cell_phone MSISDN whatsapp_number",
    "national id": "ssn social_security_number national_id tax_id nif dni personnummer customerSSN codice_fiscale",
    "passport": "passport passport_no passportNumber drivers_license reisepass personalausweis",
    "bank account": "iban customer_iban bank_account account_number bic kontonummer sort_code",
    "card number": "card_number creditCard credit_card_no cardholder cvv debit_card_number",
    "birth": "birth_date dateOfBirth dob birthday geburtsdatum birth_place",
    "person's name": "first_name lastName surname full_name vorname Nachname prénom apellido middle_name username",
    "address": "address street billing_address postal_code zip zip_code plz straße shippingAddress addr1",
    "network address": "ip ip_address client_ip remote_addr mac_address IPAddress ipv6",
    "location": "latitude lng gps geo_location",
    "secret": "password passwd api_key accessToken refresh_token secret_key password_hash private_key",
    "health and belief": "religion blood_type diagnosis nationality gender",
}
TRUE = [(name, kind) for kind, names in PERSONAL.items() for name in names.split()]


@pytest.mark.parametrize(("name", "kind"), TRUE)
def test_names_that_look_personal(name: str, kind: str) -> None:
    assert by_name(name) == kind


_FALSE = """
    id name title description product_name table_name file_name status created_at updated_at amount price quantity
    email_count email_sent_at is_email_verified email_template_id phone_type has_phone phone_verified address_id
    address_type address_count email_domain ip_count token_count token_expires_at password_changed_at mailing_list_id
    shipping shipment telemetry telegram_channel mobileOS_version emailable zipper zipped skipped tips recipe script
    clip equip panel japan company span panorama sinus since tinder pinned opinion shipping_method location_id
    language latest plate relate translate flat native narrative trace racer brace gendered_flag trademark
    street_count postal_code_valid last_login_at first_seen full_text family_size given_at birth_rate namespace
    card_type cards account_id account_status konto_id secretary_count tokenizer passport_required unemailed
"""
FALSE = _FALSE.split()


@pytest.mark.parametrize("name", FALSE)
def test_names_that_do_not(name: str) -> None:
    assert by_name(name) == ""


VALUE_CASES = [
    ("email", ["ann@example.org", "a.b+c@mail.example.co.uk", "o'neil@x-y.museum"]),
    ("bank account", ["GB82 WEST 1234 5698 7654 32", "DE89370400440532013000", "NO9386011117947",
                      "FR14 2004 1010 0505 0001 3M02 606"]),
    ("card number", ["4111 1111 1111 1111", "5500000000000004", "340000000000009", "6011-0000-0000-0004",
                     "30000000000004"]),
    ("phone", ["+47 22 33 44 55", "+14155552671", "+49 (30) 123456", "+44-20-7946-0958"]),
    ("national id", ["123-45-6789", "078-05-1120"]),
    ("network address", ["192.168.1.20", "8.8.8.8", "2001:db8::1", "fe80::1ff:fe23:4567:890a"]),
    ("secret", ["AKIAIOSFODNN7EXAMPLE", "-----BEGIN RSA PRIVATE KEY-----",
                "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.x", "sk_test_" + "a" * 24,
                "$2b$12$" + "a" * 53, "ghp_" + "a" * 36]),
]  # fmt: skip
EXAMPLES = [(v, kind) for kind, values in VALUE_CASES for v in values]


@pytest.mark.parametrize(("value", "kind"), EXAMPLES, ids=[v[:20] for v, _ in EXAMPLES])
def test_values_that_look_personal(value: str, kind: str) -> None:
    assert [f.kind for f in VALUES if f.test(value)] == [kind]


PLAIN = [
    "", "a", "hello world", "42", "3.14", "2026-11-21", "2026-11-21T10:00:00Z", "10:30:00", "true", "N/A", "1.2.3",
    "v1.2.3.4", "1.2.3.4.5", "300.1.1.1", "127.0.0.1", "0.0.0.0", "::1", "123456789", "123-456-789", "000-12-3456",
    "666-12-3456", "900-12-3456", "123-00-4567", "4111111111111112", "4111", "1111111111111111", "0000000000000000",
    "GB82WEST12345698765431", "XX00", "DE00370400440532013000", "+1", "+12 apples", "12345678", "@handle", "a@b",
    "user@localhost", "not an email@", "550e8400-e29b-41d4-a716-446655440000", "5e884898da28047151d0e56f8dc62927",
    "https://example.org/a?b=c", "SKU-4471-AB", "ORD-2026-000017", "#ff00aa", "{\"a\": 1}", "sk_other", "AKIA",
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN)
def test_values_that_do_not(value: str) -> None:
    assert [f.kind for f in VALUES if f.test(value)] == []


@given(st.uuids())
def test_a_uuid_is_not_personal(value: object) -> None:
    assert [f.kind for f in VALUES if f.test(str(value))] == []


@given(st.from_regex(r"4[0-9]{15}", fullmatch=True), st.integers(0, 14))
def test_one_wrong_digit_is_no_card(code: str, at: int) -> None:
    wrong = code[: at + 1] + str((int(code[at + 1]) + 1) % 10) + code[at + 2 :]
    assert not (is_card(code) and is_card(wrong))


@given(st.sampled_from(["DE89370400440532013000", "GB82WEST12345698765432"]), st.integers(4, 20), st.integers(1, 8))
def test_one_wrong_character_is_no_iban(code: str, at: int, step: int) -> None:
    if code[at].isdigit():
        assert not is_iban(code[:at] + str((int(code[at]) + step) % 10) + code[at + 1 :])


@pytest.mark.timeout(300)
@given(st.text(max_size=300))
def test_any_text_is_judged(text: str) -> None:
    """An expression that backtracks without end hangs here."""
    by_name(text)
    assert isinstance([f.test(text) for f in VALUES], list)


MAIL, ON = "ann@example.org", Protect("on")
SHARES: list[tuple[str, list[str | None], str]] = [
    ("nothing", [], ""),
    ("NULL only", [None, None], ""),
    ("blank", ["", " "], ""),
    ("one address", [MAIL], "email: 1 of 1"),
    ("a fifth", [MAIL, "a", "b", "c", "d"], "email: 1 of 5"),
    ("less than a fifth", [MAIL, "a", "b", "c", "d", "e"], ""),
    ("NULL does not count", [MAIL, *[None] * 50], "email: 1 of 1"),
    ("one card among numbers", ["4111111111111111", "17", "18"], ""),
    ("one card alone", ["4111111111111111"], "card number: 1 of 1"),
    ("cards", ["4111111111111111", "5500000000000004", "x"], "card number: 2 of 3"),
    ("one number of a version in ten", ["8.8.8.8", *["1.0"] * 9], ""),
]


@pytest.mark.parametrize(("name", "sampled", "expected"), SHARES, ids=[s[0] for s in SHARES])
def test_thresholds(name: str, sampled: list[str | None], expected: str) -> None:
    why = ON.looks(sampled)
    assert expected in why if expected else why == ""
    assert MAIL not in why, "no value is told"


def test_names_of_the_user_and_exceptions() -> None:
    protect = Protect("names", names=patterns(["*.loyalty_no"]), allow=patterns(["public.shop.*"]))
    assert protect.name("public.t.loyalty_no", "loyalty_no") == "its name matches '*.loyalty_no'"
    assert protect.name("public.t.email", "email") == "its name looks like personal data (email)"
    assert protect.name("public.shop.email", "email") == ""
    assert Protect().name("public.t.email", "email") == "", "off unless it is asked for"


def test_values_of_the_user() -> None:
    protect = Protect("on", values={"member": "M-[0-9]{6}"})
    assert "member: 2 of 3" in protect.looks(["M-000001", "M-123456", "x"])
    assert protect.looks(["M-000001", "x", "y"]) == ""
    with pytest.raises(SchemaError, match="repeats a group"):
        Protect("on", values={"slow": "(a+)+"})


def test_every_phrase_is_found_again() -> None:
    for kind, text in NAMES.items():
        assert [p for p in text.split(", ") if by_name(p.replace(" ", "_")) != kind] == []
