"""What clients say of a connection or a destination and nothing here has a place for: it is kept beside its settings,
told back, and goes with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from instep.api.compat.desk import Desk
from instep.api.compat.objects import merged
from instep.api.compat.ports import Ports
from instep.control.kept import Kept, noted_of
from instep.model import ObjectKind
from instep.project.documents import masked


def noted(ports: Ports, kind: ObjectKind, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Of those of these objects of which something is noted, by name; in one query."""
    by_document = {noted_of(kind, name): name for name in names}
    return {by_document[one.name]: masked(one.spec) for one in ports.store.objects.several("noted", [*by_document])}


def note(desk: Desk, kind: ObjectKind, name: str, fields: Mapping[str, Any]) -> None:
    """Adds to what is noted of an object, as a JSON merge patch does."""
    if fields:
        with desk.ports.store.transaction():
            before = noted(desk.ports, kind, [name]).get(name, {})
            Kept(desk.ports.store).put("noted", noted_of(kind, name), merged(before, fields), who=desk.caller.name)
