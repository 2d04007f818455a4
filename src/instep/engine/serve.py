"""The engine's process: it forks one process for each command, from everything imported once.

It has one thread and opens nothing that a fork must not share: no store, no connection, no JVM. Spark's session is that
of a process of its own, the keeper (`spark/resident.py`), which commands attach to.
"""

from __future__ import annotations

import ctypes  # noqa: F401 - loaded once, for the commands
import fcntl
import gc
import os
import selectors
import signal
import socket
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from instep.engine.address import PROJECT_FILE, SOCKET
from instep.engine.command import become, end_with
from instep.engine.wire import SPARK_WITHIN, log_of, receive, send, user_of

IDLE = 900.0
"""Seconds that an engine without work goes on, where the project does not say it."""
_LOOKS = 5.0
"""Seconds between two looks at the time, the memory and the code."""
_TIMEOUT = 10.0
"""Seconds that a command has to end once nobody waits for it, before it is killed."""
_MESSAGE_SECONDS = 5.0
_SERVES = 200
"""Commands for which a JVM is used: each leaves a little in it."""
_PRELOADED = (
    "instep.cli.main",
    "instep.bootstrap.app",
    "instep.project.load",
    "instep.store.store",
    "instep.backends.local",
    "instep.sync.run",
    "instep.plans.planned",
    "instep.sync.loading.engine",
    "instep.stage.local",
    "instep.cli.render.live",
    "instep.cli.render.runs",
    "instep.spark.session",
    "instep.spark.extract",
    "pyspark.sql",
)
"""Modules that most commands import, in this order; others are learnt from commands that have ended."""


@dataclass
class Command:
    """A forked command; `peer` is whoever waits for it, None once that is gone."""

    pid: int
    started: float
    peer: socket.socket | None
    left: float = 0.0
    """Time when its peer disconnected."""
    on_spark: bool = False


@dataclass(eq=False)
class Keeper:
    """The process that keeps Spark's session. `waiting` are those who are told once it is there."""

    pid: int
    peer: socket.socket
    settings: dict[str, Any]
    started: float
    answer: dict[str, Any] | None = None
    waiting: list[socket.socket] = field(default_factory=list)
    served: int = 0
    is_worn: bool = False
    """True if it ends once no command uses it: one was killed, whose statements and connections stay in the JVM."""
    ends_until: float = 0.0
    """Time at which it is killed after it was told to end."""


