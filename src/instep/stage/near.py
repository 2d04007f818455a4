"""What stays on this machine."""

from __future__ import annotations

import ipaddress


def is_near(host: str) -> bool:
    """Whether nobody on a network hears what is said to `host`: a local socket, or loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.startswith("/") or host.lower() == "localhost"
