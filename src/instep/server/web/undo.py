"""Undo in notices: the form that takes an operation back once it is done, and what a form says of it before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from instep.project.documents import MASK, PLURALS, texts
from instep.server.problems import ApiProblem
from instep.server.web.forms import Action
from instep.server.web.rendering import query, quoted
from instep.server.web.visit import Visit

LONGEST = 2000
"""Characters of an address that takes something back: it is kept in a cookie."""
_Values = Mapping[str, Any]


def undo_address(action: Action, values: _Values, before: Any = None, document: _Values | None = None) -> str:
    """Return the address that takes an operation back once it is done; "" where nothing does.

    `before`: what it has replaced, as `before_of` returns it. `document`: what the API has answered.
    """
    make = _UNDO.get(action.name)
    link = make(action, values, before, document or {}) if make else ""
    return link if len(link) <= LONGEST else ""


async def before_of(visit: Visit, action: Action, values: _Values) -> Any:
    """Return what an operation is about to replace, as far as taking it back needs it; None if there is nothing."""
    if action.name == "assign_change":
        return (await visit.api.get(f"/changes/{quoted(values['change'])}"))["assignee"]
    if action.name == "set_detector_options":
        return options_before(await visit.api.get(f"/connections/{quoted(values['connection'])}/detector"), values)
    if _UNDO.get(action.name) is not _restored:
        return None
    try:
        return (await visit.api.get(action.address(values)))["spec"]
    except ApiProblem as problem:
        if problem.status == 404:
            return None
        raise


def options_before(detector: _Values, values: _Values) -> dict[str, Any]:
    """Return the detector's options that are about to be set, as they are; None for those that are not set."""
    table = values.get("table")
    known = detector["tables"].get(table, {}) if table else detector["options"]
    return {name: known.get(name) for name in values.get("values") or {}}


def undo_of_answers(answer: str, ids: Sequence[str], before: Iterable[str] = ()) -> str:
    """Return the address that takes an answer to these changes back; "" if they are more than it can name. `before`:
    who looked after them; an assignment is taken back where it was the same for all."""
    assignees, address = set(before), ""
    if ids and answer != "assigned":
        address = query("/do/reopen_changes", ids=ids)
    elif ids and len(assignees) == 1:
        address = query("/do/assign_changes", ids=ids, assignee=assignees.pop())
    return address if len(address) <= LONGEST else ""


async def assignees_of(visit: Visit, ids: Sequence[str]) -> list[str]:
    """Return who looks after each of these changes; none if they are more than an undo can name."""
    if not undo_of_answers("assigned", ids, [""]):
        return []
    return [(await visit.api.get(f"/changes/{quoted(one)}"))["assignee"] for one in ids]


def undo_of_switches(name: str, done: Sequence[_Values], back: str) -> str:
    """Return the address that turns switches back; "" if they are more than it can name."""
    turned = {one["verb"]: [step["object"] for step in one["objects"] if step["changed"]] for one in done}
    on, off = turned.get("off", []), turned.get("on", [])
    address = query(f"/connections/{quoted(name)}/schema", turn_on=on, turn_off=off, back=back) if on or off else ""
    return address if len(address) <= LONGEST else ""


def filter_fields(saved: _Values) -> dict[str, Any]:
    """Return a saved filter as the fields of the inbox."""
    given = {**saved, "kind": "".join(saved.get("kind", ())[:1])}
    return {"tab": given.pop("view", None) or "review", **given}


def undo_of_filter(name: str, before: _Values | None) -> str:
    """Return the address that saves the filter of this name as it was, or deletes it if there was none."""
    given = filter_fields(before) if before is not None else {"gone": "true"}
    address = query("/changes/filters", name=name, **given)
    return address if len(address) <= LONGEST else ""


def undo_note(action: Action) -> str:
    """Return what a form says before about taking its operation back; "" for one that changes nothing."""
    if action.name in _NOTES:
        return _NOTES[action.name]
    if action.name in _UNDO:
        return "The notice that follows offers to undo it."
    if action.immediate:
        return "It cannot be undone here."
    return "It becomes a job, which can be cancelled until it ends."


