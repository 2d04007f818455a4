"""Tables that settings name and the source never had, mostly misspellings, reported after a detection."""

from __future__ import annotations

from instep.project.project import Project
from instep.project.text.problems import dotted, raise_all
from instep.store.store import Store
from instep.suggest import did_you_mean

HINT = "correct the name, or use a pattern for tables that are still to come; see `instep source discover`"


def check_named(project: Project, store: Store, connection: str) -> None:
    """Raise ProjectError with the line of each exactly named table of the detector's options that neither the last
    look at the source nor any before it has found. Nothing is known, and nothing refused, before the first look."""
    options = project.detector(connection)
    seen = store.discoveries.get(connection) if options else None
    if options is None or seen is None:
        return
    known = {".".join(filter(None, path[:2])) for path in seen.denied}
    known |= {t.path for t in (*seen.catalog.tables, *store.accepted.catalog(connection).tables)}
    missing = [(place, name) for place, name in options.named() if not _is_known(name, known)]
    if missing:
        for version in store.schemas.history(connection, "source"):
            known |= {t.path for t in store.schemas.catalog(connection, "source", version.version).tables}
    problems = [
        (project.tree.line(place), f"{dotted(place)}: the source has no table {name!r}{_suggestion(name, known)}")
        for place, name in missing
        if not _is_known(name, known)
    ]
    raise_all(project.file.name, problems, HINT)


def _is_known(name: str, known: set[str]) -> bool:
    return name in known or ("." not in name and any(path.endswith(f".{name}") for path in known))


def _suggestion(name: str, known: set[str]) -> str:
    names = known if "." in name else {path.rpartition(".")[2] for path in known}
    return did_you_mean(name, names, form=", did you mean {!r}?")
