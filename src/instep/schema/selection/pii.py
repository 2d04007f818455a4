"""Signs of personal data: names of columns by their words, values by their form. Patterns and scores only."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from typing import Literal

from instep.schema.catalog.regex import check_regex, expression
from instep.schema.selection.selection import Pattern

Mode = Literal["off", "names", "on"]

NAMES: Mapping[str, str] = {
    "email": "email, e mail, mail, emails, mailaddress, emailaddress, correo, courriel, epost",
    "phone": "phone, telephone, telefon, telefono, tel, mobile, mobil, cellphone, cell phone, handy, fax, phonenumber, "
    "msisdn, phones, portable telephone, handynummer, whatsapp",
    "national id": "ssn, social security, social insurance, national id, tax id, tin, nif, dni, nino, cpf, curp, bsn, "
    "personnummer, fodselsnummer, pesel, steuernummer, steuer id, sozialversicherungsnummer, codice fiscale, nir, sin, "
    "aadhaar, fiscal code, tax number",
    "passport": "passport, passeport, reisepass, pasaporte, id card, identity card, driver license, drivers license, "
    "driving licence, driving license, fuhrerschein, personalausweis, licence number, license number",
    "bank account": "iban, bic, swift code, account number, account no, bank account, routing number, sort code, "
    "konto, kontonummer, bankverbindung",
    "card number": "card number, credit card, creditcard, debit card, cc number, cardnumber, kreditkarte, pan, cvv, "
    "cvc, card no, cc num, card holder, cardholder",
    "birth": "birth date, date of birth, birthdate, birthday, dob, born on, birth place, geburtsdatum, geburtstag, "
    "fecha nacimiento, date naissance, birth year, born at",
    "person's name": "first name, last name, firstname, lastname, full name, fullname, middle name, given name, "
    "surname, forename, family name, maiden name, vorname, nachname, nom famille, prenom, apellido, apellidos, "
    "cognome, contact name, customer name, person name, patient name, user name, username, employee name",
    "address": "address, street, postal code, postcode, zip, zip code, zipcode, adresse, strasse, plz, hausnummer, "
    "house number, direccion, indirizzo, calle, rue, home address, street address, postleitzahl, addr",
    "network address": "ip, ip address, ipaddress, ip addr, mac address, remote addr, client ip, ipv",
    "location": "latitude, longitude, lat, lng, geo location, geolocation, gps, coordinates",
    "secret": "password, passwd, pwd, passwort, token, access token, refresh token, api key, apikey, secret, "
    "secret key, private key, password hash, pin code, credential, credentials, security answer, otp, "
    "contrasena, mot de passe",
    "health and belief": "diagnosis, blood type, medical record, religion, ethnicity, race, sexual orientation, "
    "disability, health insurance, political party, nationality, gender, marital status",
}
"""Kind to the words that name it: those of one entry stand one after the other in a column's name."""

_NEUTRAL = (
    "count counts total type types status state flag enabled disabled verified confirmed sent opened clicked at on "
    "template templates subject domain domains provider quota limit length format version required valid validated "
    "bounced bounce optin optout opt consent preference preferences frequency campaign id ids key idx index number_of "
    "is has was can should num cnt avg sum max min pct percent rate ratio expires expired expiry created updated "
    "changed error errors retries attempts used usage bytes size color colour label list batch queue server host port "
    "category change changes days notifications notification allowed blocked"
)
NEUTRAL = frozenset(_NEUTRAL.split())
"""Words that make a name one about such data rather than of it: `email_verified`, `is_phone_valid`, `address_type`."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPLIT = re.compile(r"[^a-z]+")


def words(name: str) -> tuple[str, ...]:
    """Return the words of a column's name in lower case, by `_`, spaces, capitals and digits; accents are taken off."""
    name = name.replace("ß", "ss").replace("ø", "o").replace("ł", "l").replace("IPv", "Ipv")
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return tuple(filter(None, _SPLIT.split(_CAMEL.sub(" ", plain).lower())))


def by_name(name: str) -> str:
    """Return the kind of personal data that a column of this name looks like, "" if none."""
    parts = words(name)
    for kind, phrase in _PHRASES:
        for at in range(len(parts) - len(phrase) + 1):
            if parts[at : at + len(phrase)] == phrase:
                others = (*parts[:at], *parts[at + len(phrase) :])
                if not NEUTRAL.intersection(others):
                    return kind
    return ""


def _phrases() -> list[tuple[str, tuple[str, ...]]]:
    """Return the phrases, longest first, so that `password hash` counts before `password`."""
    every = [(kind, tuple(p.split())) for kind, text in NAMES.items() for p in text.split(", ")]
    return sorted(every, key=lambda p: -len(p[1]))


_PHRASES = _phrases()


def is_email(text: str) -> bool:
    return len(text) <= 254 and _EMAIL.fullmatch(text) is not None