class EngineProcess:
    """The engine of one project."""

    def __init__(self, project: Path, place: Path, listener: socket.socket, lock: int) -> None:
        self.project, self.place, self.listener, self.lock = project, place, listener, lock
        self.file = identity_of(self.place)
        self.ending: list[Keeper] = []
        self.unloadable: set[str] = set()
        self.terminated = False
        self.events = selectors.DefaultSelector()
        self.commands: dict[int, Command] = {}
        self.keeper: Keeper | None = None
        self.begun = self.active = time.time()
        self.count = 0
        self.code = newest_code()
        self.stopping = ""
        self._to_load = list(_PRELOADED)
        self._looked = 0.0

    def serve(self) -> None:
        """Answer until the engine is idle for too long, is stopped, or its code has changed."""
        woken, wakes = socket.socketpair()
        for end in (woken, wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "terminated", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.events.register(self.listener, selectors.EVENT_READ, self._accept)
        self.events.register(woken, selectors.EVENT_READ, lambda: woken.recv(4096) and None)
        while not (self.stopping and not self.commands):
            try:
                self._turn()
            except Exception:  # a defect ends the engine, and none of its commands
                traceback.print_exc()
                self._stop("it has failed")
                time.sleep(0.1)
        self._end_keeper()
        while self.ending:
            self._reap()
            self._kill_late()
            time.sleep(0.01)

    def _turn(self) -> None:
        for key, _ in self.events.select(0 if self._to_load else 1.0 if self.ending else _LOOKS):
            key.data()
        if self.terminated:
            self._stop("it was asked to")
        self._reap()
        self._check_processes()
        if self._to_load and not self.stopping:
            self._load(self._to_load.pop(0))

    def _accept(self) -> None:
        if self.stopping:
            return
        peer, _ = self.listener.accept()
        peer.settimeout(_MESSAGE_SECONDS)
        try:
            if user_of(peer) != os.geteuid():
                raise ConnectionError("another user")
            request, descriptors = receive(peer)
        except (OSError, ValueError):
            peer.close()
            return
        try:
            self._answer(peer, request or {}, descriptors)
        except (OSError, LookupError, ValueError, TypeError):  # it has gone, or asks for what cannot be
            peer.close()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _answer(self, peer: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
        match request.get("ask"):
            case "run" if len(descriptors) == 4:
                if newest_code() != self.code:
                    self._stop("the code has changed")
                if self.stopping:
                    peer.close()
                    return
                self._run(peer, descriptors)
            case "spark":
                self._spark(peer, int(request["command"]), request["settings"])
            case "status":
                send(peer, self.status())
                peer.close()
            case "stop":
                self._stop("it was asked to")
                if self.keeper and not self.keeper.answer:  # whoever waits for it starts a JVM of its own
                    self._end_keeper(timeout=0)
                send(peer, self.status())
                peer.close()
            case _:
                peer.close()

    def status(self) -> dict[str, Any]:
        """Return what `instep engine status` shows."""
        spark = self.keeper
        return {
            "pid": os.getpid(),
            "project": str(self.project),
            "since": self.begun,
            "idle_seconds": round(0 if self.commands else time.time() - self.active, 1),
            "ends_after_seconds": idle_seconds(self.project),
            "commands_run": self.count,
            "commands": [{"pid": command.pid, "since": command.started} for command in self.commands.values()],
            "memory_bytes": self.memory(),
            "spark": "none" if spark is None else "ready" if spark.answer else "starting",
            "stopping": self.stopping,
        }

    def memory(self) -> int:
        """Return the bytes that this process, the keeper and its JVM have in memory."""
        return sum(map(memory_of, [os.getpid(), *(descendants(self.keeper.pid) if self.keeper else ())]))

    def _stop(self, why: str) -> None:
        """Take no more commands; those that run go on to their end, beside the next engine if need be."""
        if self.stopping:
            return
        self.stopping = why
        with suppress(KeyError):
            self.events.unregister(self.listener)
        if identity_of(self.place) == self.file:  # else it is another engine's
            self.place.unlink(missing_ok=True)
        self.listener.close()
        os.close(self.lock)

    # commands

    def _run(self, peer: socket.socket, descriptors: list[int]) -> None:
        gc.freeze()
        *streams, pipe = descriptors
        pid = _forked(lambda engine: become(streams, pipe, engine, _perform, str(self.place)), self._leave_to, peer)
        self.count += 1
        self.active = time.time()
        command = self.commands[pid] = Command(pid, time.time(), peer)
        self.events.register(peer, selectors.EVENT_READ, lambda: self._on_command_message(command))
        send(peer, {"begun": pid})

    def _leave_to(self, peer: socket.socket) -> None:
        """Close in a forked process what is the engine's."""
        with suppress(OSError):
            os.close(self.lock)
        signal.set_wakeup_fd(-1)
        self.events.close()
        for sock in (self.listener, peer, *(c.peer for c in self.commands.values() if c.peer)):
            sock.close()
        if self.keeper:
            for sock in (self.keeper.peer, *self.keeper.waiting):
                sock.close()

    def _on_command_message(self, command: Command) -> None:
        """Pass a signal on; end the command of somebody who has gone."""
        assert command.peer is not None
        try:
            message = receive(command.peer)[0]
        except (OSError, ValueError):
            message = None
        if message is None:
            self._forget(command)
            command.left = time.monotonic()
            _signal(command.pid, signal.SIGINT)
            _signal(command.pid, signal.SIGCONT)
        elif isinstance(number := message.get("signal"), int):
            _signal(command.pid, number)

    def _forget(self, command: Command) -> None:
        if command.peer is not None:
            self.events.unregister(command.peer)
            command.peer.close()
            command.peer = None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            if command := self.commands.pop(pid, None):
                self._ended(command, code)
            elif self.keeper and self.keeper.pid == pid:
                self._forget_keeper({"ended": "while it started"})
            self.ending = [process for process in self.ending if process.pid != pid]

    def _ended(self, command: Command, code: int) -> None:
        self.active = time.time()
        if command.peer is not None:
            with suppress(OSError):
                send(command.peer, {"exit": code} if code >= 0 else {"killed": -code})
        self._forget(command)
        if command.on_spark and self.keeper and self.keeper.answer:
            self.keeper.is_worn = self.keeper.is_worn or code < 0 or self.keeper.served >= _SERVES
            with suppress(OSError):
                send(self.keeper.peer, {"ended": command.pid})
        _signal(-command.pid, signal.SIGKILL)  # what it has started goes with it
        loaded = self.unloadable | sys.modules.keys()
        self._to_load += [name for name in _imported_modules(self.place, command.pid) if name not in loaded]

    def _check_processes(self) -> None:
        """End what nobody waits for, and the engine where it is idle, too large or of old code."""
        now = time.monotonic()
        for command in self.commands.values():
            if command.left and now - command.left > _TIMEOUT:
                _signal(command.pid, signal.SIGKILL)
        if self.keeper and self.keeper.is_worn and not any(c.on_spark for c in self.commands.values()):
            self._end_keeper()
        if self.keeper and not self.keeper.answer and now - self.keeper.started > SPARK_WITHIN:
            self._end_keeper(timeout=0, answer={"late": SPARK_WITHIN})
        self._kill_late()
        if now - self._looked < _LOOKS or self.stopping:
            return
        self._looked = now
        if not (self.project / PROJECT_FILE).is_file():
            self._stop("the project is gone")
        elif identity_of(self.place) != self.file:
            self._stop("its socket is gone")
        elif newest_code() != self.code:
            self._stop("the code has changed")
        elif not self.commands and time.time() - self.active > max(_LOOKS, idle_seconds(self.project)):
            self._stop("nothing was asked of it for a while")
        elif not self.commands and self.memory() > most_memory():
            self._stop("it has grown too large")

    def _load(self, name: str) -> None:
        try:
            import_module(name)
        except BaseException:  # some can be imported by their own callers only, and some end who imports them
            self.unloadable.add(name)

    # Spark

    def _spark(self, peer: socket.socket, pid: int, settings: dict[str, Any]) -> None:
        """Report to a command where Spark's session is, once it runs."""
        command = self.commands.get(pid)
        if command is None:
            peer.close()
            return
        if self.keeper and self.keeper.settings != settings:
            if any(c.on_spark for c in self.commands.values()):
                send(peer, {"refused": "another command uses a session with other settings"})
                peer.close()
                return
            self._end_keeper()
        command.on_spark = True
        if self.keeper is None:
            self._start_keeper(settings)
        assert self.keeper is not None
        self.keeper.served += 1
        if self.keeper.answer:
            send(peer, self.keeper.answer)
            peer.close()
        else:
            self.keeper.waiting.append(peer)

    def _start_keeper(self, settings: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        pid = _forked(lambda engine: _become_keeper(theirs, settings, engine), self._leave_to, ours)
        theirs.close()
        ours.settimeout(_MESSAGE_SECONDS)
        keeper = self.keeper = Keeper(pid, ours, settings, time.monotonic())
        self.events.register(ours, selectors.EVENT_READ, lambda: self._on_keeper_message(keeper))

    def _on_keeper_message(self, keeper: Keeper) -> None:
        if keeper is not self.keeper:
            return
        try:
            message = receive(keeper.peer)[0]
        except (OSError, ValueError):
            message = None
        if message is None:
            self.events.unregister(keeper.peer)
            return
        if "port" in message:
            keeper.answer = message
        self._tell_waiting(keeper, message)

    def _tell_waiting(self, keeper: Keeper, message: dict[str, Any]) -> None:
        for peer in keeper.waiting:
            with suppress(OSError):
                send(peer, message)
            peer.close()
        keeper.waiting.clear()

    def _forget_keeper(self, answer: dict[str, Any]) -> None:
        assert self.keeper is not None
        self._tell_waiting(self.keeper, answer)
        with suppress(KeyError, ValueError):
            self.events.unregister(self.keeper.peer)
        self.keeper.peer.close()
        self.keeper = None

    def _end_keeper(self, *, timeout: float = 2 * _TIMEOUT, answer: dict[str, Any] | None = None) -> None:
        """End the keeper, and its JVM with it; others are answered meanwhile."""
        if (keeper := self.keeper) is None:
            return
        keeper.ends_until = time.monotonic() + timeout
        self.ending.append(keeper)
        self._forget_keeper(answer or {"ended": "because it was told to"})

    def _kill_late(self) -> None:
        for process in self.ending:
            if time.monotonic() > process.ends_until:
                _signal(process.pid, signal.SIGKILL)


def _forked(run: Callable[[int], NoReturn], leave_to: Callable[[socket.socket], None], peer: socket.socket) -> int:
    """Fork a process that does nothing but `run`, which is given this one's id; return its id.

    It never returns into the engine's own code, and no signal of somebody else runs the engine's handlers in it.
    """
    engine = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            leave_to(peer)
            run(engine)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            code = 128 + signal.SIGINT
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _perform(arguments: list[str]) -> NoReturn:
    """Run a command in a forked process, and leave word of what it has imported beside what was there."""
    import atexit

    before, place = set(sys.modules), Path(os.environ[SOCKET])

    def leave_word() -> None:
        with suppress(OSError):
            _learnt_file(place, os.getpid()).write_text("\n".join(sys.modules.keys() - before))

    atexit.register(leave_word)
    import_module("instep.cli.main").run(arguments)
    raise AssertionError("a command ends its process")


def _learnt_file(place: Path, pid: int) -> Path:
    return place.with_suffix(f".{pid}.modules")


def _imported_modules(place: Path, pid: int) -> list[str]:
    """Return the modules that a command has imported, those of the product and of installed packages."""
    file = _learnt_file(place, pid)
    try:
        names = file.read_text(encoding="utf-8").split()
        file.unlink()
    except (OSError, ValueError):
        return []
    return [name for name in names if not name.startswith(("__", "_virtualenv"))]


def _become_keeper(peer: socket.socket, settings: dict[str, Any], engine: int) -> NoReturn:
    """Become the keeper of Spark's session."""
    import atexit

    end_with(engine)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    import_module("instep.spark.resident").run_keeper(peer, settings)
    atexit._run_exitfuncs()  # the archive of classes with which the next JVM starts faster is made then
    os._exit(0)


def _signal(pid: int, number: int) -> None:
    with suppress(OSError):
        os.killpg(-pid, number) if pid < 0 else os.kill(pid, number)


def newest_code() -> tuple[int, int]:
    """Return how many files the product's code has, and when the last of them or of the packages was changed."""
    count = newest = 0
    try:
        for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            newest = max(newest, Path(place).stat().st_mtime_ns)
        folders = [str(Path(__file__).parents[1])]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != "__pycache__":
                            folders.append(entry.path)
                    elif entry.name.endswith(".py") and not entry.name.startswith("."):
                        count += 1
                        newest = max(newest, entry.stat().st_mtime_ns)
    except OSError:  # it is being changed
        return -1, time.time_ns()
    return count, newest


def identity_of(file: Path) -> tuple[int, int] | None:
    """Return the file's identity, None if there is none."""
    try:
        file_stat = file.lstat()
    except OSError:
        return None
    return file_stat.st_dev, file_stat.st_ino


def idle_seconds(project: Path) -> float:
    """Return after how long without work the project's engine ends (`engine_idle`)."""
    try:
        file_stat = (project / PROJECT_FILE).stat()
    except OSError:
        return IDLE
    return _idle_seconds(project / PROJECT_FILE, file_stat.st_mtime_ns, file_stat.st_size)


@lru_cache(maxsize=1)
def _idle_seconds(file: Path, _time: int, _size: int) -> float:
    import yaml

    from instep.project.sections.values import seconds_of

    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        return float(seconds_of(document.get("engine_idle", IDLE)))
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError):  # a command says what is wrong
        return IDLE


def most_memory() -> float:
    """Return the bytes from which on an engine without work ends: half of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2


def memory_of(pid: int) -> int:
    """Return the bytes of a process that are in memory and not shared with a file, 0 if it is gone."""
    with suppress(OSError, ValueError, IndexError):
        pages = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")
    return 0


def descendants(pid: int) -> list[int]:
    """Return a process and those that it has started."""
    pids = [pid]
    for parent in pids:
        with suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                pids += map(int, (thread / "children").read_text().split())
    return pids


def main(project: Path, place: Path) -> int:
    """Serve a project's commands on the socket `place`; 0 at once if another engine does so already."""
    lock = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    with suppress(OSError):
        os.truncate(log_of(place), 0)  # what earlier engines said
    for left in place.parent.glob(f"{place.stem}.*.modules"):  # of commands whose engine was killed
        left.unlink(missing_ok=True)
    import_module(_PRELOADED[0])
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    draft = place.with_suffix(".new")
    draft.unlink(missing_ok=True)
    listener.bind(str(draft))
    draft.chmod(0o600)
    listener.listen(64)
    draft.rename(place)  # whoever finds it is answered
    EngineProcess(project, place, listener, lock).serve()
    return 0


if __name__ == "__main__":
    # as a module that has its name, so that what is forked finds one copy of it
    sys.exit(import_module("instep.engine.serve").main(Path(sys.argv[1]), Path(sys.argv[2])))
