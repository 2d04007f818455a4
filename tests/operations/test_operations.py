"""Every operation's specification holds together: its name, its work, its request and the body that is made of it."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import pytest

from instep import operations
from instep.errors import InstepError, ProjectError
from instep.operations.everyday.apply import ApplyRequest
from instep.operations.everyday.sync import SyncRequest
from instep.operations.everyday.tables import LastTableRun, TablesRequest, TablesResult
from instep.operations.immediate.govern import CreateKeyRequest, RotateKeyRequest
from instep.operations.immediate.rollouts import RolloutGroup
from instep.operations.immediate.work import PauseRequest, SetDetectorOptionsRequest
from instep.operations.queries.history import GetObjectHistory, ListRuns
from instep.operations.queries.quarantine import MatchQuarantined
from instep.operations.registry import policy_of, result_of, spec_for, spec_of, specs, work_of
from instep.operations.repair.restore import RestoreRequest
from instep.operations.repair.set_key import SetKeyRequest
from instep.operations.spec import (
    DirectWork,
    OperationSpec,
    Options,
    Request,
    Work,
    check_served,
    document_of,
    served_fields,
)
from instep.operations.values import NumberRange, leads_to
from instep.server.requests import request_model

ALL = pytest.mark.parametrize("spec", specs().values(), ids=specs())
_WITH_BODIES = [one for one in specs().values() if one.request is not Request]
ASKED = pytest.mark.parametrize("spec", _WITH_BODIES, ids=lambda one: one.name)
FOLDER = Path(operations.__file__).parent


def test_each_file_is_one_operation_or_a_part_of_all() -> None:
    modules = {path.stem for path in FOLDER.rglob("*.py") if path.parent.name not in ("queries", "immediate")}
    assert modules - {"__init__", "spec", "registry", "values", "kinds"} == {spec.name for spec in specs().values()} - {
        "refresh",
        "reload",
    }


def test_the_room_needs_the_standard_library_and_errors_alone() -> None:
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                own = name in ("instep", "instep.errors") or name.startswith("instep.operations")
                assert own or name.partition(".")[0] in sys.stdlib_module_names, (path.name, name)


@ALL
def test_its_work_is_a_function_that_is_there(spec: OperationSpec) -> None:
    module, _, name = spec.work.partition(":")
    assert callable(getattr(import_module(module), name))


@ASKED
def test_each_field_has_a_text_and_says_what_it_leads_to(spec: OperationSpec) -> None:
    model, served = request_model(spec.request), served_fields(spec.request)
    assert set(model.model_fields) == set(served)
    for name, hint in get_type_hints(spec.request, include_extras=True).items():
        assert leads_to(hint)
        assert name not in served or model.model_fields[name].description, f"{spec.request.__name__}.{name}"
    assert list(model.model_fields)[-1] == "why", "the reason comes last"


def test_a_name_that_no_operation_has_is_an_error_with_the_names_there_are() -> None:
    with pytest.raises(InstepError, match="there is no operation 'reboot'") as told:
        policy_of("reboot")
    assert "restore" in told.value.hint
    assert spec_of("restore").request is RestoreRequest


OPTIONS: list[tuple[Request, dict[str, Any]]] = [
    (SyncRequest(), {}),
    (SyncRequest(why="because"), {}),
    (SyncRequest(tables=("a.b",), full=True), {"tables": ["a.b"], "full": True}),
    (SetKeyRequest(table="a.b", key=("id",)), {"table": "a.b", "key": ["id"]}),
    (RestoreRequest(table="a.b", at=datetime(2026, 3, 1, 8)), {"table": "a.b", "at": "2026-03-01T08:00:00+00:00"}),
    (
        RestoreRequest(table="a.b", at=datetime(2026, 3, 1, 8, tzinfo=timezone(timedelta(hours=2)))),
        {"table": "a.b", "at": "2026-03-01T08:00:00+02:00"},
    ),
]


@pytest.mark.parametrize(("request_", "expected"), OPTIONS)
def test_options_are_what_is_not_so_by_default(request_: Request, expected: dict[str, Any]) -> None:
    assert request_.options() == expected
    assert json.loads(json.dumps(expected)) == expected


@pytest.mark.parametrize("said", [{}, {"snapshot": "7", "at": datetime(2026, 3, 1, tzinfo=UTC)}])
def test_fields_that_do_not_go_together_make_no_request(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="name one"):
        RestoreRequest(table="a.b", **said)


UNSAID: list[Any] = [str, Annotated[str, NumberRange(1, 2)], tuple[str, ...], list[str], bytes]


@pytest.mark.parametrize("hint", UNSAID)
def test_a_text_must_say_what_it_leads_to(hint: Any) -> None:
    with pytest.raises(TypeError, match="does not say what it leads to"):
        leads_to(hint)


@ASKED
def test_a_request_is_what_its_body_says(spec: OperationSpec) -> None:
    """All fields without a default are in the body's `required`, and no other field is let in."""
    schema = request_model(spec.request).model_json_schema()
    needed = [one.name for one in fields(spec.request) if one.default is MISSING]
    assert (schema.get("required", []), schema["additionalProperties"]) == (needed, False)


