"""Preloading of modules: a worker reports its imports to the daemon, and the next ones are forked with them.

Modules of the product and of installed packages only: the code of a connector is read anew by each task.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import instep

_MOST = 64 << 10
"""Bytes of the names of modules: a worker imports a few hundred."""
_PLACES = tuple(f"{place}{os.sep}" for place in (sys.prefix, sys.base_prefix, Path(instep.__file__).parent))
_daemon: tuple[int, socket.socket] | None = None
_known: frozenset[str] = frozenset()
"""The modules that a worker is forked with."""


def listen() -> None:
    """Import from now on in this process, which forks the workers, what one of them tells of."""
    global _daemon, _known
    reads, writes = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in (reads, writes):
        end.setblocking(False)

    def load(*_: object) -> None:
        global _known
        with suppress(BlockingIOError):
            while names := reads.recv(_MOST).decode().split():
                for name in names:
                    with suppress(BaseException):  # some can be imported by their own callers only
                        import_module(name)
                _known = frozenset(sys.modules)

    signal.signal(signal.SIGUSR1, load)
    _daemon, _known = (os.getpid(), writes), frozenset(sys.modules)


def tell_imports() -> None:
    """Send the daemon the names that this worker has imported since it was forked, if one listens."""
    global _known
    if _daemon is None or os.getppid() != _daemon[0]:
        return
    names = [name for name, module in list(sys.modules.items()) if name not in _known and _is_installed(name, module)]
    _known = frozenset(sys.modules)
    if names:
        with suppress(OSError):
            _daemon[1].send("\n".join(names).encode())
            os.kill(_daemon[0], signal.SIGUSR1)


def _is_installed(name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return not name.startswith("__") and (file is None or str(file).startswith(_PLACES))