def _reopened(action: Action, values: _Values, before: Any, document: _Values) -> str:
    return query("/do/reopen_change", change=values["change"])


def _assigned(action: Action, values: _Values, before: Any, document: _Values) -> str:
    return query("/do/assign_change", change=values["change"], assignee=before)


def _resumed(action: Action, values: _Values, before: Any, document: _Values) -> str:
    return query("/do/resume", connection=values["connection"], table=values.get("table"))


def _paused(action: Action, values: _Values, before: Any, document: _Values) -> str:
    given = {"connection": values["connection"], "table": values.get("table")}
    return query("/do/pause", **given, reason="its resuming was undone")


_OPPOSITE = {"on": "off", "off": "on", "hash": "unhash", "unhash": "hash"}


def _switched(action: Action, values: _Values, before: Any, document: _Values) -> str:
    objects = [one["object"] for one in document.get("objects", ()) if one["changed"]]
    verb = _OPPOSITE[values["verb"]]
    given = {"connection": values["connection"], "verb": verb, "objects": objects}
    return query("/do/switch_selection", **given) if objects else ""


def _options(action: Action, values: _Values, before: Any, document: _Values) -> str:
    given = {"connection": values["connection"], "table": values.get("table"), "values": json.dumps(before)}
    return query("/do/set_detector_options", **given) if before else ""


def _restored(action: Action, values: _Values, before: Any, document: _Values) -> str:
    """Save what was there before, unless a secret was replaced, which nobody reads; delete what was not there."""
    kind = action.name.partition("_")[2]
    if not before:
        return _deleted(action, values, before, document) if document.get("created") else ""
    sent = dict(texts(values.get("spec") or {}))
    if any(text == MASK and sent.get(path, MASK) != MASK for path, text in texts(before)):
        return ""
    return query(f"/do/put_{kind}", **{one: values[one] for one in action.in_path}, spec=json.dumps(before))


def _deleted(action: Action, values: _Values, before: Any, document: _Values) -> str:
    """Delete what was made, which is refused once something uses it. Its name is typed by the notice."""
    kind, name = action.name.partition("_")[2], values["name"]
    if kind == "connection":
        given = {"confirm": name, "tables": "keep", "unused": "true"}
        return query(f"/connections/{quoted(name)}/delete", **given)
    back = {"policy": "/policies", "channel": "/notifications/channels"}.get(kind, "/setup")
    return query(f"/do/delete_{kind}", name=name, typed=name, back=back)


_Undo = Callable[[Action, _Values, Any, _Values], str]
_UNDO: Mapping[str, _Undo] = {
    **dict.fromkeys(("approve_change", "reject_change", "ignore_change", "snooze_change"), _reopened),
    "assign_change": _assigned,
    "pause": _resumed,
    "resume": _paused,
    "switch_selection": _switched,
    "set_detector_options": _options,
    "put_settings": _restored,
    "patch_settings": _restored,
    **{f"create_{kind}": _deleted for kind in PLURALS},
    **{f"{verb}_{kind}": _restored for verb in ("put", "patch") for kind in PLURALS if kind != "connection"},
}
"""The operations that a notice takes back, and how."""
_READING = (
    *("test_channel", "import_configuration", "test_source", "test_destination", "discover_source"),
    *("plan", "verify", "impact", "sample_rename", "preview_change", "tables", "list_savepoints"),
)
_NOTES: Mapping[str, str] = {
    "reopen_change": "Answer the change again to take it back.",
    "reopen_changes": "Answer the changes again to take it back.",
    "create_key": "You can revoke the key afterwards.",
    "make_sign_in_link": "The link ends when it is used, or after 15 minutes.",
    "create_rollout": "It changes nothing before its first wave is started.",
    "save_filter": "You can delete the filter afterwards.",
    "comment_change": "A comment stays.",
    "discard_quarantine": "It becomes a job. Originals that it has deleted cannot be brought back.",
    "erase": "It becomes a job. What it has erased cannot be brought back.",
    **dict.fromkeys(_READING, ""),
}
