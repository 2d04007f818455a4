"""What tests that move rows are marked with."""

from __future__ import annotations

import pytest

SERVER = [pytest.mark.server]
SPARK = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of pyspark's collect()
]