@pytest.mark.parametrize("request_", [one for one, _ in OPTIONS])
def test_a_request_is_read_again_from_its_options(request_: Request) -> None:
    """Its reason is for the audit log alone, and a time without an offset is UTC."""
    again = type(request_).of_options(json.loads(json.dumps(request_.options())))
    assert again.options() == request_.options()
    assert again.why == ""


CLASSES = [one for one in specs().values() if isinstance(work_of(one), type)]
WORKS = [one for one in CLASSES if not one.result]
DIRECT = [one for one in CLASSES if one.result]


@pytest.mark.parametrize("spec", WORKS, ids=lambda one: one.name)
def test_what_is_shown_first_can_be_previewed(spec: OperationSpec) -> None:
    assert issubclass(work_of(spec), Work)
    assert "preview" in {one.name for one in fields(spec.request)}
    assert spec_for(spec.request(**_least(spec.request))) is spec


def _least(record: type[Request]) -> dict[str, Any]:
    """The fields that a request cannot do without."""
    needed = [one.name for one in fields(record) if one.default is MISSING]
    said: dict[str, Any] = {name: ("id",) if name == "key" else "a.b" for name in needed}
    return {**said, "snapshot": "7"} if record is RestoreRequest else said


@pytest.mark.parametrize("spec", DIRECT, ids=lambda one: one.name)
def test_what_is_done_at_once_answers_a_record(spec: OperationSpec) -> None:
    assert issubclass(work_of(spec), DirectWork)
    assert is_dataclass(result_of(spec))


def test_what_holds_rows_is_asked_for_at_the_project_alone() -> None:
    """Neither the body of a request has it, nor does a job's options make a worker read rows."""
    check_served(TablesRequest(table="a.b"))
    with pytest.raises(ProjectError, match="rows do not pass through a server: `preview` works only in the project"):
        check_served(TablesRequest(table="a.b", preview=1))
    assert "preview" not in request_model(TablesRequest).model_fields


def test_what_the_product_says_by_itself_is_in_no_body() -> None:
    """A worker does it all the same."""
    request = ApplyRequest(plan="j-1", document={"plan": {}})
    assert "document" not in request_model(ApplyRequest).model_fields
    assert "document" in request.options()
    check_served(request)


def test_a_server_takes_no_plan_from_outside() -> None:
    ApplyRequest(plan="j-1").check_remote()
    with pytest.raises(InstepError, match="this plan was not made by the server"):
        ApplyRequest(plan="", document={"plan": {}}).check_remote()


def test_a_preview_is_of_one_table() -> None:
    with pytest.raises(ValueError, match="name the `table`"):
        TablesRequest(preview=5)


