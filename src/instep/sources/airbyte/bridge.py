"""The program of the child process for a connector that speaks Airbyte's protocol: it starts the connector, and sends
its output as the frames of our own connectors.

    python -m instep.sources.airbyte.bridge FRAMES ANSWERS     two file descriptors

Its configuration, catalog and state are in files that only this user can read, for as long as it runs.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # else pyarrow would load numpy, of which nothing is needed here: 14 MB of each connector's process
    sys.modules["numpy"] = None  # type: ignore[assignment]

from pydantic_core import from_json

from instep.redaction import cut
from instep.sources.airbyte.messages import check_message, state_type
from instep.sources.airbyte.state import ConnectorProgress
from instep.sources.airbyte.stream_rows import StreamPlan, StreamRows, noted_changes
from instep.sources.airbyte.wire import (
    BODIES,
    Broken,
    FrameWriter,
    Lines,
    SpilledFrames,
    check_depth,
    check_value,
    is_blank,
    parts_of,
    private_folder,
    without_mark,
    write_private,
)
from instep.stage.pandas_free import hide_pandas

Ref = tuple[str, str]
_SOON = 1.0
"""Seconds that a state waits for others before it is a checkpoint."""
_REPORT_EVERY = 1.0
"""Seconds between two reports of what has come, which are signs of life as well."""
CHECKPOINT_ROWS, CHECKPOINT_BYTES = 10_000, 8 << 20
"""Records and bytes since the last checkpoint that make the next one due at once."""
_SPILL_BYTES = 256 << 20
_AFTERWARDS = 60.0
"""Seconds that the connector may take to end after its output has."""
_LONGEST_TEXT = 64 << 10
"""Characters of a log line: more than are shown, as secrets are taken out of it before it is cut to that."""
_COLLECT_AFTER = 100_000
"""Objects made before a search for cycles: records are many, and have none."""
_LEVELS = {"FATAL": "error", "ERROR": "error", "WARN": "warning", "WARNING": "warning"}
_QUIET = {"DEBUG", "TRACE"}


@dataclass(frozen=True)
class _SharedState:
    """A state of all streams: `content` is what they share, `before` how many records of each came before it."""

    legacy: bool
    content: Any
    streams: Mapping[Ref, Any]
    before: Mapping[Ref, int]

    @classmethod
    def of(cls, kind: str, state: Mapping[str, Any], before: Mapping[Ref, int]) -> _SharedState:
        if kind == "LEGACY":
            return cls(True, state.get("data"), {}, before)
        some = state["global"].get("stream_states") or ()
        streams = {_ref(one["stream_descriptor"]): one.get("stream_state") for one in some}
        return cls(False, state["global"].get("shared_state"), streams, before)


class Reading:
    """One `read` of the connector. `broken` is why nothing more of it is taken."""

    def __init__(self, frames: FrameWriter, request: Mapping[str, Any], folder: Path) -> None:
        self._frames, self._request = frames, request
        self._operations = 0
        self._progress = ConnectorProgress(request["state"])
        most = min(_SPILL_BYTES, int(request.get("file_bytes") or _SPILL_BYTES))
        self._streams: dict[Ref, StreamRows] = {}
        for number, one in enumerate(request["streams"]):
            plan = StreamPlan(**{**one, "ref": tuple(one["ref"]), "key": tuple(one["key"]), "number": number})
            spill = SpilledFrames(folder, f"rows-{number}", most) if plan.overwrite else None
            self._streams[plan.ref] = StreamRows(plan, frames, spill, self._place)
            self._progress.generations[plan.ref] = one_generation(request, plan.ref)
        self._checkpoints, self._pending, self._bytes = 0, 0.0, 0
        self._received = self._received_at_checkpoint = self._received_at_state = 0
        self._shared_state: _SharedState | None = None
        self._counted: Counter[Ref] = Counter()
        self._reported, self._received_at_report = time.monotonic(), 0
        self._expected, self._has_estimate = 0, False
        self._errors: list[Mapping[str, Any]] = []
        self._says_status = False

    def _place(self, count: int) -> int:
        first, self._operations = self._operations, self._operations + count
        return first

    def run(self, output: int) -> str:
        """Read to the end; return why nothing more is taken, "" if all was."""
        lines = Lines(output)
        try:
            while (batch := lines.next(_SOON)) is not None:
                for line in batch:
                    self._handle_line(line)
                self._bytes += sum(map(len, batch))
                self._look_at_the_clock(idle=not batch)
        except Broken as error:
            return str(error)
        return ""

    def _handle_line(self, line: bytes) -> None:
        try:
            message = from_json(line, cache_strings="keys")
        except ValueError as error:
            check_depth(line, error)
            self._handle_parts(without_mark(line))
            return
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "RECORD":
            self._handle_record(message.get("record"), len(line))
        elif isinstance(kind, str) and kind in BODIES:
            self._handle_other(kind, message)
        else:
            check_value(message)
            self._log("info", line.decode("utf-8", "replace"))

    def _handle_parts(self, line: bytes) -> None:
        """Take the messages of a line that is more than one, and log the text between them. Text in front of a record
        or state makes it doubtful: it may be a quotation, and must not be lost either."""
        if not line.strip():
            return
        text = ""
        for part in parts_of(line):
            if isinstance(part, str):
                text = part
                if not is_blank(part):
                    self._log("info", part.strip())
            elif not is_blank(text) and part["type"] in ("RECORD", "STATE"):
                check_message(part["type"], part)
                self._refuse(part["type"], part[BODIES[part["type"]]])
            elif part["type"] == "RECORD":
                self._handle_record(part["record"], len(line))
            else:
                self._handle_other(part["type"], part)

    def _refuse(self, kind: str, body: Mapping[str, Any]) -> None:
        """Fail the stream of a record or state that has text in front of it."""
        one = body if kind == "RECORD" else (body.get("stream") or {}).get("stream_descriptor") or {}
        why = (
            f"it printed text in front of a {kind} message on the same line, which may be a quotation; the text is in "
            "the log: its own output has to go to stderr, or onto lines of its own (use another version, or report it)"
        )
        ref = str(one.get("namespace") or ""), str(one.get("stream" if kind == "RECORD" else "name") or "")
        stream = self._streams.get(ref)
        if stream is None:
            raise Broken(why)
        stream.flush()
        stream.fail(why)

    def _handle_record(self, record: Any, size: int) -> None:
        """Take a record. One that names a stream and says nothing about its values is as it must be."""
        data = record.get("data") if isinstance(record, dict) else None
        if not isinstance(data, dict):
            raise Broken("it sent a record without an object of data")
        namespace, meta = record.get("namespace"), record.get("meta")
        try:
            stream = self._streams.get(("" if namespace is None else namespace, record.get("stream")))
        except TypeError:  # a list or an object
            stream = None
        if stream is None or meta is not None:
            check_message("RECORD", {"record": record})
        if stream is None:  # it was not asked for
            self._counted[namespace or "", record.get("stream") or ""] += 1
            return
        stream.total += 1
        self._received += 1
        if stream.fault:
            return
        if stream.closed:
            stream.fail("it sent records after it was complete")
            return
        stream.add_record(data, size, noted_changes(meta) if meta else ())

    def _check_named(self, stream: StreamRows) -> None:
        """Fail a stream of which nothing came, beside records of its name under another namespace: they are its own."""
        ref = stream.plan.ref
        others = [other for other, count in self._counted.items() if other[1] == ref[1] and count]
        if others and not stream.total:
            stream.fail(
                f"none of its records arrived, but records of {', '.join(map(_path, others))}: the namespace differs"
            )

    def _handle_other(self, kind: str, message: dict[str, Any]) -> None:
        try:
            check_message(kind, message)
        except Broken:
            if kind == "TRACE":  # it may be why the read ends
                self._log("error", json.dumps(message.get("trace")))
            raise
        match kind:
            case "STATE":
                self._handle_state(message["state"])
            case "TRACE":
                self._handle_trace(message["trace"])
            case "LOG":
                entry = message["log"]
                level = str(entry.get("level")).upper()
                text = "\n".join(str(entry[k]) for k in ("message", "stack_trace") if entry.get(k))
                self._log(_LEVELS.get(level, "debug" if level in _QUIET else "info"), text)
            case "CONTROL":
                control = message["control"]
                if control["type"] == "CONNECTOR_CONFIG":
                    self._frames.send({"frame": "configuration", "configuration": control["connectorConfig"]["config"]})
                    self._frames.read("saved")

    def _handle_state(self, state: dict[str, Any]) -> None:
        """Take a state as a barrier for the records before it, if there were as many as it states."""
        count = (state.get("sourceStats") or {}).get("recordCount")
        kind = state_type(state)
        if kind == "STREAM":
            if not self._handle_stream_state(state["stream"], count):
                return
        else:
            for stream in self._streams.values():
                self._check_named(stream)
            came, self._received_at_state = self._received - self._received_at_state, self._received
            if count is not None and int(count) != came:
                raise Broken(f"its state is about {int(count):,} records, and {came:,} came")
            before = {ref: stream.total for ref, stream in self._streams.items()}
            self._shared_state = _SharedState.of(kind, state, before)
        self._pending = self._pending or time.monotonic()
        self._look_at_the_clock(idle=False)

    def _handle_stream_state(self, one: dict[str, Any], count: float | None) -> bool:
        """Return whether the state is taken."""
        ref = _ref(one["stream_descriptor"])
        if (stream := self._streams.get(ref)) is None:
            self._counted[ref] += 0
            return False
        came, stream.total_at_state = stream.total - stream.total_at_state, stream.total
        if count is not None and int(count) != came and not stream.fault:
            stream.flush()
            stream.fail(f"its state is about {int(count):,} records, and {came:,} came")
        self._check_named(stream)
        if stream.fault or stream.plan.overwrite or stream.closed:
            return False
        stream.offer(one.get("stream_state"))
        return True

    def _accept_states(self) -> None:
        """Take the states whose records are handed on; one that streams share counts if all of them went well. What is
        read as a whole has none beyond its end, or the next run would find nothing left to read."""
        for ref, stream in self._streams.items():
            if (accepted := stream.accepted_state()) is not None:
                self._progress.take_stream(ref, accepted[1])
                self._count_records(ref, accepted[0])
            if stream.has_replaced:
                self._progress.replaced.discard(ref)
        shared, self._shared_state = self._shared_state, None
        if shared is not None and not any(stream.fault for stream in self._streams.values()):
            self._accept_shared_state(shared)
        self._progress.forget(ref for ref, stream in self._streams.items() if stream.begins_again)

    def _accept_shared_state(self, shared: _SharedState) -> None:
        for ref, before in shared.before.items():
            self._streams[ref].comes_again = self._comes_again(shared, ref, before)
            self._count_records(ref, before)
        if shared.legacy:
            self._progress.take_legacy(shared.content)
        else:
            self._progress.take_global(shared.content, shared.streams, self._streams.keys())

    def _comes_again(self, shared: _SharedState, ref: Ref, before: int) -> bool:
        """Return whether a shared state seems to bring records of a stream without a key again that came before it: it
        leaves the stream out beside others, or says of it what was saved before."""
        if shared.legacy or not shared.streams or not (before and self._streams[ref].plan.first):
            return False
        is_same = shared.content == self._progress.shared and shared.streams.get(ref) == self._progress.streams.get(ref)
        return ref not in shared.streams or is_same

    def _count_records(self, ref: Ref, before: int) -> None:
        """Advance the record numbers past these records, which do not come again."""
        if (stream := self._streams[ref]).plan.first:
            self._progress.records[ref] = max(self._progress.records[ref], stream.plan.first + before)

    def _handle_trace(self, trace: dict[str, Any]) -> None:
        match trace["type"]:
            case "ERROR":
                error = trace["error"]
                self._errors.append(error)
                for name in ("message", "internal_message", "stack_trace"):
                    if error.get(name):
                        self._log("error", str(error[name]))
            case "STREAM_STATUS":
                status = trace["stream_status"]
                self._says_status = True
                if (stream := self._streams.get(_ref(status["stream_descriptor"]))) is not None:
                    stream.status = str(status["status"])
                    if stream.status == "COMPLETE":
                        self._complete(stream)
                    elif stream.status == "INCOMPLETE" and (reasons := status.get("reasons")):
                        stream.is_limited = any(one.get("type") == "RATE_LIMITED" for one in reasons)
                        self._log("warning", f"{stream.plan.path}: {json.dumps(reasons)}")
            case "ESTIMATE":
                self._handle_estimate(trace["estimate"])

    def _handle_estimate(self, estimate: Mapping[str, Any]) -> None:
        """Remember how many records are expected; the last estimate counts."""
        if (rows := estimate.get("row_estimate")) is None:
            return
        if estimate.get("type") == "SYNC" or not estimate.get("name"):
            self._expected = max(int(rows), 0)
        elif stream := self._streams.get(_ref(estimate)):
            stream.expected = max(int(rows), 0)
        self._has_estimate = True

    def _report(self) -> None:
        """Report what has come of each stream and in all, and how many records are expected."""
        streams = self._streams.values()
        each = [s.expected for s in streams]
        whole = self._expected or (sum(each) if all(each) else 0)
        received = [("", sum(s.total for s in streams), whole)]
        received += [(s.plan.path, s.total, s.expected) for s in streams if s.total or s.expected]
        self._frames.send({"frame": "progress", "received": received})
        self._reported, self._received_at_report, self._has_estimate = time.monotonic(), self._received, False

    def _complete(self, stream: StreamRows) -> None:
        """Complete a stream: all its rows have come. One that is read as a whole begins again in the next run."""
        self._check_named(stream)
        stream.finish()
        if not stream.plan.resumes and not stream.fault:
            self._count_records(stream.plan.ref, stream.good)
        self._pending = self._pending or time.monotonic()

    def _look_at_the_clock(self, *, idle: bool) -> None:
        now = time.monotonic()
        full = self._received - self._received_at_checkpoint >= CHECKPOINT_ROWS or self._bytes >= CHECKPOINT_BYTES
        if self._pending and (full or idle or now - self._pending >= _SOON):
            self._checkpoint()
        has_news = self._has_estimate or self._received > self._received_at_report
        if has_news and now - self._reported >= _REPORT_EVERY:
            self._report()

    def _checkpoint(self) -> None:
        for stream in self._streams.values():
            if not stream.plan.overwrite:
                stream.flush()
        self._accept_states()
        self._checkpoints += 1
        self._pending, self._received_at_checkpoint, self._bytes = 0.0, self._received, 0
        self._frames.send({"frame": "checkpoint", "state": json.dumps(self._progress.document())})
        self._frames.wait(self._checkpoints)

    def _log(self, level: str, text: str) -> None:
        self._frames.send({"frame": "log", "level": level, "message": cut(text, _LONGEST_TEXT)})

    def end(self, broken: str, code: int | None) -> dict[str, Any]:
        """Save what counts, and return the last frame."""
        clean = code == 0 and not broken and not self._errors
        for stream in self._streams.values():
            if not stream.fault and not stream.closed and not self._says_status and clean:
                stream.status = "COMPLETE"
                self._complete(stream)
            elif stream.plan.overwrite and not stream.closed:
                stream.fail(self._failure_reason(stream, broken, code))
        if clean and not any(map(self._is_failed, self._streams.values())):
            self._count_stateless()
        for stream in self._streams.values():
            if stream.plan.first and not self._is_failed(stream):
                stream.flush()
                stream.remove_unsent()
                if not stream.fault:
                    self._progress.ends[stream.plan.ref] = stream.plan.first + stream.total
        self._report()
        self._checkpoint()
        for text in (text for stream in self._streams.values() for text in stream.warnings()):
            self._frames.send({"frame": "warning", "message": text})
        for ref, count in self._counted.items():
            text = f"{_path(ref)}: {count:,} records of a stream that was not asked for"
            self._frames.send({"frame": "warning", "message": text})
        failed = {
            s.plan.path: self._failure_reason(s, broken, code) for s in self._streams.values() if self._is_failed(s)
        }
        if not failed and not broken and code == 0 and not self._errors:
            return {"frame": "end"}
        if not broken and 0 < len(failed) < len(self._streams):
            return {"frame": "end", "failed": self._failures(failed)}
        return {"frame": "error", **self._failure(broken, code, failed)}

    def _count_stateless(self) -> None:
        """Count the records of streams that are complete and never had a state: whatever comes next is new."""
        if self._progress.type not in ("", "STREAM") or self._shared_state is not None:
            return
        for ref, stream in self._streams.items():
            if not stream.has_state and ref not in self._progress.streams:
                self._count_records(ref, stream.total)

    def _is_failed(self, stream: StreamRows) -> bool:
        return bool(stream.fault) or stream.status != "COMPLETE"

    def _failure_reason(self, stream: StreamRows, broken: str, code: int | None) -> str:
        if stream.fault:
            return stream.fault
        for error in self._errors:
            if (one := error.get("stream_descriptor")) and _ref(one) == stream.plan.ref:
                return str(error.get("message") or "it failed")
        if broken:
            return "it was not complete yet"
        return f"it ended as {stream.status}" if stream.status else f"it was not complete at its end ({_exit(code)})"

    def _failures(self, failed: Mapping[str, str]) -> list[tuple[str, str, str, bool]]:
        """Return (namespace, name, why, whether it may pass) of each failed stream; an error that names no stream may
        be that of any."""
        errors = [one for one in self._errors if not one.get("stream_descriptor")]
        texts = [str(one.get("message") or one.get("internal_message") or "it failed") for one in errors[:3]]
        return [
            (*ref, "; ".join(dict.fromkeys((failed[stream.plan.path], *texts))), self._may_pass(stream, errors))
            for ref, stream in self._streams.items()
            if stream.plan.path in failed
        ]

    def _may_pass(self, stream: StreamRows, unnamed: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether the connector says that the stream may be complete when it is read again: by its errors, else
        by those that name no stream, else because it met a limit of its source."""
        if stream.fault:
            return False
        own = [one for one in self._errors if (ref := one.get("stream_descriptor")) and _ref(ref) == stream.plan.ref]
        kinds = {one.get("failure_type") for one in own or unnamed}
        return kinds == {"transient_error"} or (not kinds and stream.is_limited)

    def _failure(self, broken: str, code: int | None, failed: Mapping[str, str]) -> dict[str, Any]:
        errors = [str(error.get("message") or error.get("internal_message") or "it failed") for error in self._errors]
        kinds = [error.get("failure_type") for error in self._errors]
        parts = [broken] if broken else errors[:3]
        if not parts and not failed:
            parts = [f"it ended with {_exit(code)} after all streams were complete"]
        if failed:
            texts = [f"{path} ({why})" if why not in errors else path for path, why in sorted(failed.items())]
            parts.append(f"not complete: {', '.join(texts[:20])}{', ...' if len(texts) > 20 else ''}")
        kind = next((k for k in ("config_error", "system_error", "transient_error") if k in kinds and not broken), "")
        lost = not errors and not broken and (code is None or code < 0)
        return {"kind": kind, "message": "; ".join(parts), "streams": sorted(failed), "lost": lost}


def one_generation(request: Mapping[str, Any], ref: Ref) -> int:
    """Return the generation that the configured catalog gives the stream."""
    for one in request["catalog"]["streams"]:
        if _ref(one["stream"]) == ref:
            return int(one["generation_id"])
    raise KeyError(ref)


def _ref(descriptor: Mapping[str, Any]) -> Ref:
    return str(descriptor.get("namespace") or ""), str(descriptor["name"])


def _path(ref: Ref) -> str:
    return ".".join(filter(None, ref))


def _exit(code: int | None) -> str:
    if code is None:
        return "a process that did not end"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _started(request: Mapping[str, Any], folder: Path) -> subprocess.Popen[bytes]:
    """Start the connector with its files."""
    for name in ("configuration", "catalog"):
        write_private(folder / f"{name}.json", request[name])
    if request["messages"] is not None:
        write_private(folder / "state.json", request["messages"])
    return subprocess.Popen(
        request["program"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=request["environment"],
        cwd=request["folder"],
    )


def _ended(process: subprocess.Popen[bytes], *, broken: bool) -> int | None:
    """Return the exit code of the connector, which is ended if it does not do so itself."""
    if broken:
        process.kill()
    try:
        return process.wait(_AFTERWARDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def _performed(frames: FrameWriter, request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    frames.send({"frame": "schema", "tables": request["tables"]})
    frames.read("lenient")
    if not request["streams"]:
        return {"frame": "end"}
    reading = Reading(frames, request, folder)
    try:
        process = _started(request, folder)
    except OSError as error:
        text = f"{request['program'][0]} cannot be started: {error.strerror}"
        return {"frame": "error", "kind": "config_error", "message": text, "streams": []}
    assert process.stdout is not None
    broken = reading.run(process.stdout.fileno())
    return reading.end(broken, _ended(process, broken=bool(broken)))


def main(out: int, back: int) -> None:
    for descriptor in (out, back):
        os.set_inheritable(descriptor, False)  # the connector has no part in this
    hide_pandas()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    frames = FrameWriter(out, back)
    request = frames.read("read")
    folder = private_folder(os.environ["TMPDIR"])
    try:
        last = _performed(frames, request, folder)
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)
    frames.send(last)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
