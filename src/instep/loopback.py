"""Addresses of this machine."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return True if what is sent to this address, or to this name, stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_near(host: str) -> bool:
    """Return True if nobody on a network hears what is said to `host`: a local socket, or loopback."""
    return host.startswith("/") or is_loopback(host.lower())
