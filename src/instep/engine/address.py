"""Address of a project's engine: one for each user, project, version and Python.

Commands begin here, so nothing but the standard library is imported, and of that little.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import instep
from instep.allocators import LASTING, callers_environment

RESIDENT = "INSTEP_RESIDENT"
"""The variable that says whether commands start an engine (`on`), or run in their own process whatever runs (`off`)."""
PROJECT_FILE = "instep.yml"
_LONGEST = 107
"""Bytes of a socket's path."""
_BOUNDS = ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp:")
"""Lines of a process's status that say what it may do."""
LIBRARY_PREFIXES = ("ARROW_", "GLIBC_", "MALLOC_", "MIMALLOC_", "MKL_", "OMP_", "OPENBLAS_")
"""Prefixes of the variables that a library reads when it is loaded: an engine is started with the caller's values."""
SOCKET = "INSTEP_RESIDENT_SOCKET"
"""The variable by which a command knows the engine that has forked it."""


def project_folder(folder: Path) -> Path | None:
    """Return the folder of the project that `folder` is in, None if it is in none."""
    start = Path(os.path.realpath(folder))
    return next((f for f in (start, *start.parents) if (f / PROJECT_FILE).is_file()), None)


def socket_of(project: Path) -> Path:
    """Return the socket of the engine of a project; OSError if there can be no safe folder for it."""
    from hashlib import sha256

    identity = (str(project), instep.__version__, sys.prefix, str(Path(__file__).parent), *surroundings())
    place = runtime_folder() / f"{sha256(repr(identity).encode()).hexdigest()[:24]}.sock"
    if len(os.fsencode(place)) > _LONGEST:
        raise OSError(f"{place} is too long for a socket")
    return place


def surroundings() -> tuple[object, ...]:
    """Return the state that a process takes from its caller and a fork of another process lacks."""
    import resource

    # Every command sets the limit of core files to 0 itself, so the caller's does not count
    names = [name for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_CORE"]
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in names}
    namespaces = [str(Path("/proc/self/ns", n).readlink()) for n in ("mnt", "pid", "net", "user", "cgroup")]
    return (
        os.getegid(),
        sorted(os.getgroups()),
        os.getpriority(os.PRIO_PROCESS, 0),
        sorted(os.sched_getaffinity(0)),
        sorted(limits.items()),
        namespaces,
        Path("/proc/self/cgroup").read_text(encoding="utf-8"),
        [
            line
            for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
            if line.startswith(_BOUNDS)
        ],
        os.environ.get("PYTHONPATH"),
        sorted(library_variables().items()),
        sys.flags.utf8_mode,
        sys.getfilesystemencoding(),
    )


def library_variables() -> dict[str, str]:
    """Return the variables of the caller that a library reads when it is loaded, but for our own settings."""
    variables = {name: value for name, value in callers_environment().items() if name.startswith(LIBRARY_PREFIXES)}
    return {name: value for name, value in variables.items() if LASTING.get(name) != value}


def runtime_folder() -> Path:
    """Return the folder of the user's sockets, which nobody else can enter; OSError if it is not safe."""
    folder = runtime_place()
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_own(folder):
        raise PermissionError(f"{folder} belongs to another user, or others can enter it")
    return folder


def runtime_place() -> Path:
    """Return where the folder of the user's sockets is, once an engine has been started."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder, "instep") if folder and _is_own(Path(folder)) else Path(f"/tmp/instep.{os.geteuid()}")


def _is_own(folder: Path) -> bool:
    """Return whether it is a real folder of this user's that nobody else can enter."""
    try:
        file_stat = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(file_stat.st_mode)
        and file_stat.st_uid == os.geteuid()
        and not stat.S_IMODE(file_stat.st_mode) & 0o077
    )
