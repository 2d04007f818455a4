"""The requests of Airbyte's protocol that have one answer: `spec`, `check` and `discover`.

Each is a run of the connector's program below the guard, with a limit of time, memory and output. The configuration is
in a private file that is gone afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from instep.errors import InstepError, ProjectError, ReadError
from instep.private import write_private
from instep.project.sections.airbyte import leaves
from instep.sources.airbyte.config import AirbyteConfig
from instep.sources.airbyte.messages import check_message
from instep.sources.airbyte.program import Program, program
from instep.sources.airbyte.specification import Specification, check_configuration
from instep.sources.airbyte.wire import Broken, check_depth, parts_of, without_mark
from instep.sources.connector.child import sandboxed
from instep.sources.connector.config import MIB, Hidden
from instep.sources.connector.dialect import LOCAL_HOST, passed_environment
from instep.sources.connector.environment import cache_folder
from instep.sources.connector.output import LOGGED_LINE, output_lines
from instep.sources.connector.segment import LogLine
from instep.temporary import temporary

LogCallback = Callable[[LogLine], None]
SaveCallback = Callable[[Mapping[str, Any]], None]
"""Is given the configuration that a connector wants to have from now on: rotated tokens."""
SpecificationCallback = Callable[[Specification], None]
"""Is given the connector's specification before anything else is asked of it."""
SECONDS = {"spec": 600.0, "check": 1800.0, "discover": 3600.0}
"""The longest that a request takes, where the limits of the source allow as much."""
MOST_BYTES = 256 << 20
"""The most output of one request."""
_AFTERWARDS = 60.0
"""Seconds that a program may take to end after its answer."""
_END = 30.0
_ANSWERS = {
    "spec": ("SPEC", "spec"),
    "check": ("CONNECTION_STATUS", "connectionStatus"),
    "discover": ("CATALOG", "catalog"),
}
_LEVELS = {
    "FATAL": "error",
    "ERROR": "error",
    "WARN": "warning",
    "WARNING": "warning",
    "DEBUG": "debug",
    "TRACE": "debug",
}
_REPHRASED = ("description", "title", "$comment", "examples", "default", "order", "group")
"""Keys of a JSON Schema that say nothing of the data."""


@dataclass(frozen=True)
class CheckAnswer:
    """The answer to `check`."""

    succeeded: bool
    message: str = ""


@dataclass(frozen=True)
class DiscoveredStreams:
    """The answer to `discover`."""

    streams: tuple[Mapping[str, Any], ...]
    """The streams as the connector describes them."""

    @property
    def fingerprint(self) -> str:
        """Return a fingerprint that differences in texts and orders leave unchanged."""
        parts = sorted(json.dumps(canonical_stream(one), sort_keys=True) for one in self.streams)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def spec(config: AirbyteConfig, log: LogCallback) -> Specification:
    """Return the connector's specification; a package's is cached by its version."""
    installed = program(config, log)
    if installed.manifest is not None:
        own = installed.manifest.get("spec")
        own = own if isinstance(own, Mapping) else {}
        schema = own.get("connection_specification") or {}
        return Specification.of_message(
            {"connectionSpecification": schema, "documentationUrl": own.get("documentation_url")}
        )
    file = _cache_file(installed) if config.package else None
    if file is not None and (known := _cached(file)) is not None:
        return Specification.of_message(known)
    answer = _answer(config, installed, "spec", None, Hidden(secrets_of(config, Specification())), log, _ignore)
    if file is not None:
        _store(file, answer)
    return Specification.of_message(answer)


def check(
    config: AirbyteConfig, log: LogCallback, save: SaveCallback, know: SpecificationCallback = lambda _: None
) -> CheckAnswer:
    """Return whether the connector reaches its source with this configuration; `know` is given its specification.

    Raises ProjectError for a configuration that does not fit the specification, ReadError for a connector that fails.
    """
    answer, hidden = _configured(config, "check", log, save, know)
    return CheckAnswer(answer["status"] == "SUCCEEDED", hidden.clean(str(answer.get("message") or "")))


def discover(
    config: AirbyteConfig, log: LogCallback, save: SaveCallback, know: SpecificationCallback = lambda _: None
) -> DiscoveredStreams:
    """Return the streams that the connector offers. Raises as `check` does; half a catalog is none."""
    answer, _ = _configured(config, "discover", log, save, know)
    return DiscoveredStreams(tuple(answer["streams"]))


