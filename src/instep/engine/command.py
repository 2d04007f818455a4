"""A command in a process that was forked from the engine: it becomes what a process of its own would be."""

from __future__ import annotations

import ctypes
import io
import json
import locale
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, cast

from instep.engine.address import SOCKET

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def become(streams: list[int], pipe: int, engine: int, run: Callable[[list[str]], NoReturn], socket: str) -> NoReturn:
    """Run the command that the `pipe` describes, and end with its exit code.

    `streams` are its standard input, output and error; `engine` is the process that it must not outlive, `socket` where
    that listens.
    """
    end_with(engine)
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with os.fdopen(pipe, "rb") as command:
        data = command.read()
    if not data:  # whoever asked is gone
        os._exit(1)
    message = json.loads(data)
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(signal_number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python does
    for number in message["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _surround(message)
    os.environ[SOCKET] = socket
    sys.argv = ["instep", *message["arguments"]]
    run(message["arguments"])


def end_with(parent: int) -> None:
    """Make the kernel kill this process when the one that forked it ends."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _surround(message: dict[str, Any]) -> None:
    """Set what a process has of its caller: environment, folder, umask, priority, time zone, locale and streams."""
    os.environ.clear()
    os.environ.update(message["environment"])
    os.umask(message["umask"])
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, message["nice"])
    os.chdir(message["folder"])
    catalog: Any = sys.modules.get("pyiceberg.catalog")
    if catalog is not None:
        catalog._ENV_CONFIG = catalog.Config()  # read when it was imported: of another folder, home and time
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None
    time.tzset()
    with suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")
    encoding = locale.getencoding()
    plain = encoding.lower() in ("ascii", "ansi_x3.4-1968", "us-ascii")  # Python takes UTF-8 there
    named, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    encoding = named or ("utf-8" if plain else encoding)
    lenient = locale.setlocale(locale.LC_CTYPE) in ("C", "POSIX", "C.UTF-8", "C.utf8", "UTF-8")
    errors = errors or ("surrogateescape" if lenient else "strict")
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding, errors)
    sys.stdout = _writer(1, encoding, errors)
    sys.stderr = _writer(2, encoding, "backslashreplace")


def _writer(number: int, encoding: str, errors: str) -> io.TextIOWrapper:
    """Return a stream that is buffered as Python does it: errors and a terminal's line by line, or nothing at all."""
    if os.environ.get("PYTHONUNBUFFERED"):
        raw = cast(Any, os.fdopen(number, "wb", 0, closefd=False))
        return io.TextIOWrapper(raw, encoding, errors, write_through=True)
    stream = os.fdopen(number, "wb", closefd=False)
    return io.TextIOWrapper(stream, encoding, errors, line_buffering=number == 2 or os.isatty(number))
