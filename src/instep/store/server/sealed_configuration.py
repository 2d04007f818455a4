"""What connectors of the server are given: any value of it may be a secret, so that all of it is sealed at rest.

A row has a reference to one secret in the place of each mapping; who reads the object has the mapping itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from instep.errors import InstepError
from instep.model import StoredKind
from instep.store.server.secrets import Secrets

CONNECTORS = ("connector", "airbyte")
"""Types of sources whose code alone knows what is secret."""
_KEYS = ("configuration", "environment")
_SEALED = "_instep_sealed"
_BEGIN, _END = "${secret:", "}"


def sealed_spec(secrets: Secrets, kind: StoredKind, name: str, spec: Mapping[str, Any], who: str) -> dict[str, Any]:
    """Return the document as a row has it."""
    given = spec if kind == "source" and spec.get("type") in CONNECTORS else {}
    texts = {key: json.dumps(given[key]) for key in _KEYS if isinstance(given.get(key), Mapping) and given[key]}
    ids = {key: secrets.put(kind, name, _field(key), text, who=who) for key, text in texts.items()}
    return {**spec, **{key: {_SEALED: f"{_BEGIN}{id}{_END}"} for key, id in ids.items()}}


def sealed_ids(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids of secrets by the keys of a row's document that they stand for."""
    found = {key: spec[key].get(_SEALED) for key in _KEYS if isinstance(spec.get(key), Mapping) and len(spec[key]) == 1}
    return {key: text.removeprefix(_BEGIN).removesuffix(_END) for key, text in found.items() if isinstance(text, str)}


def opened_specs(
    secrets: Secrets, rows: Iterable[tuple[StoredKind, str, Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    """Return the documents of rows of (kind, name, document). A mapping that does not open, for lack of a master key,
    stays sealed: whoever needs a value of it is told why."""
    listed = list(rows)
    ids = [id for _, _, spec in listed for id in sealed_ids(spec).values()]
    records = secrets.get_many(ids)
    documents: list[Mapping[str, Any]] = []
    for kind, name, spec in listed:
        opened = dict(spec)
        for key, id in sealed_ids(spec).items():
            with suppress(InstepError):
                opened[key] = json.loads(secrets.unsealed(records.get(id), id, kind, name, _field(key)))
        documents.append(opened)
    return documents


def _field(key: str) -> str:
    return f"/{key}/{_SEALED}"