def test_a_record_is_a_document_of_plain_values() -> None:
    last = LastTableRun("r-1", "sync", "done", datetime(2026, 3, 1, tzinfo=UTC))
    found = document_of({"last": (last,)})
    assert found == {"last": [{"run": "r-1", "kind": "sync", "status": "done", "at": "2026-03-01T00:00:00+00:00"}]}
    assert document_of(TablesResult("shop", (), notes=("a",))) == {
        "connection": "shop", "tables": [], "columns": [], "notes": ["a"], "preview": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: PauseRequest("shop", "x" * 501), "reason has 501 characters, not 1 to 500"),
        (lambda: PauseRequest("shop", ""), "reason has 0 characters"),
        (lambda: PauseRequest("shop", "x", ("main",)), "table has 1 entries, not 2 to 2"),
        (lambda: PauseRequest("shop", "x", ("main", "y" * 201)), "table has 201 characters"),
        (lambda: RotateKeyRequest("k-1", overlap_hours=2161), "overlap_hours is 2,161, not 0 to 2,160"),
        (lambda: CreateKeyRequest("ci", "viewer", days=0), "days is 0"),
        (lambda: RolloutGroup(tags=("x" * 201,)), "tags has 201 characters"),
        (lambda: SetDetectorOptionsRequest("shop", {}), "values has 0 entries"),
        (lambda: SetDetectorOptionsRequest("shop", {"excluded_tables": ("x" * 201,)}), "values has 201 characters"),
    ],
)
def test_what_is_done_at_once_has_bounds_at_the_project_too(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(InstepError, match=problem):
        make()
    PauseRequest("shop", "x" * 500, ("", "item"))
    SetDetectorOptionsRequest("shop", {"frequency": 1800, "enable": True, "excluded_tables": None})


OUT_OF_BOUNDS: list[tuple[type[Options], dict[str, Any], str]] = [
    (SyncRequest, {"tables": ("",)}, "tables has 0 characters, not 1 to 200"),
    (SyncRequest, {"tables": ("a.b",) * 10_001}, "tables has 10,001 entries, not 0 to 10,000"),
    (SyncRequest, {"why": "x" * 1001}, "why has 1,001 characters, not 0 to 1,000"),
    (RestoreRequest, {"table": "a.b", "snapshot": "x"}, "snapshot does not match"),
    (SetKeyRequest, {"table": "a.b", "key": ("id",), "way": "swap"}, "way is 'swap', not one of rekey, rebuild, clear"),
    (SyncRequest, {"why": 3}, "why is of type int, not str"),
    (ListRuns, {"status": ("gone",)}, "status is 'gone', not one of running, done"),
    (ListRuns, {"connection": ""}, "connection has 0 characters"),
    (TablesRequest, {"table": "a.b", "preview": 101}, "preview is 101, not 0 to 100"),
    (MatchQuarantined, {"connection": "c", "table": "a.b", "key": {}}, "key has 0 entries, not 1 to 100"),
    (MatchQuarantined, {"connection": "c", "table": "a.b", "key": {"id": "x" * 10_001}}, "key has 10,001 characters"),
]


def test_columns_to_drop_have_room() -> None:
    """As many as the tables have, with names of any length."""
    paths = tuple(f"shop.{'t' * 128}.{'c' * 128}{n}" for n in range(500))
    assert SyncRequest(drop_columns=paths).drop_columns == paths


def test_the_last_bounds_of_a_type_count() -> None:
    assert GetObjectHistory("c", "x" * 500).of
    with pytest.raises(InstepError, match="of has 501 characters, not 1 to 500"):
        GetObjectHistory("c", "x" * 501)


@pytest.mark.parametrize(("record", "said", "why"), OUT_OF_BOUNDS)
def test_bounds_are_those_of_a_server_at_the_project_too(record: type[Options], said: dict[str, Any], why: str) -> None:
    with pytest.raises(InstepError) as refused:
        record(**said)
    assert why in refused.value.message
