"""The scheduled detector of a connection: how it stands, what each detection counted, and all of its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from instep.project.sections.detector import SHORT, AppOptions, ColumnOptions
from instep.server.problems import ApiProblem
from instep.server.web.forms import action_of
from instep.server.web.rendering import quoted
from instep.server.web.screens.connections import tabs_of
from instep.server.web.undo import options_before, undo_address
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
FREQUENCIES = (
    (1800, "every 30 minutes"),
    (3600, "every hour"),
    (21600, "every 6 hours"),
    (43200, "every 12 hours"),
    (86400, "every 24 hours"),
)
LEVELS = ("schemas", "tables", "columns")
COUNTS = ("new", "deleted", "updated", "unchanged")
ABOUT = {
    "enable_detect_schema_changes": "Detect schema changes by a schedule.",
    "detect_schema_changes_frequency_in_seconds": "The time from one detection to the next.",
    "create_detect_schema_changes_ping_on_each_error": "Detect at once when a sync fails.",
    "propagate_table_creations_to_target_app": "New tables are created at the destination.",
    "auto_unsync_deleted_tables": "Tables deleted at the source stop being synced. Otherwise the connection is paused.",
    "excluded_external_table_names": "Tables to leave out.",
    "excluded_external_table_names_regexes": "Regular expressions of tables to leave out.",
    "propagate_column_creations_to_target_app": "New columns are created at the destination.",
    "auto_unsync_deleted_columns": "Columns deleted at the source are dropped. Otherwise the connection is paused.",
    "excluded_external_column_names": "Columns to leave out.",
    "excluded_external_column_names_regexes": "Regular expressions of columns to leave out.",
}


@dataclass(frozen=True)
class DetectorOption:
    """One option as the form shows it."""

    name: str
    label: str
    text: str
    control: str
    value: Any
    chosen: bool
    """It is set; else the value is the default."""


def options_of(model: type[AppOptions] | type[ColumnOptions], chosen: Mapping[str, Any]) -> list[DetectorOption]:
    """Return all options of a model with their values."""
    options = []
    for name, field in model.model_fields.items():
        default = field.default
        control = "flag" if isinstance(default, bool) else "frequency" if isinstance(default, int) else "lines"
        label = SHORT[name].replace("_", " ").capitalize()
        value = chosen.get(name, default)
        options.append(DetectorOption(name, label, ABOUT[name], control, value, name in chosen))
    return options


@pages.page("/connections/{connection}/detector")
async def detector(visit: Visit) -> Response:
    """Show the detector of a connection."""
    return await _show(visit)


@pages.form("/connections/{connection}/detector", "approver")
async def set_options(visit: Visit) -> Response:
    """Preview changed options, or set them."""
    name, table = visit.path["connection"], visit.sent("table").strip()
    rehearsed = visit.sent("button") == "preview"
    try:
        if visit.sent("of_tables") and not table:
            raise ApiProblem(422, "invalid", "no pattern of tables is given", "write one, such as public.* or *.orders")
        document = await visit.api.get(f"/connections/{quoted(name)}/detector")
        model = ColumnOptions if table else AppOptions
        values = _changed(visit, options_of(model, document["tables"].get(table, {}) if table else document["options"]))
        if not values:
            return visit.go(f"/connections/{quoted(name)}/detector", "No option is set otherwise than it was.")
        body = {"values": values, "table": table}
        path = f"/connections/{quoted(name)}/detector/options"
        answer = await visit.api.send("POST", path, body, parameters={"dry_run": rehearsed})
    except ApiProblem as problem:
        return await _show(visit, problem=problem)
    if rehearsed:
        return await _show(visit, preview={"table": table, "values": values, **(answer.document or {})})
    given = {"connection": name, "values": values, "table": table}
    undo = undo_address(action_of("set_detector_options"), given, options_before(document, given))
    return visit.go(f"/connections/{quoted(name)}/detector", f"Done: {len(values)} options of {name} are set.", undo)


def _changed(visit: Visit, options: list[DetectorOption]) -> dict[str, Any]:
    """Return the options that the form has otherwise than they are."""
    changed: dict[str, Any] = {}
    for option in options:
        given: Any
        if option.control == "flag":
            given = visit.sent(option.name) == "true"
        elif option.control == "frequency":
            given = int(visit.sent(option.name)) if visit.sent(option.name).isdigit() else option.value
        else:
            given = [line.strip() for line in visit.sent(option.name).splitlines() if line.strip()]
        if given != (list(option.value) if option.control == "lines" else option.value):
            changed[option.name] = given
    return changed


async def _show(visit: Visit, *, problem: ApiProblem | None = None, preview: Any = None) -> Response:
    name = visit.path["connection"]
    base = f"/connections/{quoted(name)}"
    answer = await visit.api.send("GET", f"{base}/detector")
    details = await visit.api.get(base)
    past = await visit.api.get("/events", connection=name, type="detection.finished", limit=20)
    status = answer.document
    action = action_of("set_detector_options")
    why_not = "" if visit.may(action.role) else f"it needs the role {action.role}; you are {visit.caller.key.role}"
    if details["managed_by"] == "file":
        why_not = f"{name} is managed by the project file: set them there as app_options and table_options"
    return await visit.render(
        "detector.html",
        problem.status if problem else 200,
        problem=problem,
        preview=preview,
        name=name,
        tabs=tabs_of(visit, name, "/detector"),
        detector=status,
        etag=answer.etag,
        connection=details,
        detections=past["items"],
        levels=LEVELS,
        counts=COUNTS,
        frequencies=FREQUENCIES,
        options=options_of(AppOptions, status["options"]),
        tables=[(pattern, options_of(ColumnOptions, chosen)) for pattern, chosen in status["tables"].items()],
        new_table=options_of(ColumnOptions, {}),
        why_not=why_not,
    )
