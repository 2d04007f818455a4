from __future__ import annotations

from control_world import store

__all__ = ["store"]
