"""What a shell exports does not reach the tests: passwords, keys, addresses and settings of the product."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from environment import is_kept

EXPORTED = (
    "PG_PASSWORD", "PGPASSWORD", "PGUSER", "PGHOST", "PGSERVICE", "MYSQL_PWD", "AWS_ACCESS_KEY_ID", "AWS_PROFILE",
    "AWS_ENDPOINT_URL", "AZURE_STORAGE_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "INSTEP_SERVER", "INSTEP_API_KEY",
    "INSTEP_KEYS", "INSTEP_SALT", "FIVETRAN_SOURCE_PG_PASSWORD", "AIRBYTE_SOURCE_SHOP_PASSWORD",
    "SPARK_CONF_DIR", "OTEL_EXPORTER_OTLP_ENDPOINT", "DUCKDB_TOKEN", "PYICEBERG_CATALOG__X__URI", "STORE",
    "SALT", "NO_COLOR", "COLUMNS",
)  # fmt: skip


def test_no_variable_of_the_shell_is_there() -> None:
    assert not set(EXPORTED) & set(os.environ)


@pytest.mark.parametrize("name", ["PATH", "HOME", "INSTEP_FULL", "PYTEST_XDIST_WORKER", "PIP_FIND_LINKS"])
def test_what_the_tests_need_is_kept(name: str) -> None:
    assert is_kept(name)


def test_a_shell_that_exports_what_tests_set() -> None:
    """A run of tests in it sees none of that."""
    here = f"{Path(__file__)}::{test_no_variable_of_the_shell_is_there.__name__}"
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", here]
    environment = {**os.environ, **dict.fromkeys(EXPORTED, "http://canary.invalid")}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout
