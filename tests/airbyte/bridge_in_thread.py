"""The bridge as a thread of this process instead of a child: what it reads, sends and is answered goes through pipes as
ever, and the connector is a function from its saved states to the lines that it prints."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from instep.sources.airbyte import bridge, requests, wire
from instep.sources.airbyte.specification import Specification
from instep.sources.connector import spool
from instep.sources.connector.child import Child, ChildEnd
from instep.sources.connector.frames import Frames
from instep.sources.stream import EVERYTHING, StreamScope
from instep.temporary import TemporaryFolder

Output = tuple[bytes, int]
"""What a connector prints, and its exit code: negative for a signal."""
Connector = Callable[[Any, Mapping[str, Any]], Output]
"""From its state messages and its configured catalog."""


class _Unread(Exception):
    """Nobody reads the frames any more."""


class _FrameWriter(wire.FrameWriter):
    """One that ends its thread, and not this process, once nobody is there."""

    def read(self, name: str) -> Any:
        while True:
            line = self._back.readline()
            if not line:
                raise _Unread
            if name in (message := wire.json.loads(line)):
                return message[name]


_OF_THREAD = threading.local()
"""The connector that the bridge of a thread reads."""


class _Printing:
    """A connector that prints its output into a pipe, and ends."""

    def __init__(self, output: Output) -> None:
        text, self._code = output
        self._read, write = os.pipe()
        self.stdout = os.fdopen(self._read, "rb", buffering=0)
        self._thread = threading.Thread(target=self._print, args=(text, write), daemon=True)
        self._thread.start()

    def _print(self, text: bytes, write: int) -> None:
        with os.fdopen(write, "wb", buffering=0) as out, suppress(BrokenPipeError):
            left = memoryview(text)
            while left:
                left = left[out.write(left) :]

    def kill(self) -> None:
        self.stdout.close()

    def wait(self, timeout: float | None = None) -> int:
        self.stdout.close()
        self._thread.join()
        return self._code


class ThreadedChild(Child):
    """The bridge in a thread. Nothing of it is left after close()."""

    def start(self, command: str, state: Mapping[str, Any] | None = None, scope: StreamScope = EVERYTHING) -> None:
        self.hidden.note_state(state or {})
        self._folder = TemporaryFolder("connector", self._host.scratch)
        self._dialect.launch(self._folder.path, self._host, self._log)
        (frames, frames_end), (back_end, back) = os.pipe(), os.pipe()
        self._own, self.frames = [frames, back], Frames(frames)
        self._thread = threading.Thread(target=self._bridge, args=(frames_end, back_end, self._folder.path))
        self._thread.start()
        self.send(self._dialect.request(command, state or {}, scope))

    def _bridge(self, out: int, back: int, scratch: str) -> None:
        frames, folder = _FrameWriter(out, back), wire.private_folder(scratch)
        with suppress(_Unread, BrokenPipeError):
            frames.send(bridge._performed(frames, frames.read("read"), folder))
        os.close(out)
        frames._back.close()
        if (printing := getattr(_OF_THREAD, "printing", None)) is not None:
            printing.stdout.close()

    def send(self, message: Mapping[str, Any]) -> None:
        if len(self._own) > 1:
            super().send(message)

    def wait(self, timeout: float | None = None) -> ChildEnd:
        self._thread.join(timeout)
        self.ended = self.ended or ChildEnd(0, "", 0, 0.0)
        return self.ended

    def stop(self) -> None:
        """Close the way back, at which the bridge notices, and take what it still sends."""
        if len(self._own) > 1:
            os.close(self._own.pop())

    def close(self) -> None:
        if not self._own:
            return
        self.stop()
        os.close(self._own.pop())
        self._thread.join()
        shutil.rmtree(Path(self._folder.path), ignore_errors=True)
        self._folder.close()


@dataclass
class ScriptedConnector:
    """`streams` are what it offers, `read` is its read, `given` are the state messages of its last one."""

    streams: list[dict[str, Any]]
    read: Connector
    given: Any = None


def in_this_process(patch: pytest.MonkeyPatch, connector: ScriptedConnector, *, prompt: Callable[[], bool]) -> None:
    """Let reads happen in this process; `prompt`: each state is a checkpoint at once."""

    def started(request: Mapping[str, Any], folder: Path) -> _Printing:
        connector.given = request["messages"]
        _OF_THREAD.printing = _Printing(connector.read(request["messages"], request["catalog"]))
        return _OF_THREAD.printing

    def discovered(*_: Any) -> requests.DiscoveredStreams:
        return requests.DiscoveredStreams(tuple(connector.streams))

    patch.setattr(spool, "Child", ThreadedChild)
    patch.setattr(bridge, "_started", started)
    patch.setattr(requests, "spec", lambda *_: Specification())
    patch.setattr(requests, "discover", discovered)
    patch.setattr(bridge, "CHECKPOINT_ROWS", _Rows(prompt))


class _Rows(int):
    """The number of rows of a checkpoint: none where the run is prompt."""

    _prompt: Callable[[], bool]

    def __new__(cls, prompt: Callable[[], bool]) -> _Rows:
        found = super().__new__(cls, bridge.CHECKPOINT_ROWS)
        found._prompt = prompt
        return found

    def __le__(self, other: int) -> bool:
        return self._prompt() or int(self) <= other


def lines(messages: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    for message in messages:
        yield wire.json.dumps(message).encode() + b"\n"
