"""Histories share the one Spark session of their process."""

from __future__ import annotations

from sparkfixture import pytest_configure

__all__ = ["pytest_configure"]
