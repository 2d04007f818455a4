"""The standard streams of a command."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Open the null device as each standard stream that the caller has closed: else the next file that is opened, such
    as the store, would take its number, and get what is written there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it lives as long as we do
