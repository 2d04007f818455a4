"""The variables that tests run with: those of the machine, and the switches of the tests themselves.

What else the shell exports, such as a password, an address of a server or a key of a cloud, would be read by the
product, by its libraries and by the references of the tests' project files.
"""

from __future__ import annotations

import os
import re

SWITCHES = (
    "INSTEP_CACHE", "INSTEP_ENGINE", "INSTEP_EXAMPLES", "INSTEP_FLEET", "INSTEP_FULL", "INSTEP_HISTORIES",
    "INSTEP_KILLED_JOBS", "INSTEP_KILLS", "INSTEP_RANDOM", "INSTEP_SAMPLE", "INSTEP_SCREENSHOTS", "INSTEP_SEED",
    "INSTEP_SHRINK", "INSTEP_WRITE_PAGES", "POSTGRES_MAJOR",
)  # fmt: skip
"""Variables that tests read to know which of them run, and how."""
_MACHINE = re.compile(
    "PATH|HOME|SHELL|USER|LOGNAME|LANG|LC_[A-Z]+|TZ|TERM|TMPDIR|CI|JAVA_HOME|VIRTUAL_ENV|DISPLAY|XDG_[A-Z_]+|SSL_CERT_[A-Z]+"
    "|(NO|HTTP|HTTPS)_PROXY|(no|http|https)_proxy|(REQUESTS|CURL)_CA_BUNDLE|(PIP|UV|LD|MALLOC|OMP|OPENBLAS)_[A-Z_]+"
    "|(PYTEST|PYTHON|COV|COVERAGE|HYPOTHESIS|PLAYWRIGHT|NIX)_?[A-Z_]*|EXECNET_[A-Z_]+"
)


def isolate() -> None:
    """Forget the variables of the shell that are neither the machine's nor switches of the tests."""
    for name in [name for name in os.environ if not is_kept(name)]:
        del os.environ[name]


def is_kept(name: str) -> bool:
    """Return whether tests run with the shell's value of a variable."""
    return name in SWITCHES or _MACHINE.fullmatch(name) is not None
