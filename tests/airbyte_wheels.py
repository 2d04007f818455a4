"""Packages of a small connector, as wheels that pip finds without an index."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CODE = """
import json, sys

SCRIPT = json.loads(%r)

def given(name):
    return json.load(open(sys.argv[sys.argv.index(name) + 1])) if name in sys.argv else None

def say(kind, **body):
    print(json.dumps({"type": kind, **body}), flush=True)

def run():
    command = sys.argv[1]
    for message in SCRIPT.get("messages", {}).get(command, []):
        print(message if isinstance(message, str) else json.dumps(message), flush=True)
    if code := SCRIPT.get("exit", {}).get(command):
        sys.exit(code)
    if command == "spec":
        say("SPEC", spec={"connectionSpecification": SCRIPT.get("specification", {})})
    elif command == "check":
        say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
    elif command == "discover":
        say("CATALOG", catalog={"streams": SCRIPT["streams"]})
    else:
        before = {s["stream"]["stream_descriptor"]["name"]: s["stream"]["stream_state"] for s in given("--state") or []}
        for configured in given("--catalog")["streams"]:
            name = configured["stream"]["name"]
            first = before.get(name, {"at": 0})["at"]
            for number in range(first + 1, first + 4):
                columns = configured["stream"]["json_schema"]["properties"]
                row = {c: number if one["type"] == "integer" else str(number) for c, one in columns.items()}
                say("RECORD", record={"stream": name, "data": row, "emitted_at": 1})
            descriptor = {"name": name}
            state = {"stream_descriptor": descriptor, "stream_state": {"at": first + 3, "by": SCRIPT["version"]}}
            say("STATE", state={"type": "STREAM", "stream": state})
            status = {"stream_descriptor": descriptor, "status": "COMPLETE"}
            say("TRACE", trace={"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": status})
"""
INTEGER: Mapping[str, Any] = {"type": "integer"}
TEXT: Mapping[str, Any] = {"type": "string"}


def stream(name: str = "users", /, *, key: Sequence[str] = ("id",), incremental: bool = True, **more: Any) -> Any:
    """A stream with an integer `id`; `more` are its properties, and `cursor` and `namespace` of the stream itself."""
    own = {k: more.pop(k) for k in ("namespace", "default_cursor_field") if k in more}
    return {
        "name": name,
        "json_schema": {"type": "object", "properties": {"id": INTEGER, **more}},
        "supported_sync_modes": ["full_refresh", *(["incremental"] if incremental else [])],
        "source_defined_cursor": incremental,
        "source_defined_primary_key": [[k] for k in key],
        **own,
    }


def connector_wheel(folder: Path, version: str, name: str = "airbyte-source-shop", **script: Any) -> None:
    """A connector whose answers are in `script`: streams, specification, messages and exit codes by command."""
    code = CODE % json.dumps({"streams": [stream(name=TEXT)], "version": version, **script})
    module = name.removeprefix("airbyte-").replace("-", "_")
    points = f"[console_scripts]\n{module.replace('_', '-')} = {module}:run\n"
    wheel(folder, name, version, {f"{module}.py": code}, points=points)


def wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], *, points: str = "", requires: Sequence[str] = ()
) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    needed = "".join(f"Requires-Dist: {one}\n" for one in requires)
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **({f"{info}/entry_points.txt": points} if points else {}),
    }
    lines = [f"{one},sha256={_digest(text)},{len(text.encode())}" for one, text in content.items()]
    record = "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        for one, text in {**content, f"{info}/RECORD": record}.items():
            file.writestr(one, text)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
