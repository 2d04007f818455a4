"""The result of an import: sections of a project file, what to set, and what was left out; checked and written."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instep.errors import ProjectError, quoted, unwritable
from instep.operations.values import ImportedProduct
from instep.project.files.imported import SALT
from instep.project.files.starter import SCHEMA_FILE, write_project
from instep.project.load import FILE_NAME, MAX_BYTES, problems_in
from instep.project.sections.values import looks_secret
from instep.project.text import tree as yaml_tree
from instep.project.text.references import is_reference
from instep.redaction import SECRET_NAME, hide, is_plain

MASKED = re.compile(r"\*{3,}|\[?redacted\]?|\(sensitive value\)", re.IGNORECASE)
"""Text in the place of a secret."""
_SECRET_KEY = re.compile(
    r"access.?key|client.?id$|(^|_)key$|ssh.?key|private|service.?account|signature|(^|_)pat$|"
    r"(^|_)sas|connection.?string|dsn$|jwt|(^|_)pwd$|auth.?code|cookie|session|certificate|encryption|passcode|pin$",
    re.IGNORECASE,
)
_TITLES = re.compile(r"(^|_)(type|method|mode|title|option|kind|format)$", re.IGNORECASE)
"""Keys of values that choose among forms, beside secrets."""
_LONGEST = 40
_PLURALS = ("sources", "destinations", "connections")


@dataclass(frozen=True)
class SecretToSet:
    """A variable that somebody has to set."""

    variable: str
    """Name of the variable."""
    object: str
    """The object that needs it, such as `source shop`."""
    key: str
    """The key of that object."""
    found: str
    """Place where the export has its value in clear, or that it masks it."""


@dataclass(frozen=True)
class LeftOut:
    """Something of the export that is not in the project."""

    object: str
    """Object that was left out, such as `connection shop`."""
    reason: str
    """Why it is left out."""
    next: str
    """Next step for a person."""


@dataclass
class ImportedProject:
    """`states` and `catalogs` are by connection, in Airbyte's own formats."""

    product: ImportedProduct
    sections: dict[str, dict[str, Any]] = field(default_factory=lambda: {name: {} for name in _PLURALS})
    secrets: list[SecretToSet] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    states: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    catalogs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def leave_out(self, object: str, reason: str, next: str) -> None:
        """List what is not taken over, once. Names come from the export: they stay on one line."""
        entry = LeftOut(quoted(object, 200), quoted(reason, 400), quoted(next, 400))
        if entry not in self.left_out:
            self.left_out.append(entry)

    def note(self, text: str) -> None:
        """Note a difference from the original, once."""
        if (line := quoted(text, 600)) not in self.notes:
            self.notes.append(line)

    def reference(self, owner: str, key: str, value: Any, where: str) -> str:
        """Return the reference that stands for a secret of an owner, such as `source shop`. Its variable begins with
        the product, so that no export can name a variable that is set for something else."""
        text = value if isinstance(value, str) else ""
        base = re.sub(r"[^A-Z0-9]+", "_", f"{self.product}_{owner}_{key}".upper()).strip("_")
        used = {secret.variable: secret for secret in self.secrets}
        name, number = base, 2
        while name in used and (used[name].object, used[name].key) != (owner, key):
            name, number = f"{base}_{number}", number + 1
        if name not in used:
            clear = text and not MASKED.fullmatch(text)
            if clear:
                hide(text)
            place = f"in clear in {where}" if clear else "masked in the export"
            self.secrets.append(SecretToSet(name, owner, key, quoted(place)))
        return f"${{env:{name}}}"

    def salt(self) -> str:
        """Return the reference of the salt of hashed columns."""
        entry = SecretToSet("INSTEP_SALT", "hashed columns", "salt", "new: a long random text that never changes")
        if entry not in self.secrets:
            self.secrets.append(entry)
        return SALT

    def literal(self, owner: str, key: str, value: Any, where: str) -> Any:
        """Return a text of the export as the file may have it: one with `${` would be read as a reference."""
        if isinstance(value, str) and is_reference(value):
            return self.reference(owner, key, value, where)
        return value

    def configuration(
        self, owner: str, values: Mapping[str, Any], where: str, sensitive: Iterable[tuple[str, ...]] = ()
    ) -> dict[str, Any]:
        """Return a connector's configuration with references in the place of secrets, and without empty values."""
        places = frozenset(sensitive)

        def masked(value: Any, path: tuple[str, ...], secret: bool) -> Any:
            secret = secret or path in places
            if isinstance(value, Mapping):
                return {
                    str(key): masked(item, (*path, str(key)), secret or _names_secret(str(key), item))
                    for key, item in value.items()
                    if item is not None
                }
            if isinstance(value, list):
                return [masked(item, (*path, str(at)), secret) for at, item in enumerate(value) if item is not None]
            if isinstance(value, str) and value and (secret or _looks_secret(value) or is_reference(value)):
                return self.reference(owner, ".".join(path), value, where)
            if isinstance(value, int | float) and not isinstance(value, bool) and SECRET_NAME.search(path[-1]):
                return self.reference(owner, ".".join(path), str(value), where)
            return value

        configuration: dict[str, Any] = masked(values, (), False)
        return configuration


def _names_secret(key: str, value: Any) -> bool:
    """True if a key calls its value secret, as instep.yml reads keys. What is below `credentials` is told by its own
    keys, and the choice of a form (`auth_type`) is none."""
    if isinstance(value, Mapping | list) and key.lower() in ("credentials", "credential", "authorization"):
        return False
    return bool(SECRET_NAME.search(key) or (_SECRET_KEY.search(key) and not _TITLES.search(key)))