def _configured(
    config: AirbyteConfig, command: str, log: LogCallback, save: SaveCallback, know: SpecificationCallback
) -> tuple[Mapping[str, Any], Hidden]:
    """Return the answer, and what its texts must not show: the secrets of each configuration that was in use."""
    specification = spec(config, log)
    know(specification)
    configuration = specification.fitted(config.configuration)
    check_configuration(config.name, specification, configuration)
    hidden = Hidden(secrets_of(config, specification))

    def saved(new: Mapping[str, Any]) -> None:
        save(new)
        hidden.note_given(secrets_of(config.model_copy(update={"configuration": dict(new)}), specification))

    return _answer(config, program(config, log), command, configuration, hidden, log, saved), hidden


def secrets_of(config: AirbyteConfig, specification: Specification) -> list[tuple[str, str]]:
    """Return the values that a connector is given, by name; those that its specification calls secret are so named."""
    marked = [("secret", value) for value in specification.secrets(config.configuration)]
    given = [(name, str(value)) for name, value in leaves(config.configuration) if value is not None]
    return [*marked, *given, *config.environment.items()]


def canonical_stream(stream: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stream without texts for people, and its lists of types and names in one order."""
    canonical = {name: value for name, value in stream.items() if value not in (None, [], {})}
    schema = stream.get("json_schema")
    canonical["json_schema"] = canonical_schema(schema) if isinstance(schema, Mapping) else {}
    canonical["supported_sync_modes"] = sorted(map(str, stream.get("supported_sync_modes") or ()))
    return canonical


def canonical_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema of data in one form: two that allow the same are mostly the same."""
    plain: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _REPHRASED and not isinstance(value, Mapping):
            continue
        if name == "properties" and isinstance(value, Mapping):
            plain[name] = {n: canonical_schema(v) if isinstance(v, Mapping) else v for n, v in sorted(value.items())}
        elif name in ("type", "required", "enum") and isinstance(value, list):
            kinds = sorted({json.dumps(one, sort_keys=True) for one in value})
            plain[name] = (
                json.loads(kinds[0]) if name == "type" and len(kinds) == 1 else [json.loads(one) for one in kinds]
            )
        elif name in ("oneOf", "anyOf", "allOf") and isinstance(value, list):
            parts = [canonical_schema(one) if isinstance(one, Mapping) else one for one in value]
            plain[name] = sorted(parts, key=lambda one: json.dumps(one, sort_keys=True))
        elif isinstance(value, Mapping):
            plain[name] = canonical_schema(value)
        else:
            plain[name] = value
    return plain


def failure(name: str, error: Mapping[str, Any], hidden: Hidden) -> InstepError:
    """Return the error of a TRACE message by its failure type: who has to do something, and whether time helps."""
    message = hidden.clean(str(error.get("message") or error.get("internal_message") or "it failed"))[:LOGGED_LINE]
    match error.get("failure_type"):
        case "config_error":
            return ProjectError(
                f"connector {name}: {message}", hint="correct `configuration` of its source in instep.yml"
            )
        case "transient_error":
            return ReadError(
                f"connector {name}: {message}", hint="it says that this passes: run `instep sync` again later"
            )
    cause = hidden.clean(str(error.get("internal_message") or ""))[:LOGGED_LINE].strip().partition("\n")[0]
    more = f" ({cause})" if cause and cause not in message else ""
    error_read = ReadError(f"connector {name}: {message}{more}", hint=f"check its `configuration`, else {_REPORT}")
    error_read.transient = False
    return error_read


_REPORT = "report it to the connector's maintainers, or use another version; its log has the details"


def log_lines(message: Mapping[str, Any], hidden: Hidden) -> Iterator[LogLine]:
    """Yield a connector's message as log lines, cleaned of secrets."""
    match message.get("type"):
        case "LOG":
            entry = message.get("log")
            entry = entry if isinstance(entry, Mapping) else {}
            level = _LEVELS.get(str(entry.get("level")).upper(), "info")
            yield LogLine(level, hidden.clean(str(entry.get("message") or ""))[:LOGGED_LINE])
        case "TRACE":
            trace = message.get("trace")
            error = trace.get("error") if isinstance(trace, Mapping) else None
            for name in ("internal_message", "stack_trace"):
                if isinstance(error, Mapping) and error.get(name):
                    yield LogLine("error", hidden.clean(str(error[name]))[-LOGGED_LINE:])


def _ignore(configuration: Mapping[str, Any]) -> None:
    """No-op: a connector without a configuration has none to save."""


def _answer(
    config: AirbyteConfig,
    installed: Program,
    command: str,
    configuration: Mapping[str, Any] | None,
    hidden: Hidden,
    log: LogCallback,
    save: SaveCallback,
) -> Mapping[str, Any]:
    """Return the answer to a command; errors and the exit code count as much as the answer."""
    kind, key = _ANSWERS[command]
    answer: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    with _process(config, installed, command, configuration, hidden, log) as process:
        for message in _messages(config.name, command, process.lines()):
            if isinstance(message, str):
                if message.strip():
                    log(LogLine("info", hidden.clean(message)[:LOGGED_LINE], "stdout"))
                continue
            for one in log_lines(message, hidden):
                log(one)
            if message["type"] in (kind, "TRACE", "CONTROL"):
                _check(config.name, command, message)
            if message["type"] == kind:
                answer = message[key]
                process.shorten_timeout()
            elif (new := _new_configuration(message)) is not None:
                save(new)
            elif message["type"] == "TRACE" and message["trace"]["type"] == "ERROR":
                error = message["trace"]["error"]
        ended = process.end()
    failed_check = answer is not None and answer.get("status") == "FAILED"
    if error is not None and not failed_check:
        raise failure(config.name, error, hidden)
    if answer is not None and (failed_check or ended.code in (0, None)):
        return answer
    raise _no_answer(config, command, ended, answered=answer is not None)


def _check(name: str, command: str, message: Mapping[str, Any]) -> None:
    """Raise ReadError for a message in which a field has another type than the protocol says."""
    try:
        check_message(message["type"], message)
    except Broken as broken:
        raise ReadError(f"connector {name}: `{command}`: {broken}", hint=_REPORT) from None


def _messages(name: str, command: str, lines: Iterable[bytes]) -> Iterator[dict[str, Any] | str]:
    """Yield the messages of these lines, and what is none, which is text for people. Raises ReadError for a document
    that no parser should follow."""
    for line in lines:
        try:
            message = from_json(line)
        except ValueError as error:
            try:
                check_depth(line, error)
            except Broken as broken:
                raise ReadError(f"connector {name}: `{command}`: {broken}", hint=_REPORT) from None
            with suppress(Broken):
                yield from parts_of(without_mark(line))
                continue
            message = None
        is_one = isinstance(message, dict) and isinstance(message.get("type"), str)
        yield message if is_one else line.decode("utf-8", "replace")


def _new_configuration(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if message["type"] != "CONTROL" or message["control"]["type"] != "CONNECTOR_CONFIG":
        return None
    configuration: Mapping[str, Any] = message["control"]["connectorConfig"]["config"]
    return configuration


@dataclass(frozen=True)
class _ProcessEnd:
    """The end of a connector's process."""

    code: int | None
    """The exit code, negative for a signal, None if we ended it."""
    cause: str = ""
    """Why the guard did, "" if not."""


class _Process:
    """A run of the program below the guard. `output` is a pipe with what it prints."""

    def __init__(self, config: AirbyteConfig, guard: subprocess.Popen[bytes], output: int, command: str) -> None:
        self._name, self._command, self._guard, self._output = config.name, command, guard, output
        self._limits = config.limits
        self._seconds = min(SECONDS[command], config.limits.time or SECONDS[command])
        self._until, self._answered, self._stopped = time.monotonic() + self._seconds, False, False

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that it prints, until it ends. Raises ReadError if that takes too long or is too much."""
        rest, total = bytearray(), 0
        while (data := self._data()) is not None:
            total += len(data)
            if total > MOST_BYTES:
                raise ReadError(
                    f"connector {self._name}: `{self._command}` printed more than {MOST_BYTES // MIB} MiB",
                    hint="select less in its configuration, so that it has fewer streams",
                )
            rest += data
            *whole, last = bytes(rest).split(b"\n") if b"\n" in data else (bytes(rest),)
            if b"\n" in data:
                rest = bytearray(last)
                yield from filter(bytes.strip, whole)
        if rest.strip():
            yield bytes(rest)

    def _data(self) -> bytes | None:
        """Return the output so far; None at its end."""
        left = self._until - time.monotonic()
        if left > 0 and select.select([self._output], [], [], left)[0]:
            return os.read(self._output, 1 << 16) or None
        if self._answered:
            return None
        raise ReadError(
            f"connector {self._name}: `{self._command}` took more than {self._seconds:g} s and was stopped",
            hint="is its source reachable? `limits.time` of the source may be too short, too",
        )

    def shorten_timeout(self) -> None:
        """Shorten the connector's time: it has answered."""
        self._answered = True
        self._until = min(self._until, time.monotonic() + _AFTERWARDS)

    def end(self) -> _ProcessEnd:
        """Wait for its end, which is brought about if it does not come."""
        assert self._guard.stdout is not None
        if not select.select([self._guard.stdout], [], [], _END)[0]:
            self.stop()
        reply = self._guard.stdout.readline()
        self._guard.wait()
        status: dict[str, Any] = json.loads(reply) if reply else {"code": None, "cause": "guard"}
        return _ProcessEnd(None if self._stopped else status["code"], status["cause"])

    def stop(self) -> None:
        """End it, and all that came of it."""
        assert self._guard.stdin is not None
        self._stopped = True
        with suppress(OSError):
            self._guard.stdin.close()


@contextmanager
def _process(
    config: AirbyteConfig,
    installed: Program,
    command: str,
    configuration: Mapping[str, Any] | None,
    hidden: Hidden,
    log: LogCallback,
) -> Iterator[_Process]:
    """Start the program; nothing of it is left afterwards, nor of its configuration."""
    with temporary("airbyte") as scratch:
        words: tuple[str, ...] = ()
        if configuration is not None:
            file = Path(scratch, "configuration.json")
            write_private(file, json.dumps(configuration))
            words = ("--config", str(file))
        line = installed.command(command, *words)
        if config.sandbox:
            line = (*sandboxed(config.name, scratch, installed.folders), *line)
        (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LOCAL_HOST.program / "guard.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(output_end, errors_end),
            start_new_session=True,
            env={"PATH": os.defpath},
        )
        for descriptor in (output_end, errors_end):
            os.close(descriptor)
        assert guard.stdin is not None
        assert guard.stdout is not None
        guard.stdin.write(
            json.dumps(_plan(config, installed, line, scratch, (output_end, errors_end))).encode() + b"\n"
        )
        guard.stdin.flush()
        reader = threading.Thread(target=_log_errors, args=(errors, hidden, log), daemon=True)
        reader.start()
        process = _Process(config, guard, output, command)
        try:
            yield process
        finally:
            process.stop()
            guard.wait()
            reader.join()
            guard.stdout.close()
            os.close(output)


def _plan(
    config: AirbyteConfig, installed: Program, line: Sequence[str], scratch: str, outputs: Sequence[int]
) -> dict[str, Any]:
    most = config.limits
    limits = {"RLIMIT_DATA": most.memory_bytes, "RLIMIT_FSIZE": most.file_bytes}
    own = {"HOME": scratch, "TMPDIR": scratch, "PYTHONUTF8": "1", "MALLOC_ARENA_MAX": "2"}
    return {
        "command": list(line),
        "folder": scratch if config.sandbox else config.folder or scratch,
        "environment": {**passed_environment(), **own, **installed.environment, **config.environment},
        "descriptors": [],
        "outputs": list(outputs),
        "limits": {"RLIMIT_CORE": 0, **{name: most for name, most in limits.items() if most}},
        "memory": most.memory_bytes,
    }


def _log_errors(descriptor: int, hidden: Hidden, log: LogCallback) -> None:
    for line in output_lines(descriptor, hidden, "stderr", "warning"):
        log(line)


def _no_answer(config: AirbyteConfig, command: str, ended: _ProcessEnd, *, answered: bool) -> ReadError:
    name = config.name
    if ended.cause == "memory":
        return ReadError(
            f"connector {name} used more than {config.limits.memory_bytes // MIB:,} MiB of memory and was stopped",
            hint="raise `limits.memory` of its source",
        )
    how = f"exit code {ended.code}" if (ended.code or 0) >= 0 else f"signal {-(ended.code or 0)}"
    what = f"`{command}` failed after its answer" if answered else f"`{command}` gave no answer"
    return ReadError(f"connector {name}: {what} ({how})", hint=f"the log has what it printed; {_SPEAKS}")


_SPEAKS = "is it a connector that speaks Airbyte's protocol?"


def _cache_file(installed: Program) -> Path:
    digest = hashlib.sha256(json.dumps([installed.version, installed.argv]).encode()).hexdigest()[:16]
    return cache_folder() / "airbyte" / "specifications" / f"{digest}.json"


def _cached(file: Path) -> dict[str, Any] | None:
    try:
        document = from_json(file.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _store(file: Path, answer: Mapping[str, Any]) -> None:
    """Cache an answer; two processes that do so at once write the same."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}.new")
    draft.write_text(json.dumps(answer), encoding="utf-8")
    draft.replace(file)
