"""What a form does, as text for other faces: the command, Python, and the request with curl."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from instep.server.access import PREFIX
from instep.server.web.forms import Action

Values = Mapping[str, Any]


def copies(action: Action, values: Values, server: str) -> dict[str, str]:
    """Return the same request as `CLI`, `Python`, `curl` and `YAML`, as far as there is such a form."""
    command = COMMANDS.get(action.name)
    call = CALLS.get(action.name)
    found = {
        "CLI": command(values) if command else "",
        "Python": f'import instep\n\nproject = instep.open(".")\n{call(values)}' if call else "",
        "curl": curl(action, values, server),
    }
    return {name: text for name, text in found.items() if text}


def curl(action: Action, values: Values, server: str) -> str:
    """Return the request as a command line of curl; the key's secret stays in a variable."""
    body = action.body(values)
    lines = [f"curl -X {action.method} {shlex.quote(server + PREFIX + action.address(values))}"]
    lines.append('-H "Authorization: Bearer $INSTEP_API_KEY"')
    if body:
        lines += ['-H "Content-Type: application/json"', f"-d {shlex.quote(json.dumps(body))}"]
    return " \\\n  ".join(lines)


def _command(*words: str, **options: str) -> Callable[[Values], str]:
    """Return what writes a command: words with {field} in them, then an option for each field that is given."""

    def write(values: Values) -> str:
        parts = ["instep", *(shlex.quote(one) for word in words for one in _filled(word, values) if one)]
        for name, option in options.items():
            value = values.get(name)
            if value in (None, "", False, [], ()):
                continue
            if value is True:
                parts.append(option)
            else:
                each = value if isinstance(value, list | tuple) else [value]
                parts += [f"{option} {shlex.quote(str(one))}" for one in each]
        return " ".join(parts)

    return write


def _filled(word: str, values: Values) -> list[str]:
    """Return the words that a word becomes: several where its field has several values."""
    if isinstance(several := values.get(word.strip("{}")), list | tuple):
        return [str(one) for one in several]
    known = defaultdict(str, {name: "" if value is None else value for name, value in values.items()})
    return [word.format_map(known)]


def _call(text: str) -> Callable[[Values], str]:
    """Return what writes a call: {field} becomes its value as Python writes it, and ... where none is given."""
    return lambda values: text.format_map(defaultdict(lambda: "...", {name: repr(one) for name, one in values.items()}))


_REASON = {"why": "--why"}
COMMANDS: Mapping[str, Callable[[Values], str]] = {
    "approve_change": _command("changes", "approve", "{change}"),
    "reject_change": _command("changes", "reject", "{change}"),
    "ignore_change": _command("changes", "ignore", "{change}"),
    "snooze_change": _command("changes", "snooze", "{change}", duration="--for", until="--until"),
    "comment_change": _command("changes", "comment", "{change}", "{text}"),
    "assign_change": _command("changes", "assign", "{change}", "{assignee}"),
    "sync": _command("sync", "{connection}"),
    "detect": _command("detect", "{connection}"),
    "plan": _command("plan", "{connection}"),
    "pause": _command("pause", "{connection}", reason="--reason"),
    "resume": _command("resume", "{connection}"),
    "backfill": _command("backfill", "{table}", connection="-c", columns="--column"),
    "verify": _command("verify", "{connection}", tables="-t"),
    "maintain": _command("maintain", "{connection}", tables="-t"),
    "undo": _command("undo", "{what}", connection="-c", allow="--allow-destructive"),
    "replay_quarantine": _command("quarantine", "replay", "{tables}", connection="-c", column="--column"),
    "discard_quarantine": _command("quarantine", "discard", "{tables}", "{ids}", connection="-c"),
    "switch_selection": _command("selection", "{verb}", "{objects}", connection="-c", matching="--match"),
    "enable_detector": _command("detector", "enable", "{connection}"),
    "cancel_job": _command("queue", "cancel", "{job}"),
    "retry_job": _command("queue", "retry", "{job}"),
}
CALLS: Mapping[str, Callable[[Values], str]] = {
    "approve_change": _call("project.approve({change})"),
    "reject_change": _call("project.reject({change})"),
    "ignore_change": _call("project.ignore({change})"),
    "comment_change": _call("project.comment({change}, {text})"),
    "assign_change": _call("project.assign({change}, {assignee})"),
    "sync": _call("project.connection({connection}).sync()"),
    "detect": _call("project.connection({connection}).detect()"),
    "plan": _call("project.connection({connection}).plan()"),
    "pause": _call("project.connection({connection}).pause({reason})"),
    "resume": _call("project.connection({connection}).resume()"),
}
