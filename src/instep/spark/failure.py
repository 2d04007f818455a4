"""Explain in one sentence why a Spark job failed."""

from __future__ import annotations

import re

from instep.errors import InstepError, SetupError, StageError, named
from instep.redaction import without_value

_OURS = re.compile(r"^\s*instep\.errors\.(\w+): (.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^\s*([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|ArrowInvalid)): (.*)$", re.MULTILINE)
_JAVA = re.compile(r"(?:Caused by: )?([\w.$]+(?:Exception|Error)): (?!Full stacktrace of original )([^\n]+)")
_OF_VALUES = re.compile(r"((NumberFormat|DateTime|Arithmetic|SQLData)Exception|ArrowInvalid|ValueError|DataError)$")
_DIED = ("Python worker exited unexpectedly", "Python worker failed to connect back", "EOFException")


def explain(error: BaseException) -> InstepError:
    """Return the InstepError that a task raised, or one that says what Spark says without its stack trace."""
    text = str(error)
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return StageError(
            "Spark's Java process ended in the middle of the run; nothing of this read was committed",
            hint="most likely memory ran out: lower spark.driver_memory or free memory, then sync again",
        )
    if match := _last(_OURS, text):
        return named(match[0], StageError)(match[1])
    if "No module named 'instep" in text:
        return SetupError(
            "Spark's workers do not have instep installed",
            hint="install the same version of instep with its dependencies on every worker, for the driver's Python",
        )
    if setup := _setup(text):
        return setup
    if match := _last(_PYTHON, text):
        return StageError(f"a Spark task failed: {match[0]}: {_message(*match)}", hint=_AGAIN)
    if any(sign in text for sign in _DIED):
        return StageError(
            "a Python worker ended without a word, four times",
            hint="most likely memory ran out: lower spark.master's cores (local[1]) or free memory, then sync again",
        )
    if match := _last(_JAVA, text):
        return StageError(f"Spark failed: {_message(*match)[:300]}", hint=_AGAIN)
    return StageError(f"Spark failed: {(text.splitlines() or [type(error).__name__])[0][:300]}", hint=_AGAIN)


def _message(kind: str, text: str) -> str:
    """Return what an exception says, without a value of a row."""
    return without_value(text) if _OF_VALUES.search(kind) else text


def _setup(text: str) -> SetupError | None:
    """Return the error for a package or version that a machine of the cluster lacks."""
    if "PYTHON_VERSION_MISMATCH" in text:
        versions = _VERSIONS.search(text)
        versions_text = f" ({versions[1]} there, {versions[2]} here)" if versions else ""
        return SetupError(f"Spark's workers run another version of Python{versions_text}", hint=_SAME)
    if match := _NO_PROGRAM.search(text):
        return SetupError(f"Spark's workers have no Python at {match[1]}", hint=_SAME)
    if match := _NO_MODULE.search(text):
        return SetupError(f"Spark's workers do not have the Python package {match[1]}", hint=_SAME)
    return None


_VERSIONS = re.compile(r"different version: ?(\S+?) than that in driver: ?(\d[\d.]*\d)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_SAME = "give every worker the same environment as here and set `spark.pyspark.python`: see docs/guides/cluster.md"
_AGAIN = "nothing was committed: sync again"


def _last(pattern: re.Pattern[str], text: str) -> tuple[str, str] | None:
    matches: list[tuple[str, str]] = pattern.findall(text)
    return matches[-1] if matches else None
