"""Every test here that asks for `spark_session` shares one JVM."""

from __future__ import annotations

from sparkfixture import pytest_configure, spark_session

__all__ = ["pytest_configure", "spark_session"]
