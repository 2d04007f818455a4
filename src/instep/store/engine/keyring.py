"""Master keys, by id: from the environment or from a file that only its owner may read.

The first key seals; the others still open what was sealed before. A key is 32 random bytes in base64, written as
`<id>:<base64>`, one a line or separated by spaces.

Sealing of one secret: AES-256-GCM under a data key of its own, which a master key wraps.

Both layers are bound to where the secret stands, so that a row that was copied to another object, field or version
does not open.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path

from instep.errors import InstepError, ProjectError
from instep.private import make_own_folder, make_state_folder

VARIABLE = "INSTEP_KEYS"
FILE = Path(".instep/keys")
BYTES = 32
INSECURE = "insecure-dev"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MAKE = "make one with `instep secrets new-key`"


@dataclass
class Keyring:
    """The master keys."""

    keys: Mapping[str, bytes] = field(repr=False)
    """Keys by id, the current one first; no key is in its `repr`."""
    again: Callable[[], Mapping[str, bytes]] | None = field(default=None, repr=False, compare=False)
    """Reads them where they came from: a key that is missing may have been added since, by a rotation beside this
    process."""

    @property
    def current(self) -> str:
        return next(iter(self.keys))

    @property
    def insecure(self) -> bool:
        return self.current == INSECURE

    def key(self, id: str) -> bytes:
        """Raise ProjectError that names the key if it is missing. A key that was added since the keys were read is
        found, and from then on the first key is the one that seals."""
        key = self.keys.get(id)
        if key is None and self.again is not None and (key := (new := self.again()).get(id)) is not None:
            self.keys = new
        if key is None:
            raise ProjectError(
                f"the master key {id!r} is missing, which secrets of this store are sealed with",
                hint=f"add it after the current one in the key file, or in {VARIABLE} and start again, "
                "then run `instep secrets rotate`",
            )
        return key


Keys = Keyring | Callable[[], Keyring | None] | None
"""None: there are none. What can be called is called when keys are used first."""


def keyring(root: Path, *, insecure_dev: bool = False, variables: Mapping[str, str] | None = None) -> Keyring:
    """Return the keys of `INSTEP_KEYS`, else those of `.instep/keys` below `root`. Without any: ProjectError, or under
    `insecure_dev` a key that everybody knows."""
    text = (os.environ if variables is None else variables).get(VARIABLE, "").strip()
    read = partial(_read, root / FILE, insecure_dev)
    keys = _known(parse(text, VARIABLE), insecure_dev) if text else read()
    if not keys:
        raise ProjectError(
            "there is no master key to encrypt secrets with",
            hint=f"{_MAKE}, or set {VARIABLE}; to try things out without one, use --insecure-dev",
        )
    return Keyring(keys, again=None if text else read)


def _read(file: Path, insecure_dev: bool) -> dict[str, bytes]:
    return _known(parse(_private(file), str(file)), insecure_dev)


def _known(keys: dict[str, bytes], insecure_dev: bool) -> dict[str, bytes]:
    return {**keys, INSECURE: INSECURE.encode().ljust(BYTES, b"-")} if insecure_dev else keys


def has_keys(root: Path, variables: Mapping[str, str]) -> bool:
    """Return whether there are master keys, right or wrong, or a folder that hides whether there are."""
    if variables.get(VARIABLE, "").strip():
        return True
    try:
        (root / FILE).stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def found_keys(root: Path, variables: Mapping[str, str]) -> Keyring | None:
    """Return the keys, None if there are none. ProjectError for keys that cannot be read."""
    return keyring(root, variables=variables) if has_keys(root, variables) else None


def at_first_use(keys: Keys) -> Callable[[], Keyring | None]:
    """Return a function that answers the keys, and reads them once at most; a failure is raised at each use."""
    return cache(keys) if callable(keys) else lambda: keys


def parse(text: str, where: str) -> dict[str, bytes]:
    """Return keys by id. ProjectError that names `where` and the place of what is wrong, and repeats nothing of it."""
    keys: dict[str, bytes] = {}
    for number, entry in enumerate(text.split(), 1):
        id, colon, value = entry.partition(":")
        key = _decoded(value)
        if not colon or not _ID.fullmatch(id) or len(key) != BYTES:
            raise ProjectError(
                f"{where}: key number {number} is not of the form id:base64 of {BYTES} bytes", hint=_MAKE
            )
        if id in keys or id == INSECURE:
            raise ProjectError(f"{where}: key number {number} cannot be called {id!r}", hint="give each key its own id")
        keys[id] = key
    return keys


def new_key(id: str) -> str:
    """Return a line for `INSTEP_KEYS` or the file."""
    if not _ID.fullmatch(id) or id == INSECURE:
        raise ProjectError(f"{id!r} is not a valid key id", hint="use letters, digits, _, . and -, such as k2")
    return f"{id}:{base64.b64encode(secrets.token_bytes(BYTES)).decode()}"


def add_key(file: Path, id: str = "") -> str:
    """Make a new key the current one of a file, which is made for its owner alone if there is none; answers its id,
    the next of k1, k2, ... unless one is given."""
    before = _private(file)
    keys = parse(before, str(file))
    id = id or next(name for n in count(1) if (name := f"k{n}") not in keys)
    if id in keys:
        raise ProjectError(f"{file} has a key {id!r} already", hint="choose another id")
    key_line = new_key(id)
    if file.parent.name == FILE.parent.name:
        make_state_folder(file.parent.parent)
    make_own_folder(file.parent)
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write("\n".join([key_line, *before.split()]) + "\n")
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)
    return id


def _private(file: Path) -> str:
    """Return the text of a file that nobody else may read, "" if there is none."""
    try:
        with file.open(encoding="ascii") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ProjectError(f"others may read the key file {file}", hint=f"run `chmod 600 {file}`")
            return opened.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise ProjectError(f"the key file {file} cannot be read: {why}", hint="check who owns it") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


NONCE = 12


@dataclass(frozen=True)
class SecretPlace:
    """Place of a secret: the JSON pointer `field` in the document of an object, and which write of it this is."""

    kind: str
    name: str
    field: str
    version: int

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.field}"

    def bound(self, *more: str) -> bytes:
        """Return the bytes to which the seal is bound, without ambiguity."""
        return json.dumps(["instep", self.kind, self.name, self.field, self.version, *more]).encode()


@dataclass(frozen=True)
class Sealed:
    """A sealed secret."""

    key: str
    wrapped: str
    """The data key under the master key of id `key`."""
    value: str
    """The secret under the data key; base64."""


def seal(keys: Keyring, place: SecretPlace, secret: str) -> Sealed:
    data_key, current = os.urandom(BYTES), keys.current
    value = _encrypt(data_key, secret.encode(), place.bound())
    return Sealed(current, _wrap(keys.key(current), current, place, data_key), value)


def unseal(keys: Keyring, place: SecretPlace, sealed: Sealed) -> str:
    """Return the secret. ProjectError for a missing master key, InstepError if the seal does not fit."""
    data_key = _decrypt(keys.key(sealed.key), sealed.wrapped, place.bound(sealed.key), place)
    return _decrypt(data_key, sealed.value, place.bound(), place).decode()


def rewrap(keys: Keyring, place: SecretPlace, sealed: Sealed) -> Sealed:
    """Rewrap the secret under the current master key, without opening it."""
    data_key = _decrypt(keys.key(sealed.key), sealed.wrapped, place.bound(sealed.key), place)
    current = keys.current  # once: another thread may read the keys again meanwhile
    return replace(sealed, key=current, wrapped=_wrap(keys.key(current), current, place, data_key))


def _wrap(key: bytes, id: str, place: SecretPlace, data_key: bytes) -> str:
    return _encrypt(key, data_key, place.bound(id))


def _encrypt(key: bytes, plain: bytes, bound: bytes) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE)
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, plain, bound)).decode()


def _decrypt(key: bytes, text: str, bound: bytes, place: SecretPlace) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        raw = base64.b64decode(text, validate=True)
        return AESGCM(key).decrypt(raw[:NONCE], raw[NONCE:], bound)
    except (InvalidTag, ValueError):
        raise InstepError(
            f"the secret of {place} does not open: it was changed in the store, or its master key is another one",
            hint="write the secret again, or restore the store and the keys that belong together",
        ) from None