def is_iban(text: str) -> bool:
    """Return True for an IBAN with a valid checksum (ISO 7064, mod 97)."""
    code = re.sub(r"[ -]", "", text).upper()
    if _IBAN.fullmatch(code) is None:
        return False
    return int("".join(str(int(c, 36)) for c in code[4:] + code[:4])) % 97 == 1


def is_card(text: str) -> bool:
    """Return whether the text is a card number: 13 to 19 digits with a card's prefix and Luhn's check digit."""
    code = re.sub(r"[ -]", "", text)
    if _CARD.fullmatch(code) is None or len(set(code)) == 1:
        return False
    digits = [int(c) for c in reversed(code)]
    return sum(d if at % 2 == 0 else (2 * d - 9 if d > 4 else 2 * d) for at, d in enumerate(digits)) % 10 == 0


def is_phone(text: str) -> bool:
    """Return True for a phone number in E.164 form, with its plus sign; spaces, dots, dashes and parentheses may stand
    in between."""
    return _PHONE.fullmatch(text) is not None and 8 <= sum(c.isdigit() for c in text) <= 15


def is_ip(text: str) -> bool:
    """Return whether the text is an IPv4 or IPv6 address that is neither local nor unspecified. Version numbers have
    other parts or are short."""
    if text.count(".") != 3 and ":" not in text:
        return False
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast)


def is_ssn(text: str) -> bool:
    """Return whether the text is a US social security number, written with dashes, that could have been issued."""
    return _SSN.fullmatch(text) is not None


def is_secret(text: str) -> bool:
    """Return whether the text is a key, token or password hash in a form that names itself."""
    return _SECRET.match(text) is not None


_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}")
_IBAN = re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}")
_CARD = re.compile(r"(?:4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3[068]\d{12}|6\d{15,18}|35\d{14})")
_PHONE = re.compile(r"\+[1-9][\d .()/-]{6,22}\d")
_SSN = re.compile(r"(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}")
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|eyJ[\w-]{10,}\.[\w-]{10,}|AKIA[0-9A-Z]{16}|gh[pousr]_\w{30,}|xox[abprs]-\w{10,}"
    r"|sk_(?:live|test)_\w{16,}|\$2[aby]\$\d{2}\$.{53}|\$argon2"
)


@dataclass(frozen=True)
class Form:
    """A column looks like `kind` if at least `least` of its sampled values, and this share of them, are of the form."""

    kind: str
    test: Callable[[str], bool]
    share: float
    least: int
    says: str


VALUES: tuple[Form, ...] = (
    Form("email", is_email, 0.2, 1, "name@domain.tld"),
    Form("bank account", is_iban, 0.2, 1, "an IBAN whose checksum is right"),
    Form("card number", is_card, 0.6, 2, "13 to 19 digits that begin as cards do, with Luhn's check digit"),
    Form("phone", is_phone, 0.5, 2, "+ and 8 to 15 digits (E.164)"),
    Form("national id", is_ssn, 0.5, 2, "a social security number of the United States, with dashes"),
    Form("network address", is_ip, 0.5, 2, "IPv4 or IPv6, not of this machine"),
    Form("secret", is_secret, 0.2, 1, "a private key, a web token, a cloud or chat key, a password hash"),
)


@dataclass(frozen=True)
class Protect:
    """Setting for new columns that need a review: none (`off`), by their names, or by names and values (`on`).

    `names` are more patterns of `schema.table.column`, `values` more regular expressions by kind, for whole values,
    which count from half of the values on. `sample` is how many values are looked at, `allow` patterns of columns that
    are never held.
    """

    mode: Mode = "off"
    names: tuple[Pattern, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    sample: int = 100
    allow: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        for text in self.values.values():
            check_regex(text)

    def allows(self, path: str) -> bool:
        return self.mode == "off" or any(p.matches(path) for p in self.allow)

    def name(self, path: str, column: str) -> str:
        """Return why a column is held for its name, in words; "" if it is not. `path` is schema.table.column."""
        if self.allows(path):
            return ""
        if pattern := next((p for p in self.names if p.matches(path)), None):
            return f"its name matches {pattern.text!r}"
        kind = by_name(column)
        return f"its name looks like personal data ({kind})" if kind else ""

    def looks(self, sampled: Iterable[str | None]) -> str:
        """Return why a column is held for these values, in words that tell none of them; "" if it is not."""
        values = [v.strip() for v in sampled if v is not None and v.strip()]
        for form in self._forms:
            fits = sum(map(form.test, values))
            if fits >= min(form.least, len(values)) and fits and fits >= form.share * len(values):
                return f"its data looks personal ({form.kind}: {fits} of {len(values)} values)"
        return ""

    @cached_property
    def _forms(self) -> Sequence[Form]:
        forms = (Form(kind, expression(text).fullmatch, 0.5, 1, text) for kind, text in self.values.items())
        return *VALUES, *forms
