"""What is told of where Spark runs: never what may be a token."""

from __future__ import annotations

import pytest

from instep.spark.settings import SparkSettings


@pytest.mark.parametrize(
    ("remote", "where"),
    [
        ("", "local[*]"),
        ("sc://h:15002", "sc://h:15002"),
        ("sc://h:15002/;token=SECRET", "sc://h:15002"),
        ("sc://h:15002;token=SECRET", "sc://h:15002"),
        ("sc://h:15002/;use_ssl=true;token=SECRET", "sc://h:15002"),
    ],
)
def test_where_it_runs(remote: str, where: str) -> None:
    assert SparkSettings(remote=remote).where == where
