"""A form's operation as text for other faces: the command, Python, the request with curl, and YAML for the project
file.

No secret is in a copy: a value of a secret field is asked for where the copy runs.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from instep.errors import InstepError
from instep.operations.values import ObjectKind
from instep.project.documents import PLURALS, parent_of, plain_secrets, replaced, value_at
from instep.server.access import PREFIX
from instep.server.web.forms import Action

Values = Mapping[str, Any]
_VERBS = {"approved": "approve", "rejected": "reject", "ignored": "ignore"}


class HiddenValue(str):
    """Stands for a secret: a place to fill in, and in Python a question."""

    def __repr__(self) -> str:
        return f"getpass({str(self)[1:-1] + ': '!r})"


def copies(action: Action, values: Values, server: str) -> dict[str, str]:
    """Return the same request as `CLI`, `Python` and `curl`, and as `YAML` where it writes an object or a selection."""
    shown = _without_secrets(action, values)
    texts = {
        "CLI": "\n".join(COMMANDS[action.name](shown)) if action.name in COMMANDS else "",
        "Python": _python(action, shown),
        "curl": curl(action, shown, server),
        "YAML": _yaml(action, values),
    }
    return {name: text for name, text in texts.items() if text}


def curl(action: Action, values: Values, server: str) -> str:
    """Return the request as a command line of curl; the key's secret stays in a variable."""
    body = action.body(values)
    lines = [f"curl -X {action.method} {shlex.quote(server + PREFIX + action.address(values))}"]
    lines.append('-H "Authorization: Bearer $INSTEP_API_KEY"')
    if body:
        lines += ['-H "Content-Type: application/json"', f"-d {shlex.quote(json.dumps(body))}"]
    return " \\\n  ".join(lines)


def _without_secrets(action: Action, values: Values) -> dict[str, Any]:
    """Return the values with places to fill in instead of secrets."""
    hidden = {
        field.name: HiddenValue(f"<{field.label.lower()}>") for field in action.fields if field.control == "secret"
    }
    document: dict[str, Any] = {one.name: hidden.get(one.name, values.get(one.name)) for one in action.fields}
    for name in (one.name for one in action.fields if one.hidden and isinstance(document[one.name], dict)):
        document[name] = {key: {} for key in document[name]}
    if (kind := kind_of(action)) and isinstance(document.get("spec"), dict):
        document["spec"] = hide(kind, _name(values), document["spec"], lambda path: HiddenValue(f"<{path[-1]}>"))
    return document


def kind_of(action: Action) -> ObjectKind | None:
    """Return the kind of object whose document an operation writes."""
    kind = "connection" if action.name.endswith("_settings") else action.name.partition("_")[2]
    return next((one for one in PLURALS if one == kind), None) if _writes(action) else None


def _writes(action: Action) -> bool:
    return any(field.name == "spec" for field in action.fields)


def hide(kind: ObjectKind, name: str, spec: Mapping[str, Any], place: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a document with something else in the place of each secret in plain text."""
    try:
        paths = plain_secrets(kind, name, spec)
    except InstepError:
        return {"type": spec.get("type")}
    stars = [path for path in _paths(spec) if value_at(spec, path) == "******"]
    return replaced(spec, {path: place(path) for path in [*paths, *stars] if parent_of(spec, path) is not None})


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(item, (*path, key))
    else:
        yield path


def _name(values: Values) -> str:
    return str(values.get("name") or values.get("connection") or "")


def _yaml(action: Action, values: Values) -> str:
    if (kind := kind_of(action)) and isinstance(values.get("spec"), dict):
        return yaml_of(kind, _name(values), values["spec"], values.get("tags"))
    if action.name == "switch_selection":
        keys = _selection_keys(values)
        return _dumped({"connections": {values["connection"]: keys}}) if keys else ""
    return ""


def yaml_of(kind: ObjectKind, name: str, spec: Mapping[str, Any], tags: Any = None) -> str:
    """Return an object as instep.yml has it: secrets are references to variables that have yet to be set."""

    def reference(path: tuple[Any, ...]) -> str:
        return f"${{env:{re.sub(r'[^A-Z0-9]', '_', '_'.join((name, *map(str, path))).upper())}}}"

    more = {"tags": list(tags)} if tags and kind == "connection" else {}
    return _dumped({PLURALS[kind]: {name: {**hide(kind, name, spec, reference), **more}}})


def _selection_keys(values: Values) -> dict[str, Any]:
    """Return the keys of a connection that say the same as a switch; none for what a file cannot say."""
    paths, verb = [*(values.get("objects") or ()), *(values.get("matching") or ())], values.get("verb")
    if verb == "hash":
        return {"hash": paths}
    if verb == "on":
        return {"tables": {path: {"enabled": True} for path in paths if path.count(".") == 1}}
    if verb == "off":
        columns = [path for path in paths if path.count(".") > 1]
        tables = [path if "." in path else f"{path}.*" for path in paths if path not in columns]
        return {
            "exclude": {name: patterns for name, patterns in (("tables", tables), ("columns", columns)) if patterns}
        }
    return {}


def _dumped(document: Any) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


# Python


def _python(action: Action, values: Values) -> str:
    if action.name not in CALLS and not action.immediate:
        return ""
    call = CALLS[action.name](values) if action.name in CALLS else _performed(action, values)
    questions = "from getpass import getpass\n\n" if "getpass(" in call else ""
    return f'{questions}import instep\n\nwith instep.open(".") as project:\n    {call}\n'


def _performed(action: Action, values: Values) -> str:
    given = {**{name: values[name] for name in action.in_path if name in values}, **action.body(values)}
    return f"project.perform({', '.join([repr(action.name), *_keywords(given)])})"


def _keywords(values: Values) -> Iterator[str]:
    yield from (f"{name}={value!r}" for name, value in values.items())


def _call(text: str, **keywords: str) -> Callable[[Values], str]:
    """Return a writer of calls: {field} becomes its value as Python writes it, and {} the given arguments of
    `keywords`: the name of each by the field that has its value."""

    def write(values: Values) -> str:
        given = {keywords[name]: values[name] for name in keywords if values.get(name) not in _UNSAID}
        fields = {name: repr(value) for name, value in values.items()}
        return (text if given else text.replace(", {}", "")).format(", ".join(_keywords(given)), **fields)

    return write


def _of_each_table(write: Callable[[Values], str], values: Values) -> str:
    return "\n    ".join(write({**values, "table": table}) for table in values.get("tables") or [None])


_UNSAID: tuple[Any, ...] = (None, "", False, [], ())
_CONNECTION = "project.connection({connection})"
_TABLE = _CONNECTION + ".table({table})"
CALLS: Mapping[str, Callable[[Values], str]] = {
    "sync": _call(
        f"{_CONNECTION}.sync({{}})",
        tables="tables",
        full="full",
        drop_retained="drop_retained",
        drop_columns="drop_columns",
    ),
    "detect": _call(f"{_CONNECTION}.detect()"),
    "plan": _call(f"{_CONNECTION}.plan({{}})", sample="sample"),
    "apply": _call(f"{_CONNECTION}.plan().apply({{}})", allow="allow"),
    "impact": _call(f"{_CONNECTION}.impact({{}})", change="change", dialect="dialect"),
    "preview_change": _call(f"{_CONNECTION}.preview_change({{change}})"),
    "publish_change": _call(
        f"{_CONNECTION}.publish_change({_CONNECTION}.preview_change({{change}}), {{}})", allow="allow"
    ),
    "sample_rename": _call(f"{_CONNECTION}.sample_rename({{change}})"),
    "declare_rename": _call(f"{_CONNECTION}.declare_rename({{old}}, {{new}})"),
    "tables": lambda values: _call(f"{_TABLE}.columns()" if values.get("table") else f"{_CONNECTION}.tables()")(values),
    "verify": _call(f"{_CONNECTION}.verify({{}})", tables="tables"),
    "maintain": _call(f"{_CONNECTION}.maintain({{}})", table="tables", preview="preview"),
    "undo": _call(f"{_CONNECTION}.undo({{what}}, {{}})", allow="allow"),
    "backfill": _call(f"{_TABLE}.backfill({{}})", columns="columns"),
    "list_savepoints": _call(f"{_TABLE}.savepoints()"),
    "repair": _call(f"{_TABLE}.repair({{}})", allow="allow"),
    "restore": _call(f"{_TABLE}.restore({{}})", snapshot="snapshot", at="at", allow="allow"),
    "set_cursor": lambda values: _call(_TABLE + ".set_cursor({column}, {})", start="start")(
        {**values, "column": values.get("column") or None}
    ),
    "upgrade_source": _call(f"{_CONNECTION}.upgrade_source({{}})", to="to", rollback="rollback", metadata="metadata"),
    "set_key": _call(f"{_TABLE}.set_key({{key}}, {{}})", way="way", allow="allow"),
    "replay_quarantine": lambda values: _of_each_table(
        _call(f"{_CONNECTION}.quarantine.replay({{}})", table="table", column="column", preview="preview"), values
    ),
    "discard_quarantine": lambda values: (
        _call(f"{_CONNECTION}.quarantine.discard(*{{ids}})")(values)
        if values.get("ids")
        else _of_each_table(
            _call(f"{_CONNECTION}.quarantine.discard(*{_CONNECTION}.quarantine.entries({{table}}))"), values
        )
    ),
    "erase": _call(f'{_CONNECTION}.quarantine.erase({{table}}, {{{{"COLUMN": "VALUE"}}}})'),
    "approve_change": _call("project.approve({change})"),
    "reject_change": _call("project.reject({change})"),
    "ignore_change": _call("project.ignore({change})"),
    "reopen_change": _call("project.reopen({change})"),
}
"""Calls that are not `perform`: what a job does, and what has a shorter one."""


# The command line


def _command(*words: str, **options: str) -> Callable[[Values], list[str]]:
    """Return a writer of commands: words with {field} in them, then an option for each given field."""

    def write(values: Values) -> list[str]:
        parts = ["instep"]
        for word in words:
            name = word[1:-1] if word.startswith("{") else ""
            given = values.get(name) if name else word
            parts += [shlex.quote(str(one)) for one in _each(given)]
        for name, option in options.items():
            value = values.get(name)
            if value is True:
                parts.append(option)
            else:
                parts += [f"{option} {shlex.quote(str(one))}" for one in _each(value)]
        return [" ".join(parts)]

    return write


def _each(value: Any) -> list[Any]:
    if value in _UNSAID:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _path_of(values: Values) -> dict[str, Any]:
    """Return the values with a table of two parts as one path."""
    table = values.get("table")
    return {**values, "table": ".".join(filter(None, table)) if isinstance(table, list | tuple) else table}


def _answers(values: Values) -> list[str]:
    command = _command(
        "changes",
        _VERBS.get(str(values.get("answer")), "approve"),
        "{ids}",
        "{patterns}",
        connection="--connection",
        kinds="--kind",
        tables="--table",
        hash="--hash",
    )
    return command({**values, "hash": values.get("hash") and values.get("answer") == "approved"})


def _assigned(values: Values) -> list[str]:
    command = _command(
        "changes", "assign", "{ids}", "{patterns}", connection="--connection", kinds="--kind", tables="--table"
    )
    return [f"{command(values)[0]} --to {shlex.quote(str(values.get('assignee') or ''))}"]


def _set_key(values: Values) -> list[str]:
    given = {**values, "key": ",".join(_each(values.get("key"))), "option": f"--{values.get('way') or 'rekey'}"}
    return _command(
        "table",
        "set-key",
        "{table}",
        "{key}",
        "{option}",
        connection="--connection",
        allow="--allow-destructive",
        preview="--dry-run",
    )(given)


def _set_cursor(values: Values) -> list[str]:
    given = {**values, "none": not values.get("column")}
    return _command(
        "table",
        "set-cursor",
        "{table}",
        "{column}",
        connection="--connection",
        none="--none",
        start="--from",
        preview="--dry-run",
    )(given)


def _upgraded(values: Values) -> list[str]:
    """Return the command; metadata is a file there."""
    file = "metadata.yaml" if values.get("metadata") else ""
    command = _command(
        "source",
        "upgrade",
        connection="--connection",
        to="--to",
        rollback="--rollback",
        metadata="--metadata",
        preview="--dry-run",
    )
    return [*([f"# {file} has the metadata"] if file else []), *command({**values, "metadata": file})]


def _detector_options(values: Values) -> list[str]:
    options = values.get("values")
    texts = {name: yaml.safe_dump(value).partition("\n")[0] for name, value in options.items()} if options else {}
    given = {**values, "options": [f"{name}={text}" for name, text in texts.items()]}
    return _command("detector", "set", "{options}", connection="--connection", table="--table")(given)


def _replayed(values: Values) -> list[str]:
    command = _command(
        "quarantine", "replay", "{table}", connection="--connection", column="--column", preview="--dry-run"
    )
    return [line for table in values.get("tables") or [None] for line in command({**values, "table": table})]


def _rollout(values: Values) -> list[str]:
    group, change = values.get("group") or {}, values.get("change") or {}
    turns = {
        verb: [one["object"] for one in values.get("selection") or () if one["verb"] == verb]
        for verb in ("on", "off", "hash")
    }
    answer = {change["verdict"]: change["change"]} if change else {}
    given = {**values, **group, **turns, **answer, "sizes": ",".join(_each(values.get("sizes")))}
    return _command(
        "rollout",
        "create",
        on="--on",
        off="--off",
        hash="--hash",
        approved="--approve",
        rejected="--reject",
        preset="--preset",
        destinations="--destination",
        tags="--tag",
        matching="--match",
        connections="--connection",
        sizes="--waves",
        canary="--canary",
        gates="--gate",
    )(given)


FILE = "instep-object.yml"
"""The file that a copied command reads the copied YAML from."""


def _imported(*, replaces: bool) -> Callable[[Values], list[str]]:
    return lambda _: [f"instep import project {FILE}{' --replace' if replaces else ''}  # with the YAML in {FILE}"]


def _changed(_: Values) -> list[str]:
    return [
        f"instep export -o {FILE}",
        f"# change the keys of the YAML in {FILE}",
        f"instep import project {FILE} --replace",
    ]


_KINDS = ("source", "destination", "policy", "channel")
COMMANDS: Mapping[str, Callable[[Values], list[str]]] = {
    **{f"create_{kind}": _imported(replaces=False) for kind in (*_KINDS, "connection")},
    **{f"put_{kind}": _imported(replaces=True) for kind in _KINDS},
    **{f"patch_{kind}": _changed for kind in _KINDS},
    **{f"delete_{kind}": _command("remove", kind, "{name}") for kind in _KINDS},
    "put_settings": _imported(replaces=True),
    "patch_settings": _changed,
    **{
        f"{verb}_change": _command("changes", verb, "{change}", duration="--for", until="--until")
        for verb in ("approve", "reject", "ignore", "snooze", "reopen")
    },
    "answer_changes": _answers,
    "snooze_changes": _command(
        "changes",
        "snooze",
        "{ids}",
        "{patterns}",
        connection="--connection",
        kinds="--kind",
        tables="--table",
        duration="--for",
        until="--until",
    ),
    "reopen_changes": _command(
        "changes", "reopen", "{ids}", "{patterns}", connection="--connection", kinds="--kind", tables="--table"
    ),
    "comment_change": _command("changes", "comment", "{change}", "{text}"),
    "assign_change": lambda values: _assigned({"ids": [values["change"]], "assignee": values.get("assignee")}),
    "assign_changes": lambda values: _assigned(values),
    "switch_selection": _command("selection", "{verb}", "{objects}", matching="--match", connection="--connection"),
    "preview_change": _command("preview", "{change}"),
    "publish_change": _command("preview", "{change}", "--publish", allow="--allow-destructive"),
    "sample_rename": _command("changes", "sample", "{change}"),
    "declare_rename": _command("changes", "map", "{old}", "{new}", connection="--connection"),
    "sync": _command(
        "sync",
        "{connection}",
        tables="--table",
        full="--full",
        drop_retained="--drop-retained",
        drop_columns="--drop-column",
    ),
    "detect": _command("detect", "{connection}"),
    "plan": _command("plan", "{connection}", sample="--sample", all="--all"),
    "apply": _command("apply", "{connection}", allow="--allow-destructive"),
    "impact": _command("impact", "{connection}", change="--change", dialect="--dialect"),
    "tables": _command("tables", "{table}", connection="--connection"),
    "verify": _command("verify", "{connection}", tables="--table"),
    "maintain": _command("maintain", "{connection}", table="--table", preview="--dry-run"),
    "undo": _command("undo", "{what}", connection="--connection", allow="--allow-destructive", preview="--dry-run"),
    "backfill": _command("backfill", "{table}", columns="--column", connection="--connection"),
    "cancel_backfill": lambda values: _command(
        "backfill", "{table}", "--cancel", columns="--column", connection="--connection"
    )(values),
    "list_savepoints": _command("restore", "{table}", "--list", connection="--connection"),
    "repair": _command(
        "repair", "{table}", connection="--connection", allow="--allow-destructive", preview="--dry-run"
    ),
    "restore": _command(
        "restore",
        "{table}",
        connection="--connection",
        snapshot="--snapshot",
        at="--at",
        allow="--allow-destructive",
        preview="--dry-run",
    ),
    "set_cursor": _set_cursor,
    "set_key": _set_key,
    "upgrade_source": _upgraded,
    "replay_quarantine": _replayed,
    "discard_quarantine": _command("quarantine", "discard", "{tables}", "{ids}", connection="--connection"),
    "erase": _command("quarantine", "discard", "{table}", "--key", "COLUMN=VALUE", connection="--connection"),
    "pause": lambda values: _command("pause", "{connection}", table="--table", reason="--reason")(_path_of(values)),
    "resume": lambda values: _command("resume", "{connection}", table="--table")(_path_of(values)),
    "enable_detector": _command("detector", "enable", "{connection}"),
    "set_detector_options": _detector_options,
    "cancel_job": _command("queue", "cancel", "{job}"),
    "retry_job": _command("queue", "retry", "{job}"),
    "create_key": _command("keys", "create", "{name}", role="--role", groups="--group", days="--days"),
    "rotate_key": _command("keys", "rotate", "{key}", overlap_hours="--overlap-hours", days="--days"),
    "revoke_key": _command("keys", "revoke", "{key}"),
    "set_password": _command("keys", "password", "{key}"),
    "change_password": _command("keys", "password"),
    "make_sign_in_link": _command("keys", "link", "{key}"),
    "test_channel": _command("notify", "test", "{name}"),
    "open_channel": _command("notify", "open", "{name}"),
    "retry_delivery": _command("notify", "retry", "{delivery}"),
    "test_source": _command("source", "test", "{name}"),
    "test_destination": _command("destination", "test", "{name}"),
    "discover_source": _command("source", "discover", "{name}", matching="--match"),
    "create_demo": _command("init", "--demo"),
    "import_configuration": lambda values: _command(
        "import", "{product}", "{files}", connectors="--connector", warehouse="--warehouse"
    )({**values, "files": [*(values.get("files") or ("export.json",))]}),
    "create_rollout": _rollout,
    "advance_rollout": _command("rollout", "advance", "{rollout}", every="--all"),
    "resume_rollout": _command("rollout", "resume", "{rollout}", every="--all", accept="--accept"),
    "roll_back_rollout": _command("rollout", "rollback", "{rollout}", wave="--wave", connections="--connection"),
    "stop_rollout": _command("rollout", "stop", "{rollout}", reason="--reason"),
    "skip_connections": _command("rollout", "skip", "{connections}", rollout="--rollout", reason="--reason"),
}
"""By operation: what writes its command. Lines that begin with # are for people."""
