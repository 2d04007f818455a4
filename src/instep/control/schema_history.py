"""Schemas as of any time: the accepted catalog, and source and destination as far as the store knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instep.control.times import utc
from instep.errors import InstepError
from instep.operations.values import Side
from instep.schema.catalog.catalog import Catalog, table_from_dict
from instep.schema.changes.version import Label, VersionDiff, between
from instep.store.store import Store

Moment = datetime | int | Label


@dataclass(frozen=True)
class SchemaVersion:
    """One version of the source's, the accepted or the destination's schema."""

    connection: str
    side: Side
    version: int
    """Number of the version, counted per side."""
    at: datetime
    accepted: int
    """The accepted version at that time."""
    label: str
    """Label `major.minor` ("" before the first)."""
    run: str
    """The run that detected or created it."""
    who: str = ""
    why: str = ""
    identity: str = ""


def versions(store: Store, connection: str, side: Side) -> tuple[SchemaVersion, ...]:
    """Return the versions, oldest first."""
    history = store.accepted.history(connection)[::-1]
    if side == "accepted":
        return tuple(
            SchemaVersion(connection, side, v.version, v.at, v.version, v.label, v.run, v.who, v.why) for v in history
        )
    labels = {v.version: v.label for v in history}
    return tuple(
        SchemaVersion(
            connection, side, v.version, v.at, v.accepted, labels.get(v.accepted, ""), v.run, identity=v.identity
        )
        for v in reversed(store.schemas.history(connection, side))
    )


def catalog_of(store: Store, version: SchemaVersion) -> Catalog:
    """Return the schema of the version."""
    if version.side == "accepted":
        return store.accepted.catalog(version.connection, version.version)
    return store.schemas.catalog(version.connection, version.side, version.version)


def compare(store: Store, before: SchemaVersion, after: SchemaVersion) -> VersionDiff:
    """Return the changes from one version of a side to another one of it."""
    same = before.identity == after.identity if before.side == "source" else None
    old, new = _differing(_document(store, before), _document(store, after))
    return between(old, new, same_server=same)


def _document(store: Store, version: SchemaVersion) -> Mapping[str, Any]:
    if version.side == "accepted":
        return store.accepted.document(version.connection, version.version)
    return store.schemas.document(version.connection, version.side, version.version)


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Catalog, Catalog]:
    """Return both catalogs without the tables that are the same in both, of which most of two versions are. Of each
    schema one stays without its columns, so that the schema is in both still."""
    sides = [{(one["schema"], one["name"]): one for one in document.get("tables", ())} for document in (before, after)]
    same = {ref for ref, one in sides[0].items() if sides[1].get(ref) == one}
    stay = {ref[0]: ref for ref in sorted(same) if not sides[0][ref].get("retained")}
    rest = [[one for ref, one in side.items() if ref not in same] for side in sides]
    beside = [{**sides[0][ref], "columns": []} for ref in stay.values()]
    old, new = (Catalog.of(table_from_dict(one) for one in [*tables, *beside]) for tables in rest)
    return old, new


def moment(text: str) -> Moment:
    """Parse `7` or `v7` as an accepted version, `2.1` or `v2.1` as its major.minor number, everything else as a time
    in ISO 8601 (a date is its beginning; without a zone it is UTC). Raises InstepError."""
    plain = text.strip().removeprefix("v")
    major, point, minor = plain.partition(".")
    if _is_number(major) and _is_number(minor or "0") and bool(point) == bool(minor):
        return (int(major), int(minor)) if point else int(plain)
    try:
        return utc(text.strip())
    except ValueError:
        hint = "write 2026-03-31, 2026-03-31T14:05+02:00, or a version: 7 or 2.1"
        raise InstepError(f"{text!r} is neither a time nor a version", hint=hint) from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7


def version_at(store: Store, connection: str, side: Side, when: Moment | None = None) -> SchemaVersion:
    """Return the version of a side that was in force then, by default the newest. An accepted version stands for the
    time until the next one: what a source or destination was when it began. Raises InstepError if nothing is known."""
    known = versions(store, connection, side)
    if not known:
        hint = "`instep detect` looks at the source" if side == "source" else "`instep apply` accepts it"
        raise InstepError(f"connection {connection}: no {side} schema is known yet", hint=hint)
    match when:
        case None:
            return known[-1]
        case datetime():
            return _last(known, [v for v in known if v.at <= when], f"at {when:%Y-%m-%d %H:%M:%S %Z}")
    accepted = _accepted(store, connection, when)
    if side == "source":
        earlier = [v for v in known if v.at <= accepted.at]
    else:
        earlier = [v for v in known if v.accepted <= accepted.accepted]
    return _last(known, earlier, f"at version {accepted.version} ({accepted.label})")


def _accepted(store: Store, connection: str, when: int | Label) -> SchemaVersion:
    label = f"{when[0]}.{when[1]}" if isinstance(when, tuple) else when
    for version in versions(store, connection, "accepted"):
        if label in (version.version, version.label):
            return version
    raise InstepError(f"connection {connection} has no accepted version {label}", hint="see `instep history --schema`")


def _last(known: Sequence[SchemaVersion], earlier: Sequence[SchemaVersion], when: str) -> SchemaVersion:
    if earlier:
        return earlier[-1]
    first = known[0]
    raise InstepError(
        f"connection {first.connection}: nothing is known of the {first.side} schema {when}",
        hint=f"the recorded history starts at {first.at:%Y-%m-%d %H:%M:%S} UTC",
    )
