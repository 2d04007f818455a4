"""Data contracts: what is accepted as one, whether a schema is within one, and the settings that hold to one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from instep.control.selection.selections import place_of
from instep.errors import InstepError
from instep.project.files.contract import contract_text, read_contract
from instep.project.files.imported import SALT
from instep.project.project import Project
from instep.project.sections.names import exact
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.contracts.compliance import ContractDifference, ContractTable, check, find
from instep.schema.contracts.contract import ContractTerms, contract_document
from instep.schema.selection.selection import Pattern, hashed
from instep.store.store import Store

Hold = Literal["review", "pause_table", "pause_connection"]
MODES = ("full_refresh", "append", "upsert")


def exported(project: Project, store: Store, connection: str, pattern: str = "") -> dict[str, Any]:
    """Return the contract of the accepted tables that a pattern matches ("": all). InstepError if there are none."""
    latest = store.accepted.latest(connection)
    if latest is None:
        raise InstepError(
            f"connection {connection} has accepted nothing yet", hint="run `instep apply` or `instep sync` first"
        )
    catalog = store.accepted.catalog(connection)
    if pattern:
        matching = Pattern(pattern)
        catalog = Catalog.of(t for t in catalog.tables if matching.matches(t.path))
    if not catalog.tables:
        raise InstepError(f"no accepted table of {connection} is called {pattern}", hint="see `instep status`")
    return contract_document(catalog, _terms(project, store, connection, latest.label))


def _terms(project: Project, store: Store, connection: str, version: str) -> ContractTerms:
    now, namespace = place_of(project, store, connection).now, project.namespace_of(connection)

    def is_hashed(table: Table, column: Column) -> bool:
        return hashed(now, table.ref, column.name)

    return ContractTerms(
        id="-".join(filter(None, (project.name, connection))),
        name=connection,
        version=version,
        hashed=is_hashed,
        mode=lambda table: project.table(connection, table.ref).mode,
        destination=lambda table: f"{namespace}.{table.alias or table.name}",
    )


def checked(file: Path, catalog: Catalog) -> tuple[ContractDifference, ...]:
    """Return where a catalog is not within the contract of a file. ProjectError if the file is none."""
    return check(read_contract(file), catalog)


def recorded(store: Store, connection: str) -> Catalog:
    """Return the accepted catalog. Raises InstepError before the first acceptance."""
    if store.accepted.latest(connection) is None:
        raise InstepError(
            f"connection {connection} has accepted nothing yet", hint="leave --recorded out: the source is read then"
        )
    return store.accepted.catalog(connection)


@dataclass(frozen=True)
class ContractKeys:
    """Keys of a connection, also as the text of a project file, and what they cannot say."""

    keys: Mapping[str, Any]
    text: str
    notes: tuple[str, ...]


def contract_keys(project: Project, store: Store, connection: str, file: Path, hold: Hold = "review") -> ContractKeys:
    """Return the settings under which a connection reads what a contract names, and holds changes that break it.
    ProjectError if the file is no contract."""
    section, seen = project.connection(connection), store.discoveries.get(connection)
    known = seen.catalog if seen else store.accepted.catalog(connection)
    tables = [t for t in read_contract(file) if not t.retained]
    named = {_path(t, known): t for t in tables}
    keys: dict[str, Any] = {"include": {"tables": [exact(path) for path in named]}}
    hidden = [exact(f"{p}.{c.name}") for p, t in named.items() for c in t.live if c.hashed]
    keys |= {"hash": hidden, "salt": SALT} if hidden else {}
    keys["tables"] = {exact(path): _settings(path, t, hold) for path, t in named.items()}
    notes = [*_missing(tables, known, connection), *(_doubts(named))]
    if already := sorted(section.model_fields_set & keys.keys()):
        notes.append(f"connection {connection} has {', '.join(already)} already: merge them yourself")
    if hidden and not section.salt:
        notes.append("set INSTEP_SALT in .env, to a long random text that never changes")
    return ContractKeys(keys, contract_text({"connections": {connection: keys}}), tuple(notes))


def _path(table: ContractTable, known: Catalog) -> str:
    path = find(table, known)
    return path.path if path else table.names[0]


def _settings(path: str, table: ContractTable, hold: Hold) -> dict[str, Any]:
    """Return the table's settings in a policy. Another key pauses in every preset: a mere review would be less."""
    columns = [exact(f"{path}.{c.name}") for c in table.live]
    required = [exact(f"{path}.{c.name}") for c in table.live if c.required]
    whole = ["table.removed", "table.renamed", "table.replaced"]
    whole += [] if hold == "review" else ["key.changed", "key.removed"]
    rules: list[dict[str, Any]] = [{"on": whole, "decide": hold}]
    if columns:
        kinds = ["column.removed", "column.renamed", "column.widened", "column.retyped"]
        rules.append({"on": kinds, "match": columns, "decide": hold})
    if required:
        rules.append({"on": ["column.nullability"], "match": required, "decide": hold})
    settings = {"mode": table.mode if table.mode in MODES else "", "cursor": table.cursor}
    return {**{name: value for name, value in settings.items() if value}, "rules": rules}


def _missing(tables: Iterable[ContractTable], known: Catalog, connection: str) -> Iterator[str]:
    if not known.tables:
        yield f"nothing of connection {connection} is known yet: names are taken as the contract writes them"
        return
    yield from (f"{t.names[0]} is not among the tables of {connection}" for t in tables if find(t, known) is None)


def _doubts(named: Mapping[str, ContractTable]) -> Iterator[str]:
    for path in named:
        if "." not in path:
            yield f"{path} names no schema: write it as schema.table"
    yield "types are held by rules about changes: `instep contract check` compares them with the contract"