def _looks_secret(value: str) -> bool:
    if MASKED.fullmatch(value) or looks_secret(value):
        return True
    opaque = len(value) >= 20 and re.fullmatch(r"[A-Za-z0-9+/=_.-]+", value) is not None
    mixed = opaque and re.search(r"\d", value) and re.search(r"[a-z]", value) and re.search(r"[A-Z]", value)
    return bool(mixed) and not is_plain(value) and not re.match(r"\d{4}-\d\d-\d\dT", value)


def project_name(text: str, used_names: Iterable[str], fallback: str) -> str:
    """Return a name that a section may have, near to the product's, and that none has in any case."""
    plain = unicodedata.normalize("NFKD", text[:500]).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9_-]+", "_", plain).strip("_-")[:_LONGEST].strip("_-") or fallback
    base = base if base[0].isalpha() else f"{fallback}_{base}"
    used = {name_used.casefold() for name_used in used_names}
    name, number = base, 2
    while name in used:
        name, number = f"{base}_{number}", number + 1
    return name


def checked(imported: ImportedProject) -> ImportedProject:
    """Remove each section that the project file does not accept, with the reason, so that what is written loads.
    Raises ProjectError if nothing is left."""
    while True:
        problems = list(problems_in(_dump(imported)))
        wrong = {path[:2]: text for path, text in problems if len(path) >= 2}
        if problems and not wrong:
            raise ProjectError(f"the project cannot be written: {problems[0][1]}", hint="export fewer objects")
        if not wrong:
            break
        # a connection may be wrong because its source is: sources and destinations go first
        first = {path: text for path, text in wrong.items() if path[0] != "connections"} or wrong
        for (plural, name), text in first.items():
            del imported.sections[str(plural)][str(name)]
            imported.leave_out(f"{str(plural)[:-1]} {name}", text, "write it into instep.yml yourself")
            _drop_dependants(imported, str(plural), str(name))
    if not imported.sections["sources"] and not imported.sections["destinations"]:
        reasons = "; ".join(f"{item.object}: {item.reason}" for item in imported.left_out[:5])
        raise ProjectError(
            f"nothing of the export can be taken over{f' ({reasons})' if reasons else ''}",
            hint=imported.left_out[0].next if imported.left_out else "name the files that have sources and connections",
        )
    _drop_unused(imported)
    return imported


def _drop_dependants(imported: ImportedProject, plural: str, name: str) -> None:
    for connection, section in list(imported.sections["connections"].items()):
        if section.get(plural[:-1]) == name:
            del imported.sections["connections"][connection]
            reason = f"its {plural[:-1]} {name} is not taken over"
            imported.leave_out(f"connection {connection}", reason, f"see {plural[:-1]} {name}")


def _drop_unused(imported: ImportedProject) -> None:
    """Forget variables, states and catalogs of what was left out."""
    text = json.dumps(imported.sections)
    imported.secrets[:] = [secret for secret in imported.secrets if f"{{env:{secret.variable}}}" in text]
    for files in (imported.states, imported.catalogs):
        for name in [name for name in files if name not in imported.sections["connections"]]:
            del files[name]


def _dump(imported: ImportedProject) -> str:
    """Return the project file. Its sections come in the order of the export, so that the same export gives the same."""
    sections = {name: imported.sections[name] for name in _PLURALS if imported.sections[name]}
    return yaml_tree.dump({"version": 1, **sections})


def project_text(imported: ImportedProject) -> str:
    """Return the text of the project file, with the line that editors read."""
    text = f"# yaml-language-server: $schema={SCHEMA_FILE.as_posix()}\n{_dump(imported)}"
    if len(text.encode()) > MAX_BYTES:
        hint = "import fewer connections at a time, each into its own folder"
        raise ProjectError(f"the project file would be larger than {MAX_BYTES >> 20} MB", hint=hint)
    return text


def files_of(imported: ImportedProject, folder: Path, into: Path | None) -> dict[Path, str]:
    """Return the text of every file by its path. `into`: the project file, if it is not the folder's instep.yml."""
    file = into or folder / FILE_NAME
    written = {file: project_text(imported)}
    for name, messages in imported.states.items():
        written[file.parent / "states" / f"{name}.json"] = _json(messages)
    for name, catalog in imported.catalogs.items():
        written[file.parent / "catalogs" / f"{name}.json"] = _json(catalog)
    return written


def write_files(files: Mapping[Path, str], *, dry_run: bool = False) -> list[Path]:
    """Write files that are not there, and return them; those that have the same text already stay.

    ProjectError, before anything is written, for a file with another text.
    """
    new = [path for path, text in files.items() if not _is_there(path, text)]
    for path in () if dry_run else new:
        if path.name == FILE_NAME:
            write_project(path.parent, files[path])
        else:
            _write_new(path, files[path])
    return new


def _is_there(path: Path, text: str) -> bool:
    try:
        if path.read_bytes() == text.encode():
            return True
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ProjectError(f"{path} cannot be read: {error.strerror}", hint="check the path") from None
    hint = "write it elsewhere with --into NEWFILE, and copy what you need"
    raise ProjectError(f"{path} exists already and differs from what the import would write", hint=hint)


def _write_new(path: Path, text: str) -> None:
    """Write a new file that only its owner can read: states may hold values of rows."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise unwritable(path, error) from None


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
