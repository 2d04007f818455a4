"""What Spark says in sixty lines, said in one."""

from __future__ import annotations

import pytest

from instep.errors import AccessDenied, InstepError, ReadError, SetupError, StageError
from instep.spark.failure import explain
from instep.spark.jdbc import driver_message

PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
{line}

"""
JAVA = """An error occurred while calling o72.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)
Caused by: {line}
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        pytest.param(PYTHON.format(line="instep.errors.ReadError: t: gone"), ReadError, "t: gone", id="our error"),
        pytest.param(PYTHON.format(line="instep.errors.AccessDenied: t: no"), AccessDenied, "t: no", id="its subclass"),
        pytest.param(PYTHON.format(line="instep.errors.Unheard: x"), StageError, "x", id="a class we do not know"),
        pytest.param(
            PYTHON.format(line="ValueError: bad\nZeroDivisionError: worse"),
            StageError,
            "a Spark task failed: ZeroDivisionError: worse",
            id="the last Python error",
        ),
        pytest.param(
            PYTHON.format(line="pyarrow.lib.ArrowInvalid: Failed to parse string: 'ann@x' as a scalar"),
            StageError,
            "a Spark task failed: pyarrow.lib.ArrowInvalid: Failed to parse string: [redacted]",
            id="a Python error about a value",
        ),
        pytest.param(
            JAVA.format(line="org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'ann@x' of"),
            StageError,
            "Spark failed: [CAST_INVALID_INPUT] The value [redacted]",
            id="a Java error about a value",
        ),
        pytest.param(
            PYTHON.format(line="ModuleNotFoundError: No module named 'instep'"),
            SetupError,
            "Spark's workers do not have instep installed",
            id="not installed",
        ),
        pytest.param(
            PYTHON.format(line="ModuleNotFoundError: No module named 'adbc_driver_postgresql'"),
            SetupError,
            "Spark's workers do not have the Python package adbc_driver_postgresql",
            id="a driver not installed",
        ),
        pytest.param(
            JAVA.format(line="java.io.IOException: disk full")
            + "\tSuppressed: org.apache.spark.util.Utils$OriginalTryStackTraceException: Full stacktrace of original "
            "doTryWithCallerStacktrace caller\n",
            StageError,
            "Spark failed: disk full",
            id="what failed, and not where Spark says it again",
        ),
        pytest.param(
            JAVA.format(line='java.io.IOException: Cannot run program "/x/bin/python": error=2, No such file'),
            SetupError,
            "Spark's workers have no Python at /x/bin/python",
            id="no Python",
        ),
        pytest.param(
            PYTHON.format(
                line="pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker "
                "has different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor "
                "versions."
            ),
            SetupError,
            "Spark's workers run another version of Python (3.12 there, 3.11 here)",
            id="another Python",
        ),
        pytest.param(
            JAVA.format(line="java.io.EOFException: x Python worker exited unexpectedly (crashed)"),
            StageError,
            "a Python worker ended without a word, four times",
            id="a dead worker",
        ),
        pytest.param(
            JAVA.format(line="java.lang.OutOfMemoryError: Java heap space"),
            StageError,
            "Spark failed: Java heap space",
            id="the last Java cause",
        ),
        pytest.param("something else\nand more", StageError, "Spark failed: something else", id="the first line"),
        pytest.param("", StageError, "Spark failed: RuntimeError", id="nothing said"),
    ],
)
def test_explain(text: str, kind: type[InstepError], message: str) -> None:
    error = explain(RuntimeError(text))
    assert type(error) is kind
    assert error.message == message
    assert "\tat " not in str(error)


@pytest.mark.parametrize(
    ("thrown", "left"),
    [
        ("com.microsoft.sqlserver.jdbc.SQLServerException: Conversion failed when converting the value 'ann@x' to int",
         "Conversion failed when converting the value [redacted]"),
        ('org.postgresql.util.PSQLException: ERROR: invalid input syntax for type integer: "ann@x"',
         "ERROR: invalid input syntax for type integer: [redacted]"),
        ('org.h2.jdbc.JdbcSQLDataException: Data conversion error converting "ann@x"; SQL statement',
         "Data conversion error converting [redacted]"),
        ("java.sql.SQLDataException: Value '99' is outside of valid range; out of range", "Value [redacted]"),
        ("java.sql.SQLException: Table 'shop.gone' does not exist", "Table 'shop.gone' does not exist"),
    ],
)  # fmt: skip
def test_what_a_driver_says_of_a_value_is_left_out(thrown: str, left: str) -> None:
    assert driver_message(RuntimeError(f"An error occurred while calling o1.x\n: {thrown}\n\tat a.b")) == left
